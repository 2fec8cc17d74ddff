"""Decisions by floats of 16 bits that are only read as wider ones: these keep all their bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch import accuracy
from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.rewrite.roundings import keep_roundings
from fusionstitch.codegen.rewrite.widened import widen
from tests.codegen.test_strength import graph_of
from tests.numbers.same import compiled

# ---- what is widened -----------------------------------------------------------------------------

XY = "x = bf16[8] parameter(0); y = bf16[8] parameter(1); w = f32[8] parameter(2);"
S = XY + "s = bf16[8] add(x, y); c = f32[8] convert(s);"
LAST = "r = pred[8] compare(c, w), direction=LT"

#: Statements whose result is r, the ops that give f32 then, and those that are rounded still.
WIDENED = {
    "a sum": (S + LAST, "s", ""),
    "what it is made of": (
        XY + "p = bf16[8] multiply(x, y); s = bf16[8] add(p, x); c = f32[8] convert(s);" + LAST,
        "p s",
        "",
    ),
    "moved and chosen": (
        XY + "s = bf16[8] add(x, y); n = bf16[8] negate(s); m = bf16[8] maximum(n, x);"
        "v = bf16[8] reverse(m), dimensions={0}; c = f32[8] convert(v);" + LAST,
        "s n m v",
        "",
    ),
    "as f64": (
        XY + "s = bf16[8] add(x, y); c = f64[8] convert(s); r = s32[8] convert(c)",
        "s",
        "",
    ),
    "two readers": (S + "d = f64[8] convert(s); e = f64[8] convert(c);"
    "r = pred[8] compare(d, e), direction=EQ", "s", ""),
    "a dot, not its operands": (
        "x = bf16[4,8] parameter(0); y = bf16[8] parameter(1); u = bf16[4,8] tanh(x);"
        "s = bf16[4] dot(u, y), lhs_contracting_dims={1}, rhs_contracting_dims={0};"
        "c = f32[4] convert(s); r = pred[4] is-finite(c)",
        "s",
        "u",
    ),
}  # fmt: skip

#: The same of which all stay as they are.
AS_THEY_ARE = {
    "nothing is decided": S + "r = f32[8] multiply(c, w)",
    "read as it is": S + "n = bf16[8] negate(s); d = f32[8] convert(n);"
    "e = f32[8] add(c, d); f = pred[8] compare(s, x), direction=LT; g = f32[8] select(f, e, w);"
    "r = pred[8] compare(g, w), direction=LT",
    "by its bits": XY + "s = bf16[8] add(x, y); b = u16[8] bitcast-convert(s);"
    "c = f32[8] convert(s); d = s32[8] convert(c); e = s32[8] convert(b); r = s32[8] add(d, e)",
    "loaded numbers": XY + "n = bf16[8] negate(x); c = f32[8] convert(n);" + LAST,
    "a rounding that is asked for": XY + "s = bf16[8] convert(w); c = f32[8] convert(s);" + LAST,
    "once an integer": "i = s32[8] parameter(0); w = f32[8] parameter(1);"
    "s = bf16[8] convert(i); c = f32[8] convert(s);" + LAST,
    "an extremum from elsewhere": "x = bf16[4,8] parameter(0); m = f32[4] parameter(1);"
    "s = bf16[4,8] add(x, x); c = f32[4,8] convert(s); b = f32[4,8] broadcast(m), dimensions={0};"
    "r = pred[4,8] compare(c, b), direction=EQ",
}


@pytest.mark.parametrize(("body", "wide", "rounded"), WIDENED.values(), ids=WIDENED)
def test_what_decides_as_a_wider_float_is_one(body: str, wide: str, rounded: str) -> None:
    graph = graph_of(body)
    found = widen(graph)
    before = {op.name: op.dtype for op in graph}
    changed = [op.name for op in found if before.get(op.name, op.dtype) != op.dtype]
    assert changed == wide.split()
    assert found is not graph
    assert [
        op.name for op in keep_roundings(found) if annotations_of(op).rounded
    ] == rounded.split()


@pytest.mark.parametrize("body", AS_THEY_ARE.values(), ids=AS_THEY_ARE)
def test_others_stay_as_they_are(body: str) -> None:
    graph = graph_of(body)
    assert widen(graph) is graph


# ---- what kernels compute ------------------------------------------------------------------------


def wide(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float32)


def logsumexp(q, k):
    return jax.nn.logsumexp(wide(q @ k.T) / 0.1, axis=1)


def where(q, k):
    s = wide(q @ k.T)
    return jnp.where(s > 0.3, 2 * s, s - 1).sum(1)


def masked(q, k):
    s = wide(q @ k.T)
    return jax.nn.softmax(jnp.where(s > 0, s, -jnp.inf))


def floor(q, k):
    return jnp.floor(wide(q @ k.T) * 8).sum(1)


def steps(q, k):
    """Of what is no product."""
    s = jnp.tanh(q) * q + q
    return (wide(s).sum(1) * 8).astype(jnp.int32), jnp.round(wide(s[:, ::-1]) * 64).sum(1)


def to_sort(q, k):
    s = wide(q @ k.T)
    return jnp.sort(jnp.where(s > 0.3, s, s - 100), 1)


def clipped(q, k):
    return jax.nn.relu(jnp.clip(wide(q @ k.T), -4, 4) - 0.5).sum(1)


def largest(q, k):
    """A value is at the index of its column's maximum, and the maximum has one index."""
    s = wide(q @ k.T)
    most = s.max(0)
    return (s == most).sum(0), jnp.take_along_axis(s, s.argmax(0)[None], 0)[0] - most


def gradient(q, k):
    return jax.value_and_grad(lambda q: (logsumexp(q, k) ** 2).mean())(q)


FUNCTIONS = [logsumexp, where, masked, floor, steps, to_sort, clipped, largest, gradient]


@pytest.mark.parametrize("fun", FUNCTIONS)
def test_results_are_as_near_to_those_in_float64_as_those_of_xla(fun: Callable[..., Any]) -> None:
    draw = np.random.default_rng(3)
    q, k = (draw.standard_normal((n, 32), np.float32).astype(jnp.bfloat16) for n in (40, 48))
    ours = compiled(fun, q, k, backend="emulate")
    assert ours.kernels
    results = (run(q, k) for run in (ours, jax.jit(fun)))
    got, theirs = ([accuracy.host(x) for x in jax.tree.leaves(result)] for result in results)
    expected = accuracy.rerun(fun, (q, k), {})
    assert expected is not None
    for mine, their, right in zip(got, theirs, expected, strict=True):
        allowed = accuracy.limit(mine.dtype, accuracy.relative_error(their, right))
        assert accuracy.relative_error(mine, right) <= allowed
