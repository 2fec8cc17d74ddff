"""Prefix scans: which values are found to be some, and what becomes of them.

What the kernels compute is checked with the other cases (tests/codegen/scan_cases.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from fusionstitch.codegen.rewrite.scan_facts import LINEAR
from fusionstitch.codegen.rewrite.scan_forms import Moved, Scan, find_scans
from fusionstitch.codegen.rewrite.sunk import scan_in_pieces
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph
from tests.codegen.regions import whole_of

draw = np.random.default_rng(11)
X, A = draw.standard_normal((2, 5, 48)).astype(np.float32)


def linear(p: Any, q: Any) -> Any:
    return p[0] * q[0], q[0] * p[1] + q[1]


def found(fun: Callable[..., Any], *args: Any) -> Any:
    """The scan that the result of a function is, or the last of them."""
    graph = whole_of(fun, *args)
    scans = find_scans(graph)
    return list(scans.values())[-1]


def blocks(x: Any) -> Any:
    """As XLA makes a running sum: blocks, whose totals are scanned."""
    inner = jnp.cumsum(x.reshape(5, 6, 8), 2)
    before = jnp.pad(jnp.cumsum(inner[..., -1], 1), ((0, 0), (1, 0)))[:, :-1]
    return (inner + before[..., None]).reshape(5, 48)


def by_shifts(x: Any) -> Any:
    for k in (1, 2, 4, 8, 16, 32):
        x = x + jnp.pad(x, ((0, 0), (k, 0)))[:, :-k]
    return x


def exclusive(x: Any) -> Any:
    return jnp.cumprod(jnp.concatenate([jnp.ones_like(x[:, :1]), x], 1), 1)[:, :-1]


def scan_linear(a: Any, x: Any, **how: Any) -> Any:
    return lax.associative_scan(linear, (a, x), axis=1, **how)[1]


@pytest.mark.parametrize(
    ("fun", "joins"),
    [
        (lambda x, a: jnp.cumsum(x, 1), "add"),
        (lambda x, a: lax.cummax(x, axis=1), "maximum"),
        (lambda x, a: lax.associative_scan(jnp.multiply, x, axis=1), "multiply"),
        (lambda x, a: blocks(x), "add"),
        (lambda x, a: by_shifts(x), "add"),
        (lambda x, a: scan_linear(a, x), LINEAR),
        (lambda x, a: scan_linear(jnp.full(x.shape, 0.9, x.dtype), x), LINEAR),
        (lambda x, a: scan_linear(jnp.broadcast_to(a[:, :1], x.shape), x), LINEAR),
    ],
)
def test_a_scan_is_found_in_each_form(fun: Callable[..., Any], joins: str) -> None:
    scan = found(fun, X, A)
    assert (scan.joins, scan.size, scan.start) == (joins, 48, 0)
    assert (scan.exclusive, scan.reverse, scan.mirrored) == (False, False, False)


def test_what_is_joined_before_an_element_is_a_scan_without_it() -> None:
    assert found(exclusive, X).exclusive


def blocks_of_odd_rows(x: Any) -> Any:
    """As XLA makes a running sum of a row that is no whole number of blocks, nor are their
    totals."""
    n = x.shape[1]
    if n <= 4:
        return jnp.cumsum(x, 1)
    count = -(-n // 4)
    inner = jnp.cumsum(jnp.pad(x, ((0, 0), (0, 4 * count - n))).reshape(-1, count, 4), 2)
    before = jnp.pad(blocks_of_odd_rows(inner[..., -1]), ((0, 0), (1, 0)))[:, :-1]
    return (inner + before[..., None]).reshape(-1, 4 * count)[:, :n]


@pytest.mark.parametrize("size", [23, 37, 48])
def test_rows_need_not_be_whole_blocks(size: int) -> None:
    scan = found(blocks_of_odd_rows, X[:, :size])
    assert isinstance(scan, Scan)
    assert (scan.source.opcode, scan.size) == ("parameter", size)


def moving_sums(x: Any) -> Any:
    """Sums of the last eight elements, as differences of a running sum."""
    y = blocks_of_odd_rows(jnp.pad(x, ((0, 0), (8, 0))))
    return y[:, 8:] - y[:, :-8]


def test_a_scan_that_is_read_later_is_a_part_of_it() -> None:
    graph = whole_of(moving_sums, X)
    now, before = graph.root.operands[0].operands
    scans = find_scans(graph)
    assert isinstance(scans[now], Scan)
    moved = scans[before]
    assert isinstance(moved, Moved)
    assert (moved.scan, moved.dim, moved.by, moved.nothing) == (now, 1, 8, 0.0)
    [got], expected = evaluate(scan_in_pieces(graph), [X], float64=True), moving_sums(X)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_a_reversed_scan_is_one_of_the_array_as_it_is() -> None:
    assert found(lambda x: lax.cumsum(x, axis=1, reverse=True), X).reverse
    assert found(lambda a, x: scan_linear(a, x, reverse=True), A, X).reverse


def test_the_factor_of_a_recurrence_is_known_by_what_it_is() -> None:
    number = found(lambda x: scan_linear(jnp.full(x.shape, 0.5, x.dtype), x), X).factor
    assert number is not None
    assert number.number == 0.5
    row = found(lambda a, x: scan_linear(a, x), A, X).factor
    assert row is not None
    assert row.op is not None
    assert (row.op.opcode, row.sign, row.offset) == ("parameter", 1, 0)


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 9), (1, 1), "SAME"),  # a moving sum
        lambda x: x[:, 1:] + x[:, :-1],  # neighbours alone
        lambda x: by_shifts(x)[:, ::2] + by_shifts(x)[:, 1::2],  # sums of sums overlap
        lambda x: jnp.pad(x[:, :-1], ((0, 0), (1, 0)), constant_values=2.0) + x,  # starts from 2
        lambda x: sum(jnp.pad(x * k, ((0, 0), (k, 0)))[:, :48] for k in range(1, 9)),  # others
    ],
)
def test_what_looks_like_a_scan_is_none(fun: Callable[..., Any]) -> None:
    graph = whole_of(fun, X)
    assert all(
        scan.size < 48 or op not in graph.root.operands for op, scan in find_scans(graph).items()
    )


def test_a_factor_that_is_no_power_makes_no_recurrence() -> None:
    def wrong(x: Any) -> Any:
        y = x + 0.5 * jnp.pad(x, ((0, 0), (1, 0)))[:, :-1]
        y = y + 0.5 * jnp.pad(y, ((0, 0), (2, 0)))[:, :-2]  # 0.25 would be right
        return y + 0.0625 * jnp.pad(y, ((0, 0), (4, 0)))[:, :-4]

    assert not find_scans(whole_of(wrong, X[:, :8]))


def test_gaps_that_hold_something_are_no_gaps() -> None:
    def filled(x: Any) -> Any:
        y = jnp.cumsum(x, 1)
        even, odd = y[:, ::2], y[:, 1::2]
        one = lax.pad(even, np.float32(1), [(0, 0, 0), (0, 1, 1)])
        return one + lax.pad(odd, np.float32(0), [(0, 0, 0), (1, 0, 1)])

    graph = whole_of(filled, X)
    assert not any(op in graph.root.operands for op in find_scans(graph))


def same(graph: Graph, args: list[np.ndarray]) -> None:
    made = scan_in_pieces(graph)
    assert made is not graph
    for expected, value in zip(evaluate(graph, args), evaluate(made, args), strict=True):
        if expected.dtype == np.uint8:  # bits of floats: of the last place they say nothing
            expected, value = expected.view(np.float32), value.view(np.float32)
        np.testing.assert_allclose(value, expected, 2e-5, 2e-5 * (np.abs(expected).max() + 1))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [20, 200])
def test_the_factor_of_what_comes_first_counts_for_nothing(size: int, reverse: bool) -> None:
    numbers = np.random.default_rng(size)
    a, x = numbers.uniform(0.5, 1, (2, 3, size)).astype(np.float32)
    a[:, -1 if reverse else 0] = np.inf
    graph = whole_of(lambda a, x: scan_linear(a, x, reverse=reverse), a, x)
    [found] = evaluate(scan_in_pieces(graph), [a, x])
    assert np.isfinite(found).all()
    same(graph, [a, x])


SCANS: dict[str, Callable[..., Any]] = {
    "sum": lambda a, x, axis, reverse: lax.cumsum(x, axis=axis, reverse=reverse),
    "maximum": lambda a, x, axis, reverse: lax.cummax(x, axis=axis, reverse=reverse),
    "product": lambda a, x, axis, reverse: lax.associative_scan(
        jnp.multiply, 1 + x / 8, axis=axis, reverse=reverse
    ),
    "linear": lambda a, x, axis, reverse: lax.associative_scan(
        linear, (jax.nn.sigmoid(a), x), axis=axis, reverse=reverse
    )[1],
}


@given(
    kind=st.sampled_from(sorted(SCANS)),
    size=st.integers(8, 300),
    axis=st.integers(0, 2),
    reverse=st.booleans(),
    then=st.sampled_from(
        ["nothing", "elementwise", "sum along", "sum across", "part", "dims of one", "bits"]
    ),
)
def test_pieces_compute_what_the_scan_does(
    kind: str, size: int, axis: int, reverse: bool, then: str
) -> None:
    dims = [2, 3, 2]
    dims[axis] = size
    numbers = np.random.default_rng(size)
    a, x = numbers.standard_normal((2, *dims)).astype(np.float32)

    def fun(a: Any, x: Any) -> Any:
        y = SCANS[kind](a, x, axis, reverse)
        match then:
            case "elementwise":
                return jnp.tanh(y) * x, y
            case "sum along":
                return (y * x).sum(axis)
            case "sum across":
                return y.sum((axis + 1) % 3)
            case "part":
                return lax.slice_in_dim(y, 1, size - 1, axis=axis) * 2
            case "dims of one":
                return jnp.tanh(y[None, :, :, None]), y
            case "bits":
                return lax.bitcast_convert_type(y, jnp.uint8), y
        return y

    graph = whole_of(fun, a, x)
    same(graph, [a, x][-len(graph.parameters) :])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_sums_of_16_bits_are_rounded_once(dtype: Any) -> None:
    """Where something is decided by them, each would be rounded after each element otherwise."""

    def kinds(fun: Callable[..., Any], joins: str) -> set[str]:
        graph = scan_in_pieces(whole_of(fun, X.astype(dtype)))
        assert (
            graph.root.operands[0].dtype == {"bfloat16": "bf16", "float16": "f16"}[dtype.__name__]
        )
        return {op.dtype for op in graph if op.opcode == joins}

    assert kinds(lambda x: jnp.cumsum(x, 1), "add") == {"f32"}
    assert kinds(lambda x: jnp.cumprod(x, 1), "multiply") == {"f32"}
    assert kinds(lambda x: lax.cummax(x, axis=1), "maximum") != {"f32"}
