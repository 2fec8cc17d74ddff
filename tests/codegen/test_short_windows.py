"""Reductions over short windows: which become joins of shifted slices, and that values stay."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jax import lax

from fusionstitch.codegen.rewrite.expansions import expand
from fusionstitch.codegen.rewrite.short_windows import MOST
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph
from tests.codegen.regions import whole_of

REDUCERS: dict[str, tuple[Any, float]] = {
    "add": (lax.add, 0.0),
    "multiply": (lax.mul, 1.0),
    "maximum": (lax.max, -np.inf),
    "minimum": (lax.min, np.inf),
}
X = np.random.default_rng(3).standard_normal((2, 12, 15)).astype(np.float32)


def windows(size: tuple[int, ...], reducer: str = "add", dtype: Any = np.float32) -> Graph:
    join, start = REDUCERS[reducer]

    def fun(x: Any) -> Any:
        return lax.reduce_window(x, dtype(start), join, size, (1, 1, 1), "SAME")

    return whole_of(fun, jnp.asarray(X, dtype))


def opcodes(graph: Graph) -> set[str]:
    return {op.opcode for op in graph.ops}


@pytest.mark.parametrize("size", [(1, 3, 3), (1, 1, 7), (1, 7, 7), (1, 5, 2)])
def test_short_windows_are_slices(size: tuple[int, ...]) -> None:
    assert not opcodes(expand(windows(size), "default")) & {"reduce", "windows", "reduce-window"}


@pytest.mark.parametrize(("size", "slices"), [((1, 3, 3), 9), ((1, 7, 7), 14), ((1, 5, 2), 7)])
def test_windows_of_several_dims_are_one_after_the_other(
    size: tuple[int, ...], slices: int
) -> None:
    graph = expand(windows(size), "default")
    assert sum(op.opcode == "slice" for op in graph.ops) == slices


def test_long_windows_stay_reductions() -> None:
    assert "reduce" in opcodes(expand(windows((1, 1, MOST + 1)), "default"))


def test_strict_numerics_join_in_the_order_of_the_window() -> None:
    assert "reduce" in opcodes(expand(windows((1, 3, 3)), "strict"))


def test_sums_of_16_bits_stay_wide() -> None:
    assert "reduce" in opcodes(expand(windows((1, 3, 3), dtype=jnp.bfloat16), "default"))
    largest = expand(windows((1, 3, 3), "maximum", jnp.bfloat16), "default")
    assert "reduce" not in opcodes(largest)


@given(
    reducer=st.sampled_from(sorted(REDUCERS)),
    size=st.tuples(st.just(1), st.integers(1, 5), st.integers(1, 5)),
    stride=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.just(1), st.integers(1, 2), st.integers(1, 2)),
    pads=st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
def test_values_stay(
    reducer: str,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    pads: list[int],
) -> None:
    join, start = REDUCERS[reducer]
    edges = [(0, 0), (pads[0], pads[1]), (pads[2], pads[3])]

    def fun(x: Any) -> Any:
        return lax.reduce_window(
            x, np.float32(start), join, size, stride, edges, window_dilation=dilation
        )

    graph = whole_of(fun, X)
    made = expand(graph, "default")
    assume("windows" not in opcodes(made))  # those of one element
    [expected], [found] = (evaluate(one, [X]) for one in (graph, made))
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("size", [(1, 3, 3), (1, 1, 7), (1, 7, 7)])
def test_what_windows_start_from_is_joined_last(reducer: str, size: tuple[int, ...]) -> None:
    """Each window starts from it once, whatever it covers of the padding."""
    join, _ = REDUCERS[reducer]

    def fun(x: Any) -> Any:
        return lax.reduce_window(x, np.float32(0.5), join, size, (1, 1, 1), "SAME")

    graph = whole_of(fun, X)
    found = expand(graph, "default")
    assert not opcodes(found) & {"reduce", "windows", "reduce-window"}
    [got], [wanted] = (evaluate(one, [X], float64=True) for one in (found, graph))
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    assert "reduce" in opcodes(expand(graph, "strict"))


def test_sums_of_16_bits_start_where_they_are_told_to() -> None:
    """They are rounded once, after the sum."""

    def fun(x: Any) -> Any:
        return lax.reduce_window(
            x, jnp.bfloat16.dtype.type(0.5), lax.add, (1, 1, 3), (1, 1, 1), "SAME"
        )

    graph = whole_of(fun, jnp.asarray(X, jnp.bfloat16))
    assert "reduce" in opcodes(expand(graph, "default"))
