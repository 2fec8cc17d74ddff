"""Factors of rows that dots of streamed chains apply after their sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from fusionstitch.codegen.dots.chains import find_streams
from fusionstitch.codegen.dots.late_factors import MOST_FACTORS, without_factors
from fusionstitch.hlo.graph import Graph
from tests.codegen.regions import SMALL, Case, build, whole_of

Array = Any
F32 = np.float32
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
HEADS, QUERIES, KEYS, DEPTH = 3, 37, 150, 16


def _softmax(s: Array) -> Array:
    e = jnp.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _scores(q: Array, k: Array) -> Array:
    return jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=F32)


def _weighed(p: Array, v: Array) -> Array:
    return jnp.einsum("hqk,hkd->hqd", p, v, preferred_element_type=F32)


def _operands() -> list[np.ndarray]:
    make = np.random.default_rng(0)
    return [make.standard_normal((HEADS, n, DEPTH)).astype(F32) for n in (QUERIES, KEYS, KEYS)]


def _mask(seed: int) -> np.ndarray:
    """One that leaves nothing of a row."""
    mask = np.random.default_rng(seed).random((HEADS, QUERIES, KEYS)) > 0.4
    mask[0, 3 + seed] = False
    return mask


def _without(graph: Graph) -> Graph:
    return without_factors(graph, find_streams(graph, SMALL))


def _run(fun: Callable[..., Array], *args: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a streamed kernel computes, and XLA."""
    case = Case(whole_of(fun, *args), args, SMALL)
    built = build([case])
    assert "stream" in built.kernels[case].template
    [got] = built.run(case)
    return got, np.asarray(jax.jit(fun)(*args))


# ---- numbers that are none -----------------------------------------------------------------------


def test_factors_outside_a_mask_reach_rows_that_it_hides(host_compiler: str) -> None:
    """0 times what is no number is none."""
    q, k, v = _operands()
    gate = np.ones((HEADS, 1, DEPTH), F32)
    gate[0, 0, 5] = np.nan

    def fun(q: Array, k: Array, v: Array, mask: Array, gate: Array) -> Array:
        return _weighed(jnp.where(mask, _softmax(_scores(q, k)), 0), v * jax.nn.sigmoid(gate))

    got, wanted = _run(fun, q, k, v, _mask(0), gate)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    assert np.isnan(got[0, 3, 5])
    assert not got[0, 3, :5].any()


def _outside(before: Array, after: Array) -> Array:
    """Masks after the softmax that hide all that the one before it hides."""
    return before & after


def _apart(before: Array, after: Array) -> Array:
    return after


@pytest.mark.parametrize(("shows", "late"), [(_outside, True), (_apart, False)])
def test_rows_without_elements_are_no_numbers_where_they_show(
    shows: Callable[[Array, Array], Array], late: bool, host_compiler: str
) -> None:
    """As dropped weights of a row that a mask leaves nothing of."""

    def fun(q: Array, k: Array, v: Array, before: Array, after: Array) -> Array:
        p = _softmax(jnp.where(before, _scores(q, k), -jnp.inf))
        return _weighed(jnp.where(shows(before, after), p, 0), v)

    args = (*_operands(), _mask(0), _mask(1))
    graph = whole_of(fun, *args)
    assert (_without(graph) is not graph) == late
    got, wanted = _run(fun, *args)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert np.isnan(got[0, 3]).all() == (not late)
    assert not got[0, 4].any()


def test_products_of_weights_stay_in_range(host_compiler: str) -> None:
    """Without the divisor, 1e20 times 1e20 would be infinite."""
    q, k, v = _operands()
    gate = np.full((HEADS, QUERIES, 1), 23, F32)
    large = np.full((HEADS, 1, KEYS), 1e20, F32)

    def fun(q: Array, k: Array, v: Array, gate: Array, large: Array) -> Array:
        return _weighed(_scores(q, k) / (1 + jnp.exp(gate)) * large, jnp.tanh(v))

    args = q * F32(1e20), k, v, gate, large
    case = Case(whole_of(fun, *args), args, SMALL)
    built = build([case])
    assert "stream" in built.kernels[case].template
    built.check(case)


# ---- floats of one byte --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_weights_are_divided_before_they_become_one_byte(dtype: Any, host_compiler: str) -> None:
    """Which ones become 0 is up to the divisor."""
    q, k, v = (x.astype(dtype) for x in _operands())

    def fun(q: Array, k: Array, v: Array) -> Array:
        return _weighed(_softmax(_scores(q, k) * F32(0.05)).astype(dtype), v)

    args = q, k, v
    case = Case(whole_of(fun, *args), args, SMALL)
    built = build([case])
    assert "stream" in built.kernels[case].template
    built.check(case)


# ---- what takes long -----------------------------------------------------------------------------


def test_factors_of_powers_are_few() -> None:
    """The weight to the power of 2^20 has a million of them."""

    def fun(q: Array, k: Array, v: Array) -> Array:
        p = _softmax(_scores(q, k))
        for _ in range(20):
            p = p * p
        return _weighed(p, v)

    found = _without(whole_of(fun, *_operands()))
    assert sum(op.opcode == "divide" for op in found.ops) <= 1 + MOST_FACTORS


def test_long_products_are_not_followed_to_their_end() -> None:
    def fun(q: Array, k: Array, v: Array, mask: Array) -> Array:
        p = _softmax(_scores(q, k))
        for n in range(1100):
            p = p * jnp.tanh(mask * F32(n + 1))
        return _weighed(p, v)

    graph = whole_of(fun, *_operands(), _mask(0))
    assert _without(graph) is graph
