"""A flax transformer's training step: sums of arrays of all sizes share kernels with their updates.

The full size runs on a GPU, and is planned for one without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("flax.linen")
pytest.importorskip("optax")

import fusionstitch as fs
from fusionstitch import accuracy
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler import core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.runtime import nvrtc as compiler
from tests.clients.flax_transformer import FULL, SMALL, by_name, training
from tests.clients.near import assert_near

pytestmark = pytest.mark.slow

#: Stitches whatever can be.
PAPER = fs.Options(scorer="paper", fallback="error")


def steps(jit: Callable[..., Any]) -> Any:
    """The moments of the weights after three steps, and the losses and norms."""
    step, first = training(SMALL, norm=True)
    state, tokens = first()
    jitted, shown = jit(step, donate_argnums=0), []
    for _ in range(3):
        state, values = jitted(state, tokens)
        shown.append(values)
    return by_name(state[1]), shown


def test_training(jit: Callable[..., Any]) -> None:
    ours, theirs = steps(jit), steps(jax.jit)
    assert_near(ours, theirs, 1e-4)
    assert ours[1][-1][0] < ours[1][0][0]


# ---- planned for an H200 -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned() -> Stitched:
    """One layer at full width, with the norm among its results."""
    step, first = training(replace(FULL, layers=1), norm=True)
    traced = jax.jit(step, keep_unused=True).trace(*jax.eval_shape(first))
    module: Any = traced.lower(lowering_platforms=("cuda",)).compiler_ir("hlo")
    data = module.as_serialized_hlo_module_proto()
    return core.stitch(data, fs.Options(fallback="error"), device("h200"), None)


def branches(kernel: Kernel) -> list[str]:
    """The pieces of a kernel's source that different blocks, or phases, run."""
    return re.split(r"\belse\b|\bif \(const int \w+ = |fs_grid_barrier", kernel.source)


def test_the_plan_has_few_kernels_for_the_sums_and_the_updates(planned: Stitched) -> None:
    """New weights and two moments of each come from a few kernels. In those that sum gradients up
    for them blocks wait for each other."""
    assert len(planned.kernels) <= 10
    assert sum(len(kernel.outputs) for kernel in planned.kernels) > 3 * 20
    summing = [kernel for kernel in planned.kernels if "fs_reduce_team<" in kernel.source]
    assert any(kernel.cooperative for kernel in summing)


def test_the_sums_of_the_norm_are_spread_over_blocks(planned: Stitched) -> None:
    """None of the blocks does several of them: each sum has a tile of its own."""
    summing = [kernel for kernel in planned.kernels if kernel.cooperative]
    assert sum(len(re.findall(r"fs_reduce_(?:team|block)<", k.source)) for k in summing) > 8
    for branch in (branch for kernel in summing for branch in branches(kernel)):
        assert len(re.findall(r"fs_reduce_(?:team|block)<", branch)) <= 2, branch


def test_the_plan_compiles(planned: Stitched, nvrtc: ModuleType) -> None:
    for kernel in planned.kernels:
        [(_, used)] = compiler.compile(kernel.source, "sm_90").resources
        # functions of thirty arguments take sixty registers: what a thread holds meanwhile is
        # spilled
        assert used.spill_store_bytes <= (120 if kernel.cooperative else 0)
        assert used.registers * kernel.block <= 65_536


# ---- on a GPU ------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("norm", [False, True])
def test_a_full_step_on_a_gpu(norm: bool) -> None:
    """From the state after two steps, no moment, loss or norm is further from float64 than twice
    XLA's. A weight's step depends on the sign of a gradient that may be nil but for rounding."""
    step, first = training(FULL, norm)
    with jax.default_matmul_precision("highest"):
        state, tokens = first()
        plain, stitched = jax.jit(step), fs.jit(step, options=PAPER)
        for _ in range(2):
            state, _ = plain(state, tokens)
        wanted = accuracy.rerun(step, (state, tokens), {})
        assert wanted is not None
        compiled = stitched.lower(state, tokens).compile()
        assert any("fs_reduce_team" in kernel.source for kernel in compiled.kernels)
        found, theirs = compiled(state, tokens), plain(state, tokens)
    results = by_name((found[0][1], found[1])), by_name((theirs[0][1], theirs[1]))
    (_, moments), shown = jax.tree.unflatten(jax.tree.structure(theirs), wanted)
    references = by_name((moments, shown))
    assert len(references) == len(results[0]) == len(results[1]) > 60
    for name, reference in references.items():
        ours, other = (np.asarray(result[name]) for result in results)
        most = accuracy.limit(ours.dtype, accuracy.relative_error(other, reference))
        assert accuracy.relative_error(ours, reference) <= most, name
    assert_near(by_name(found[0][0]), by_name(theirs[0][0]), 1e-4)


@pytest.mark.gpu
def test_training_goes_on_as_under_jax_jit() -> None:
    """Twenty steps with the state donated."""

    def losses(jit: Callable[..., Any]) -> list[float]:
        step, first = training(FULL)
        state, tokens = first()
        jitted, found = jit(step, donate_argnums=0), []
        for _ in range(20):
            state, value = jitted(state, tokens)
            found.append(float(value))
        return found

    with jax.default_matmul_precision("highest"):
        ours, theirs = losses(fs.jit), losses(jax.jit)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)
    assert ours[-1] < ours[0]
