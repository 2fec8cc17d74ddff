"""Products of f32 are rounded to TF32 where XLA's libraries do that, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from fusionstitch.accuracy import relative_error
from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.generate import CodegenOptions, draft, generate
from fusionstitch.codegen.rewrite.expansions import expand
from fusionstitch.codegen.rewrite.rounded_products import round_products
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.evaluate import evaluate
from tests.codegen.regions import ORDERS, ROUNDING, Case, build, whole_of
from tests.codegen.test_gpu_kernels import launch
from tests.codegen.test_whole_tiles import attention

#: A device with few rows to a multiprocessor.
SMALL = replace(ROUNDING, sm_count=1)
Array = jax.Array
F32 = np.float32
X, W = (np.zeros(dims, F32) for dims in ((64, 32), (32, 16)))


def rounded(x: np.ndarray) -> np.ndarray:
    """The nearest numbers of ten bits after the first, halves away from zero."""
    bits = x.astype(F32).view(np.uint32) + np.uint32(0x1000)
    return (bits & np.uint32(0xFFFFE000)).view(F32)


# ---- which products ------------------------------------------------------------------------------


def precise(precision: str) -> Any:
    return lambda x, w: jnp.tanh(jnp.dot(x, w, precision=precision))


#: Programs of x [64, 32] and w [32, 16], with how many of their dots are rounded.
PROGRAMS = {
    "alone": (lambda x, w: x @ w, 1),
    "asked for nothing": (precise("default"), 1),
    "asked for 22 bits": (precise("high"), 0),
    "asked for all bits": (precise("highest"), 0),
    "asked for an algorithm": (precise("F32_F32_F32"), 0),
    "with a vector": (lambda x, w: jnp.exp(x @ w[:, 0]), 0),
    "a loop under XLA": (lambda x, w: x[:3, :2] @ w[:2], 0),
    "16 bits": (lambda x, w: x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16), 0),
    "softmax": (lambda x, w: jax.nn.softmax(x @ w, where=w[0] > 0), 1),
    "finite or not": (lambda x, w: jax.nn.logsumexp(x @ w, axis=1), 1),
    "the least": (lambda x, w: jnp.argmin(x @ w, axis=1), 0),
    "a step": (lambda x, w: jnp.where(x @ w > 0, x[:, :16], 0), 0),
    "an integer": (lambda x, w: (x @ w * 10).astype(jnp.int32), 0),
    "what decides is one of two": (lambda x, w: (jnp.floor(x @ w), x.T @ x), 1),
    "an extremum that leaves": (lambda x, w: (x @ w).max(axis=1), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_that_a_library_rounds(name: str) -> None:
    fun, count = PROGRAMS[name]
    found = round_products(expand(whole_of(fun, X, W), "default"), ROUNDING)
    assert sum(annotations_of(op).tf32 for op in found) == count


def test_devices_without_tf32_round_nothing() -> None:
    graph = whole_of(lambda x, w: x @ w, X, W)
    for name in ("v100", "emulated"):
        assert round_products(graph, device(name)) is graph
    keeps = replace(ROUNDING, library=replace(ROUNDING.library, float_bits=12))
    assert round_products(graph, keeps) is graph
    assert round_products(graph, device("a100")) is not graph


def test_strict_numerics_round_nothing() -> None:
    graph = whole_of(attention, *(np.zeros((2, 160, 32), F32),) * 3)
    assert "tf32" in generate(graph, SMALL).source
    strict = generate(graph, SMALL, CodegenOptions("strict")).source
    assert "tf32" not in strict
    assert "fs_mma<1" not in strict


def test_kernels_of_loops_round_nothing() -> None:
    def fun(x: Array, w: Array) -> Array:
        return jax.lax.fori_loop(0, 40, lambda _, x: jnp.tanh(x @ w), x)

    looped = draft(whole_of(fun, np.zeros((1024, 64), F32), np.zeros((64, 64), F32)), ROUNDING)
    source = looped.kernel().source
    assert "fs_mma<1" not in source
    assert "tf32" not in source


# ---- numbers -------------------------------------------------------------------------------------


def _normal(seed: int, *dims: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims).astype(F32)


def _case(fun: Any, *args: np.ndarray) -> Case:
    return Case(whole_of(fun, *args), args, SMALL)


TILED = _case(lambda x, w: x @ w, _normal(0, 160, 48), _normal(1, 48, 40))
HELD = _case(
    lambda q, k, v: jnp.tanh(q @ k.T) @ v,
    _normal(2, 640, 24),
    _normal(3, 40, 24),
    _normal(4, 40, 8),
)
STREAMED = _case(attention, *(_normal(n, 2, 160, 32) for n in range(3)))
CASES = {
    "a tile": (TILED, "fs_mma<1, 1"),
    "rows in registers": (HELD, "fs_mma<1, 1"),
    "a stream": (STREAMED, "fs_mma_across<tf32"),
}


def test_a_tile_multiplies_rounded_operands(host_compiler: str) -> None:
    """But for the order of sums, its results are those of the rounded operands."""
    x, w = (rounded(a).astype(np.float64) for a in TILED.args)
    built = build([TILED])
    for order, seed in ORDERS:
        [found] = built.run(TILED, order, seed)
        assert relative_error(found, x @ w) < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_errors_are_those_of_rounded_operands(name: str, host_compiler: str) -> None:
    case, text = CASES[name]
    built = build([case])
    assert text in built.kernels[case].source
    [found] = built.run(case)
    assert 1e-5 < relative_error(found, built.wanted(case)[0]) < 1e-3


def test_infinities_and_every_nan_stay(host_compiler: str) -> None:
    """A NaN of all ones, as a GPU's arithmetic gives, would become -0 by rounding its bits."""
    x = _normal(0, 160, 48)
    x[3, 5], x[7, 1], x[9, 9] = np.inf, -np.inf, np.uint32(0x7FFFFFFF).view(F32)
    w = np.abs(_normal(1, 48, 40)) + 1

    case = _case(lambda x, w: x @ w, x, w)
    built = build([case])
    assert "fs_mma<1, 1" in built.kernels[case].source
    [found] = built.run(case)
    found = found.reshape(160, 40)
    assert (found[3] == np.inf).all()
    assert (found[7] == -np.inf).all()
    assert np.isnan(found[9]).all()
    assert np.isnan(found).sum() == 40


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_rounds_as_the_emulator_does(name: str) -> None:
    """And is no farther from the float64 run than twice XLA's own product."""
    case, _ = CASES[name]
    [found] = launch(case.kernel(), list(case.args))
    [wanted] = evaluate(case.graph, case.args, float64=True)
    functions = {"a tile": lambda x, w: x @ w, "a stream": attention}
    functions["rows in registers"] = lambda q, k, v: jnp.tanh(q @ k.T) @ v
    theirs = jax.jit(functions[name])(*case.args)
    assert relative_error(found, wanted) <= 2 * relative_error(np.asarray(theirs), wanted)


@pytest.mark.parametrize("dtype", [F32, ml_dtypes.bfloat16])
def test_streams_compile_without_spills(nvrtc: Any, dtype: Any) -> None:
    for depth in (64, 128):
        shapes = [jax.ShapeDtypeStruct((8, 512, depth), dtype)] * 3
        kernel = generate(whole_of(attention, *shapes), device("h200"))
        assert "loop stream" in kernel.template
        [(_, used)] = nvrtc.compile(kernel.source, "sm_90").resources
        # the compiler itself gives up a few registers where a fourth block fits without them
        assert used.spill_store_bytes <= 32 * (used.registers == 128)
