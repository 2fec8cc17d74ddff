"""Decisions by floats of 16 bits: numbers that the program makes equal are equal in kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from benchmarks.loops.forced import taken
from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.rewrite.expansions import expand
from fusionstitch.codegen.rewrite.roundings import keep_roundings
from fusionstitch.codegen.while_loops.flat import flatten
from fusionstitch.codegen.while_loops.generate import FORMS
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.text import text_to_proto
from tests.codegen.regions import whole_of
from tests.codegen.test_strength import graph_of, region_of
from tests.numbers.same import assert_same_bits, compiled

TYPES = (jnp.float16, jnp.bfloat16)
draw = np.random.default_rng(0)


# ---- what is marked ------------------------------------------------------------------------------

XY = "x = bf16[8] parameter(0); y = bf16[8] parameter(1); w = f32[8] parameter(2);"
S = XY + "s = bf16[8] add(x, y);"

#: Statements whose result is r, and the ops that they mark.
MARKED = {
    "compare": (S + "r = pred[8] compare(s, x), direction=EQ", "s"),
    "all that a number is made of": (
        S + "p = bf16[8] multiply(s, x); r = pred[8] compare(p, x), direction=LT",
        "s p",
    ),
    "through other types": (
        S + "c = f32[8] convert(s); d = f32[8] subtract(c, w); r = s32[8] convert(d)",
        "s",
    ),
    "a cast": (XY + "c = bf16[8] convert(w); r = pred[8] compare(c, x), direction=GE", "c"),
    "a step": (S + "r = bf16[8] floor(s)", "s"),
    "finite or not": (S + "r = pred[8] is-finite(s)", "s"),
    "the reader of a step": (
        S + "f = bf16[8] floor(s); p = bf16[8] multiply(f, x); r = pred[8] compare(p, x),"
        " direction=EQ",
        "s p",
    ),
    "its bits": (S + "r = u16[8] bitcast-convert(s)", "s"),
}

#: The same of which nothing is marked.
UNMARKED = {
    "nothing is decided": S + "r = bf16[8] multiply(s, x)",
    "a decision by others": S
    + "p = pred[8] compare(x, y), direction=LT; r = bf16[8] select(p, s, x)",
    "loaded numbers": XY + "n = bf16[8] negate(x); m = bf16[8] maximum(n, y);"
    "r = pred[8] compare(m, x), direction=EQ",
    "numbers that fit": XY + "b = pred[8] compare(x, y), direction=LT; c = bf16[8] convert(b);"
    "r = pred[8] compare(c, x), direction=EQ",
    "whether it is a number": S + "r = pred[8] compare(s, s), direction=NE",
    "wider floats": XY + "c = f32[8] convert(x); d = f32[8] add(c, w);"
    "r = pred[8] compare(d, w), direction=LT",
}


@pytest.mark.parametrize(("body", "marked"), MARKED.values(), ids=MARKED)
def test_what_decides_is_rounded(body: str, marked: str) -> None:
    found = keep_roundings(graph_of(body))
    assert [op.name for op in found if annotations_of(op).rounded] == marked.split()


@pytest.mark.parametrize("body", UNMARKED.values(), ids=UNMARKED)
def test_nothing_is_rounded_in_vain(body: str) -> None:
    graph = graph_of(body)
    assert keep_roundings(graph) is graph


ARGMAX = """HloModule m
larger {
  a = bf16[] parameter(0); i = s32[] parameter(1); b = bf16[] parameter(2); j = s32[] parameter(3)
  p = pred[] compare(a, b), direction=GE
  v = bf16[] select(p, a, b); k = s32[] select(p, i, j)
  ROOT t = (bf16[], s32[]) tuple(v, k)
}
ENTRY main {
  x = bf16[8] parameter(0); n = s32[8] iota(), iota_dimension=0; s = bf16[8] add(x, x)
  l = bf16[] constant(-inf); o = s32[] constant(0)
  ROOT r = (bf16[], s32[]) reduce(s, n, l, o), dimensions={0}, to_apply=larger
}
"""


def test_what_argmax_is_of_is_rounded() -> None:
    entry = from_proto(text_to_proto(ARGMAX.replace("; ", "\n"))).entry
    found = keep_roundings(expand(region_of(entry), "default"))
    assert [op.name for op in found if annotations_of(op).rounded] == ["s"]


def test_what_a_loop_carries_is_rounded() -> None:
    """Where an iteration decides by it, and where only what is after the loop does."""

    def inside(x, y):
        return lax.fori_loop(0, 3, lambda _, x: jnp.where(x > 1, x * y, x), x)

    def behind(x, y):
        return lax.fori_loop(0, 3, lambda _, x: x * y, x) > 1

    def nowhere(x, y):
        return lax.fori_loop(0, 3, lambda _, x: x * y, x)

    x = jax.ShapeDtypeStruct((8,), jnp.bfloat16)
    for fun, marked in ((inside, 1), (behind, 1), (nowhere, 0)):
        flat = flatten(whole_of(fun, x, x))
        found = keep_roundings(flat.graph, flat.becomes)
        assert sum(bool(annotations_of(op).rounded) for op in found) == marked


# ---- what kernels compute ------------------------------------------------------------------------


def of_column(x, dtype):
    """The extremum passes memory."""
    return x.astype(dtype)[:, 4].min()


def of_all(x, dtype):
    return ((x.astype(dtype) * dtype(0.7)) * x[:1].astype(dtype)).max()


def of_rows(x, dtype):
    """The extremum stays in registers."""
    return (x.astype(dtype) * dtype(0.7)).max(1).sum()


def of_columns(x, dtype):
    """Threads of a column exchange its extremum in shared memory."""
    return (x.astype(dtype) * dtype(0.7)).min(0).sum()


def at_place(x, dtype):
    """What argmax picks."""
    y = x.astype(dtype) * dtype(0.7)
    return jnp.take_along_axis(y, jnp.argmax(y * y, axis=1)[:, None], 1).sum()


def of_differences(x, dtype):
    """Equal numbers have no difference."""
    y = x.astype(dtype) * dtype(0.7)
    return jnp.where(y - y.max() == 0, y, 0).sum()


def of_clipped(x, dtype):
    return jnp.clip(x.astype(dtype) * dtype(0.7), -0.35, 0.35).sum()


#: Functions, and the widest scope of the kernel of their gradients.
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[int, int], str]] = {
    "of a column": (of_column, (7, 8), "grid"),
    "of all": (of_all, (64, 33), "grid"),
    "of rows": (of_rows, (64, 33), "warp"),
    "of columns": (of_columns, (300, 5), "warp"),
    "at a place": (at_place, (64, 33), "block"),
    "of differences": (of_differences, (64, 33), "grid"),
    "of clipped": (of_clipped, (64, 33), "thread"),
}


def check(fun: Callable[..., Any], dtype: Any, shape: tuple[int, int], scope: str, **options: Any):
    """Gradients in f32 beside those of JAX op by op, each of which rounds: the same elements have
    one, also where several are the extremum."""
    grad = jax.grad(lambda x: fun(x, dtype).astype(jnp.float32))
    x = draw.standard_normal(shape, np.float32)
    ours = compiled(grad, x, backend="emulate", **options)
    assert scope in [dict(kernel.facts)["scope"] for kernel in ours.kernels]
    for given in (x, np.round(2 * x) / 2):
        with jax.disable_jit():
            expected = np.asarray(grad(given))
        got = np.asarray(ours(given))
        assert expected.any()
        np.testing.assert_array_equal(got != 0, expected != 0)
        np.testing.assert_allclose(got, expected, rtol=float(jnp.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("fun", "shape", "scope"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_gradients_go_where_the_extremum_is(
    fun: Callable[..., Any], shape: tuple[int, int], scope: str, dtype: Any
) -> None:
    check(fun, dtype, shape, scope)


@pytest.mark.parametrize("numerics", ["strict", "fast"])
def test_gradients_go_there_under_all_numerics(numerics: str) -> None:
    check(of_column, jnp.float16, (7, 8), "grid", numerics=numerics)


def test_an_extremum_is_found_again_by_another_program() -> None:
    def largest(x, y):
        product = x * y
        return product, (product * y).max()

    def where(product, y, most):
        return product * y == most

    x, y = (draw.standard_normal((40, 50), np.float32).astype(jnp.bfloat16) for _ in "xy")
    product, most = compiled(largest, x, y, backend="emulate")(x, y)
    assert compiled(where, product, y, most, backend="emulate")(product, y, most).any()


@pytest.mark.parametrize("dtype", TYPES)
def test_what_a_body_of_the_user_compares_is_rounded(dtype: Any) -> None:
    """Of the sums of a row that are formed on the way, the largest."""

    def joined(a, b):
        total = a[0] + b[0]
        return total, lax.max(lax.max(a[1], b[1]), lax.select(total > a[1], total, a[1]))

    def fun(x):
        y = x * dtype(0.7)
        return lax.reduce((y, y), (dtype(0), dtype(-jnp.inf)), joined, (1,))

    x = draw.standard_normal((20, 6), np.float32).astype(dtype)
    ours = compiled(fun, x, backend="emulate")
    assert ours.kernels
    with jax.disable_jit():
        expected = fun(x)
    for got, one in zip(ours(x), expected, strict=True):
        assert_same_bits(np.asarray(got), np.asarray(one))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TYPES)
def test_loops_compare_what_they_carry(dtype: Any, form: str) -> None:
    """In registers and in memory: signs, indices and counts that rounding decides."""

    def fun(x, y):
        def step(state, _):
            state = state * dtype(0.7) + x * y
            most = state.max(1, keepdims=True)
            state = jnp.where(state == most, -state, state)
            return state, (state - most >= 0).sum(1)

        return lax.scan(step, y, None, length=4)

    x, y = (draw.standard_normal((24, 6), np.float32).astype(dtype) for _ in "xy")
    options = fs.Options(backend="emulate", fallback="error")
    with taken(form):
        ours = fs.jit(fun, options=options).lower(x, y).compile()
    assert [kernel.template.split()[:2] for kernel in ours.kernels] == [["loop", form]]
    with jax.disable_jit():
        expected = fun(x, y)
    for got, one in zip(jax.tree.leaves(ours(x, y)), jax.tree.leaves(expected), strict=True):
        assert_same_bits(np.asarray(got), np.asarray(one))
