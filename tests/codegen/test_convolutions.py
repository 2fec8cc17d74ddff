"""Convolutions of few channels in kernels, against jax.jit and the reference in float64.

What the cases (conv_cases.py) compute is checked with all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import fusionstitch as fs
from fusionstitch.accuracy import relative_error
from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.rewrite.convolutions import MOST_CHANNELS, MOST_SUMMED
from fusionstitch.codegen.rewrite.kernel_gradients import is_kernel_gradient
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.convolutions import products
from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.patterns.fusible import fusible
from tests.codegen.conv_cases import CONVOLUTIONS, FIRST, LAST, by_kernels, convolution
from tests.codegen.regions import Case, build, lowered, whole_of

H200 = device("h200")
CHECKED = CodegenOptions(check=True)


def array(*dims: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(dims).standard_normal(dims).astype(dtype)


def convolution_of(graph: Graph) -> Op:
    return next(op for op in graph if op.opcode == "convolution")


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_the_reference_is_jaxs_convolution(name: str) -> None:
    fun, x, w = CONVOLUTIONS[name]
    with jax.enable_x64(True):
        args = [array(*dims, dtype=np.float64) for dims in (x, w)]
        [got] = evaluate(lowered(fun, *args), args)
        assert relative_error(got, jax.jit(fun)(*args)) < 1e-14


@pytest.mark.parametrize("precision", ["default", "highest"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_kernels_have_the_values_of_jax(name: str, precision: str, host_compiler: str) -> None:
    """As precisely on tensor cores, unless as much is asked for."""
    fun, *dims = CONVOLUTIONS[name]
    args = [array(*one) for one in dims]
    with jax.default_matmul_precision(precision):
        case = Case(whole_of(fun, *args), args, options=CHECKED)
        assert convolution_of(case.graph).attrs["precision"] == precision
        [got], [expected] = build([case]).run(case), evaluate(case.graph, args, float64=True)
    assert relative_error(got, expected) < 5e-7


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_convolution_is_the_references(data: st.DataObject) -> None:
    few = st.integers(1, 3)
    spatial = data.draw(st.integers(1, 2), "spatial dims")
    groups, channels, results = (data.draw(few, what) for what in ("groups", "channels", "results"))
    window = [data.draw(few, "window") for _ in range(spatial)]
    sizes = [data.draw(st.integers(3, 9), "size") for _ in range(spatial)]
    edges = st.integers(-1, 3)
    options: dict[str, Any] = {
        "window_strides": [data.draw(few, "stride") for _ in range(spatial)],
        "padding": [(data.draw(edges, "low"), data.draw(edges, "high")) for _ in range(spatial)],
        "lhs_dilation": [data.draw(few, "base dilation") for _ in range(spatial)],
        "rhs_dilation": [data.draw(few, "window dilation") for _ in range(spatial)],
    }
    x = array(2, groups * channels, *sizes)
    w = array(groups * results, channels, *window)

    def orders(rank: int) -> st.SearchStrategy[list[int]]:
        return st.permutations(range(rank))

    rank = spatial + 2
    places = [data.draw(orders(rank), what) for what in ("input", "kernel", "output")]
    numbers = lax.ConvDimensionNumbers(*map(tuple, places))

    def fun(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, dimension_numbers=numbers, feature_group_count=groups, **options
        )

    args = [
        np.ascontiguousarray(a.transpose(np.argsort(p)))
        for a, p in zip((x, w), places, strict=False)
    ]
    graph = whole_of(fun, *args)
    if not any(op.opcode == "convolution" and op.shape.size for op in graph):
        return  # nothing is left of the array
    case = Case(graph, args, options=CHECKED)
    [got], [expected] = build([case]).run(case), evaluate(graph, args, float64=True)
    assert relative_error(got, expected) < 1e-6


@pytest.mark.parametrize("name", by_kernels)
def test_gradients_by_kernels_are_sums_over_places(name: str, host_compiler: str) -> None:
    fun, args = by_kernels[name]
    case = Case(whole_of(fun, *args), args, options=CHECKED)
    assert is_kernel_gradient(convolution_of(case.graph))
    [got], [expected] = build([case]).run(case), evaluate(case.graph, args, float64=True)
    assert relative_error(got, expected) < 1e-6


def test_gradients_by_kernels_are_tiles_in_parts() -> None:
    """On tensor cores, by all blocks of the device."""
    shapes = [jax.ShapeDtypeStruct((64, 128, 128, n), jnp.float32) for n in (3, 8)]

    def fun(x: Any, g: Any) -> Any:
        return jax.vjp(lambda w: convolution(LAST)(x, w), jnp.zeros((5, 5, 3, 8)))[1](g)[0]

    kernel = generate(whole_of(fun, *shapes), H200)
    assert "fs_mma" in kernel.source
    assert kernel.grid >= H200.sm_count


def test_nothing_is_written_between() -> None:
    """Windows are not copied out, and what is computed of a result stays in registers."""
    dims = (8, 64, 64, 3), (5, 5, 3, 16), (16,)
    shapes = [jax.ShapeDtypeStruct(one, jnp.float32) for one in dims]
    region = whole_of(lambda x, w, b: jax.nn.gelu(convolution(LAST)(x, w) + b), *shapes)
    kernel = generate(region, H200)
    assert not kernel.scratch
    assert "fs_mma" in kernel.source


def test_each_channel_has_its_own_sum() -> None:
    """As a stencil has: no thread waits for another."""
    shapes = [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((8, 56, 56, 64), (3, 3, 1, 64))]
    source = generate(whole_of(convolution(LAST, groups=64), *shapes), H200).source
    assert "fs_reduce" not in source
    assert "fs_mma" not in source


# ---- what is left to XLA -------------------------------------------------------------------------


def refusal(fun: Callable[..., Any], *dims: tuple[int, ...], dtype: str = "float32") -> str:
    shapes = [jax.ShapeDtypeStruct(one, dtype) for one in dims]
    verdict = fusible(convolution_of(lowered(fun, *shapes)), H200)
    assert not verdict
    return verdict.reason


def test_many_channels_are_a_librarys() -> None:
    shapes = [
        jax.ShapeDtypeStruct(d, "f") for d in ((2, 9, 9, MOST_CHANNELS), (3, 3, MOST_CHANNELS, 8))
    ]
    assert fusible(convolution_of(lowered(convolution(LAST), *shapes)), H200)
    more = MOST_CHANNELS + 1
    assert "many channels" in refusal(convolution(LAST), (2, 9, 9, more), (3, 3, more, 8))
    # of each group there are few
    shapes = [jax.ShapeDtypeStruct(dims, "f") for dims in ((2, 9, 9, 64), (3, 3, 1, 64))]
    assert fusible(convolution_of(lowered(convolution(LAST, groups=64), *shapes)), H200)


def test_sums_of_many_products_are_a_librarys() -> None:
    size = int(MOST_SUMMED**0.5) + 1
    dims = (1, 1, size, size)
    assert "so many products" in refusal(convolution(FIRST, padding="VALID"), dims, dims)


def test_convolutions_of_integers_are_left_to_xla() -> None:
    dims = (2, 9, 9, 3), (3, 3, 3, 8)
    assert "Kernels convolve floats" in refusal(convolution(LAST), *dims, dtype="int32")


def test_groups_of_a_batch_are_left_to_xla() -> None:
    def fun(x: Any, w: Any) -> Any:
        numbers = lax.conv_dimension_numbers(x.shape, w.shape, FIRST)
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=numbers, batch_group_count=2
        )

    assert "groups of a batch" in refusal(fun, (4, 3, 9, 9), (4, 3, 3, 3))


MODULE = """HloModule m
ENTRY e {{
  x = f32[2,9,9,3] parameter(0)
  w = f32[3,3,{channels},8] parameter(1)
  ROOT c = f32[2,{rows},9,8] convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, \
dim_labels=b01f_01io->b01f
}}
"""


def test_modules_that_contradict_themselves_are_refused() -> None:
    assert from_proto(text_to_proto(MODULE.format(channels=3, rows=9)))
    for wrong in ({"channels": 2, "rows": 9}, {"channels": 3, "rows": 8}):
        with pytest.raises(ImportModuleError, match="malformed"):
            from_proto(text_to_proto(MODULE.format(**wrong)))


# ---- for users -----------------------------------------------------------------------------------


def test_users_get_one_kernel(host_compiler: str) -> None:
    x, w, b = array(4, 32, 32, 3), array(3, 3, 3, 16), array(16)

    def layer(x: Any, w: Any, b: Any) -> Any:
        return jax.nn.relu(convolution(LAST)(x, w) + b).mean((1, 2))

    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(layer, options=options).lower(x, w, b).compile()
    assert len(compiled.kernels) == 1
    np.testing.assert_allclose(compiled(x, w, b), jax.jit(layer)(x, w, b), rtol=1e-4, atol=1e-5)


def test_loops_may_convolve(host_compiler: str) -> None:
    """A rule that neighbours decide, for several steps."""
    x = (array(2, 16, 16, 1) > 0).astype(np.float32)
    w = np.ones((3, 3, 1, 1), np.float32)

    def life(x: Any, w: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            around = convolution(LAST)(x, w) - x
            return ((around == 3) | ((x > 0) & (around == 2))).astype(jnp.float32)

        return lax.fori_loop(0, 6, step, x)

    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(life, options=options).lower(x, w).compile()
    assert len(compiled.kernels) == 1
    np.testing.assert_array_equal(compiled(x, w), jax.jit(life)(x, w))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_products_with_nothing_are_not_counted(name: str) -> None:
    """As many as ones add up to, where all elements are one."""
    fun, x, w = CONVOLUTIONS[name]
    ones = [np.ones(dims, np.float32) for dims in (x, w)]
    op = convolution_of(lowered(fun, *ones))
    assert products(op) == np.asarray(jax.jit(fun)(*ones)).sum()


# ---- numbers that are none, and rounding ---------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_under_the_kernel_is_not_read(bad: float, host_compiler: str) -> None:
    """Runs are made longer by zeros, not by neighbours that a zero is multiplied with."""
    x = np.ones((2, 12, 40, 3), np.float32)
    x[0, 5, 20] = bad
    w = np.full((3, 5, 3, 8), 0.3, np.float32)
    case = Case(whole_of(convolution(LAST), x, w), [x, w], options=CHECKED)
    [got], wanted = build([case]).run(case), jax.jit(convolution(LAST))(x, w)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))


def test_sums_of_halves_are_rounded_once(host_compiler: str) -> None:
    """Also where a decision reads them, and where all roundings are kept."""
    x, w = (np.full((1, 1, 7, n), 1.01, ml_dtypes.bfloat16) for n in (15, 7))

    def decided(x: Any, w: Any) -> Any:
        return jnp.sort(lax.conv(x, w, (1, 1), "VALID"), -1)

    case = Case(whole_of(decided, x, w), [x, w], options=CHECKED)
    [got] = build([case]).run(case)
    np.testing.assert_array_equal(got, jax.jit(decided)(x, w))
    x = np.full((1, 1, 1, 4), 40000, np.float16)
    w = np.array([1, 1, -1, -1], np.float16).reshape(1, 1, 1, 4)
    strict = CodegenOptions(check=True, numerics="strict")
    plain = convolution(FIRST, padding="VALID")
    case = Case(whole_of(plain, x, w), [x, w], options=strict)
    [got] = build([case]).run(case)
    np.testing.assert_array_equal(got, np.zeros((1, 1, 1, 1)))
