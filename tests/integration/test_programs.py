"""Every program of the table under fs.jit on the emulator, next to jax.jit and to float64."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.accuracy import limit, relative_error
from fusionstitch.compiler import builders, core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.hlo.importer import from_proto
from fusionstitch.runtime import emulate, emulated_call
from tests.examples.test_examples import load
from tests.kept import kept_sort
from tests.programs import PROGRAMS, Program, precision, reference, reference64

#: Programs in which even the paper's scorer finds nothing to stitch, as no two ops can be fused, or
#: XLA computes them inside a scatter.
ALONE = frozenset(
    {
        *("empty_array", "one_element", "iota_masks", "same_output_twice", "unused_and_passed_on"),
        *("constant_output", "reduce_tall_column", "max_pool"),
        *("outer_contraction", "integer_dot", "layout_constraint", "donated_passed_on"),
        "rows_updated_in_place",
    }
)
DONATING = [name for name, entry in PROGRAMS.items() if entry.donate]


@pytest.fixture(autouse=True)
def forward() -> Iterator[None]:
    yield
    emulate.set_order("forward")


@functools.cache
def references(name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What jax.jit computes, and the run in float64."""
    entry = PROGRAMS[name]
    return reference(entry.fun, entry.args), reference64(entry.fun, entry.args)


def arguments(entry: Program) -> tuple[Any, ...]:
    args: tuple[Any, ...] = jax.tree.map(jnp.array, entry.args)
    return args


def host(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def assert_near(name: str, ours: Sequence[np.ndarray]) -> None:
    """The rule of every program: at most twice XLA's own error, or that of the type."""
    for number, (mine, xla, wide) in enumerate(zip(ours, *references(name), strict=True)):
        assert (mine.dtype, mine.shape) == (xla.dtype, xla.shape)
        if not jnp.issubdtype(mine.dtype, np.floating):
            np.testing.assert_array_equal(mine, xla)
            continue
        error, own = relative_error(mine, wide), relative_error(xla, wide)
        allowed = limit(mine.dtype, own)
        assert error <= allowed, f"output {number}: {error:.1e}, XLA {own:.1e}, {allowed:.1e}"


@pytest.mark.parametrize("scorer", ["model", pytest.param("paper", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results(host_compiler: str, name: str, scorer: str) -> None:
    entry = PROGRAMS[name]
    options = fs.Options(backend="emulate", scorer=scorer, fallback="error")
    with precision(entry.args):
        jitted = fs.jit(entry.fun, options=options, donate_argnums=entry.donate, **entry.keywords())
        compiled = jitted.lower(*arguments(entry)).compile()
        assert compiled.fallbacks == ()
        if scorer == "paper":
            assert bool(compiled.kernels) == (name not in ALONE)
        outputs = {}
        for order in ("forward", "reversed", "random") if compiled.kernels else ("forward",):
            emulate.set_order(order, seed=5)
            outputs[order] = host(compiled(*arguments(entry)))
    assert_near(name, outputs["forward"])
    for order, values in outputs.items():
        for one, other in zip(values, outputs["forward"], strict=True):
            assert one.tobytes() == other.tobytes(), f"{order} order of threads"


# ---- donation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DONATING)
def test_donated_arguments_are_deleted_as_under_jax_jit(host_compiler: str, name: str) -> None:
    entry = PROGRAMS[name]
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")

    def deleted(jit: Any) -> list[bool]:
        args = arguments(entry)
        jax.block_until_ready(jit(entry.fun, donate_argnums=entry.donate)(*args))
        return [leaf.is_deleted() for leaf in jax.tree.leaves(args)]

    assert deleted(functools.partial(fs.jit, options=options)) == deleted(jax.jit)


def overwriting(entry: Program) -> tuple[Stitched, Any]:
    """`entry` stitched as on a GPU, where kernels may overwrite dead operands; how to run it."""
    plain = jax.jit(entry.fun, donate_argnums=entry.donate, keep_unused=True)
    args = arguments(entry)
    data = plain.lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    device = builders.profile(options)
    result = core.stitch(data, options, device, builders.emulated(), aliasing=True)
    program = emulated_call.lower(jax.jit(entry.fun, keep_unused=True), args)
    run = emulated_call.stitched(program, result.module, donate_argnums=entry.donate)
    return result, run


def overwritten(result: Stitched) -> int:
    """Operands that kernels of the module write over."""
    return sum(
        len(instruction.output_operand_aliasing)
        for computation in from_proto(result.module).proto.computations
        for instruction in computation.instructions
    )


def _alive(p: jax.Array, x: jax.Array) -> tuple[jax.Array, ...]:
    """The donated p is overwritten by nothing: XLA's sort and a second kernel read it later."""
    moved = jnp.tanh(p) * 2.0 + x
    ordered = kept_sort(p, axis=1)
    return moved, ordered * 2.0 + 1.0, jnp.exp(p - ordered).sum(0) + p[0]


def _chain(p: jax.Array, x: jax.Array) -> jax.Array:
    """Three kernels, each may overwrite what the one before wrote; x is not donated."""
    for _ in range(3):
        p = kept_sort(jnp.tanh(p) * 2.0 + x, axis=1)
    return p + 1.0


def _loop(p: jax.Array, x: jax.Array) -> jax.Array:
    """A loop whose carry may be overwritten while its start is read again after the loop."""
    return jax.lax.fori_loop(0, 3, lambda _, v: jnp.tanh(v) * 2.0 + x, p) + p


_P, _X = (np.random.default_rng(seed).standard_normal((6, 40), np.float32) for seed in (1, 2))
IN_PLACE = {
    **{name: PROGRAMS[name] for name in DONATING},
    **{
        fun.__name__: Program(fun.__name__, fun, (_P, _X), donate=(0,))
        for fun in (_alive, _chain, _loop)
    },
}
#: Operands overwritten; the others are read elsewhere, or not element by element.
OVERWRITTEN = {"donated_update": 1, "donated_adam": 3, "_chain": 2, "_loop": 3}
OVERWRITTEN |= dict.fromkeys(("donated_stays_alive", "donated_transposed", "_alive"), 0)


@pytest.mark.parametrize("name", IN_PLACE)
def test_kernels_that_overwrite_operands(host_compiler: str, name: str) -> None:
    result = check_overwriting(IN_PLACE[name])
    if name in OVERWRITTEN:
        assert overwritten(result) == OVERWRITTEN[name]


@pytest.mark.parametrize(
    ("target", "least"),
    [("logistic.py:train_step", 2), ("perceptron.py:train_step", 12)],
)
def test_training_steps_overwrite_their_state(
    host_compiler: str, monkeypatch: pytest.MonkeyPatch, target: str, least: int
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "small")
    fun, args = load(target)
    result = check_overwriting(Program(target, fun, args, donate=(0,)))
    assert overwritten(result) >= least


def check_overwriting(entry: Program) -> Stitched:
    """Runs a program whose kernels overwrite operands, in every order of threads."""
    result, run = overwriting(entry)
    expected = reference(entry.fun, entry.args)
    kept = [n for n in range(len(entry.args)) if n not in entry.donate]
    for order in ("forward", "reversed", "random"):
        emulate.set_order(order, seed=5)
        args = arguments(entry)
        for mine, xla in zip(host(run(*args)), expected, strict=True):
            np.testing.assert_allclose(mine, xla, rtol=2e-5, atol=2e-6)
        for n in kept:
            for leaf, value in zip(host(args[n]), host(entry.args[n]), strict=True):
                np.testing.assert_array_equal(leaf, value)
    return result
