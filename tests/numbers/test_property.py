"""Grown reductions of special values, against StableHLO's own interpreter, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from tests.numbers.reference import interpreted
from tests.numbers.same import assert_same_bits, compiled

#: Programs of several reductions each: a tenth of the examples of other properties.
RUNS = settings(max_examples=max(1, settings().max_examples // 10))
#: Sums of these are exact as long as no infinity and no NaN is among them.
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5)
SPECIAL = (*NUMBERS, np.inf, -np.inf, np.nan)
Fun = Callable[[Any], Any]

#: Comparisons that decide whether the first of two records (value, place) is kept.
KEPT: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: a[0] > b[0],
    lambda a, b: a[0] >= b[0],
    lambda a, b: (a[0] < b[0]) | (a[0] != a[0]),
    lambda a, b: (a[0] > b[0]) | (a[0] != a[0]) | ((a[0] == b[0]) & (a[1] < b[1])),
    lambda a, b: ~((b[0] >= a[0]) | (b[0] != b[0])),
    lambda a, b: (a[0] == b[0]) | (b[0] != b[0]),
    lambda a, b: a[1] > b[1],
)
#: Bodies of one value, with an init.
BODIES: tuple[tuple[Callable[[Any, Any], Any], float], ...] = (
    (jnp.maximum, -np.inf),
    (jnp.minimum, 1.0),
    (lambda a, b: jnp.maximum(jnp.abs(a), jnp.abs(b)), 0.0),
    (lambda a, b: jnp.where(a > b, a, b), -np.inf),
    (lambda a, b: jnp.where(b <= a, b, a), np.inf),
    (lambda a, b: jnp.where(a != a, b, a), np.nan),
    (lambda a, b: jnp.where(b == b, b, a), 0.0),
)
#: The same for finite numbers.
SUMS: tuple[tuple[Callable[[Any, Any], Any], float], ...] = (
    (lax.add, 0.0),
    (lax.add, 3.0),
    (lambda a, b: b - a, 1.0),
)


@st.composite
def reductions(draw: st.DrawFn, rank: int, finite: bool) -> Fun:
    axis = draw(st.integers(0, rank - 1))
    kind = draw(st.sampled_from(("argmax", "argmin", "pair", "value", "value", "several")))
    if kind in ("argmax", "argmin"):
        return lambda x: getattr(jnp, kind)(x * 2, axis)
    if kind == "pair":
        kept, init = draw(st.sampled_from(KEPT)), np.int32(draw(st.sampled_from((0, 2**31 - 1))))

        def join(a: Any, b: Any) -> Any:
            first = kept(a, b)
            return tuple(jnp.where(first, p, q) for p, q in zip(a, b, strict=True))

        def pair(x: Any) -> Any:
            places = lax.broadcasted_iota(jnp.int32, x.shape, axis)
            value, place = lax.reduce((x * 2, places), (-np.float32(np.inf), init), join, (axis,))
            return jnp.abs(value), place  # a tie may be won by a zero of either sign

        return pair
    body, start = draw(st.sampled_from((*BODIES, *SUMS) if finite else BODIES))
    axes = (axis,) if kind == "value" else tuple(range(rank))
    return lambda x: lax.reduce(x * 2, np.float32(start), body, axes)


@st.composite
def pools(draw: st.DrawFn, dims: tuple[int, ...]) -> Fun:
    """Windows of any stride, padding and dilation, from neutral inits: those are what StableHLO's
    interpreter pads with, and XLA does not."""
    body, start = draw(st.sampled_from(((jnp.maximum, -np.inf), (jnp.minimum, np.inf))))

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in dims)

    size, strides, base, inside = (each(1, most) for most in (3, 3, 2, 2))
    padding = tuple(zip(each(2, 4), each(2, 4), strict=True))
    return lambda x: lax.reduce_window(
        x * 2, np.float32(start), body, size, strides, padding, base, inside
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Fun], np.ndarray]:
    dims = tuple(draw(st.lists(st.sampled_from((1, 2, 7, 33, 70, 200)), min_size=1, max_size=3)))
    while np.prod(dims) > 20_000:
        dims = dims[1:]
    finite = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    x = rng.choice(np.array(NUMBERS if finite else SPECIAL, np.float32), dims)
    one = st.one_of(reductions(len(dims), finite), reductions(len(dims), finite), pools(dims))
    return draw(st.lists(one, min_size=3, max_size=6)), x


@RUNS
@given(cases())
def test_grown_reductions(case: tuple[list[Fun], np.ndarray]) -> None:
    funs, x = case

    def program(x: Any) -> Any:
        return [fun(x) for fun in funs]

    run = compiled(program, x, backend="emulate")
    results = zip(jax.tree.leaves(run(x)), interpreted(program, x), strict=True)
    for got, want in results:
        assert_same_bits(np.asarray(got), want)
