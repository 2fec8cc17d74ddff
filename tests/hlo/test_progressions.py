"""Large literals of integers that follow from their positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fusionstitch as fs
from fusionstitch.hlo.detached import LEAST, detach
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.simplify import simplify


def imported(table: np.ndarray) -> Graph:
    """A program that adds something to a table, simplified."""
    with jax.enable_x64(table.dtype.itemsize == 8):
        x = jnp.zeros(table.shape, table.dtype)
        module = jax.jit(lambda x: x + table).lower(x).compiler_ir("hlo")
    return simplify(from_proto(module.as_serialized_hlo_module_proto()).entry)


def opaque(graph: Graph) -> bool:
    return any(op.opcode == "opaque-constant" for op in graph)


STEPS = np.arange(300)
ROWS = STEPS[:9, None] + STEPS[:3]
TABLES: dict[str, np.ndarray] = {
    "line": 4 * STEPS + 7,
    "frames": 5 * STEPS[:60, None] + STEPS[:16],
    "repeats": STEPS // 3,
    "cut": (STEPS[:299] // 4)[:, None],
    "columns": np.broadcast_to(STEPS, (7, 300)),
    "backwards": STEPS[::-1],
    "patches": ROWS[:, None, :, None] * 40 + ROWS[None, :, None],
}


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int16", "int64"])
@pytest.mark.parametrize("name", TABLES)
def test_progressions_are_computed(name: str, dtype: str) -> None:
    table = np.asarray(TABLES[name]).astype(dtype)
    graph = imported(table)
    assert not opaque(graph)
    [found] = evaluate(graph, [np.zeros(table.shape, table.dtype)])
    assert found.dtype == table.dtype
    np.testing.assert_array_equal(found, table)


@pytest.mark.parametrize(
    "table",
    [
        STEPS**2,
        np.roll(STEPS, 5),
        np.where(STEPS == 299, 7, STEPS),
        np.random.default_rng(0).permutation(300),
        STEPS.astype(np.float32),
        (4 * STEPS).astype(np.uint64),
    ],
    ids=["squares", "rolled", "but one", "permutation", "floats", "u64"],
)
def test_other_literals_are_not_read(table: np.ndarray) -> None:
    table = table.astype(np.int32) if table.dtype == np.int64 else table
    assert opaque(imported(table))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(-40, 40)), min_size=1, max_size=4),
    st.integers(0, 5),
)
def test_whatever_is_known_of_a_literal_is_what_it_holds(
    digits: list[tuple[int, int]], left_out: int
) -> None:
    table = np.zeros((), np.int32)
    for size, step in digits:
        table = table[..., None] + step * np.arange(size, dtype=np.int32)
    table = np.concatenate([table.ravel()] * 40)[left_out:]
    graph = imported(table)
    if not opaque(graph):
        [found] = evaluate(graph, [np.zeros_like(table)])
        np.testing.assert_array_equal(found, table)


def test_they_are_not_taken_out_of_a_module() -> None:
    table = np.arange(LEAST, dtype=np.int32)
    module = jax.jit(lambda x: x + table).lower(table).compiler_ir("hlo")
    data = module.as_serialized_hlo_module_proto()
    assert detach(data) == (data, ())


def gathered(x: Any) -> Any:
    return jnp.tanh(x[:, TABLES["frames"]] * 2)


def gradient(x: Any) -> Any:
    return jax.grad(lambda x: (gathered(x) ** 2).sum())(x)


def in_a_loop(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, x: x + gathered(x).sum((1, 2))[:, None], x)


@pytest.mark.parametrize("fun", [gathered, gradient, in_a_loop])
def test_programs_with_tables_of_indices(host_compiler: str, fun: Callable[..., Any]) -> None:
    x = jnp.asarray(np.random.default_rng(1).standard_normal((3, 311)), jnp.float32)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    ours, theirs = fs.jit(fun, options=options)(x), jax.jit(fun)(x)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
