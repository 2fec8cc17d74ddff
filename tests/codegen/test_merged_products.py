"""Products that XLA merged come apart: each piece of a concatenate has its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.codegen.rewrite.merged_products import part_products
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph
from tests.codegen.regions import whole_of

Array = Any


def _f32(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, np.float32)


def _opcodes(graph: Graph) -> list[str]:
    return [op.opcode for op in graph.ops[:-1] if op.opcode != "parameter"]


def _same(graph: Graph) -> Graph:
    """What the pass makes of a region, which computes the same."""
    found = part_products(graph)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(p.dims).astype(np.float32) for p in graph.parameters]
    for one, other in zip(evaluate(graph, values), evaluate(found, values), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    return found


def _columns(x: Array, a: Array, b: Array) -> Array:
    both = x @ jnp.concatenate([a, b], 1)
    return jnp.tanh(both[:, :7]) * both[:, 7:14], both[:, 15:]


def _rows(x: Array, y: Array, w: Array) -> Array:
    both = jnp.concatenate([x, y]) @ w
    return jnp.tanh(both[:9]), both[9:]


def _summed(x: Array, a: Array, b: Array) -> Array:
    both = x.T @ jnp.concatenate([a, b], 1)
    return both[:, :3], both[:, 3:]


@pytest.mark.parametrize(
    ("fun", "args", "dots"),
    [
        # of the second piece, two slices
        (_columns, [_f32(9, 5), _f32(5, 7), _f32(5, 11)], 2),
        (_rows, [_f32(9, 5), _f32(4, 5), _f32(5, 6)], 2),
        (_summed, [_f32(9, 5), _f32(9, 3), _f32(9, 4)], 2),
    ],
)
def test_each_piece_that_is_read_has_a_product_of_its_own(
    fun: Callable[..., Any], args: list[Any], dots: int
) -> None:
    found = _opcodes(_same(whole_of(fun, *args)))
    assert found.count("dot") == dots
    assert "concatenate" not in found


@pytest.mark.parametrize(
    ("fun", "args"),
    [
        # a slice over two pieces, every other column, and what is summed over
        (
            lambda x, a, b: (x @ jnp.concatenate([a, b], 1))[:, 2:5],
            [_f32(9, 5), _f32(5, 3), _f32(5, 4)],
        ),
        (
            lambda x, a, b: (x @ jnp.concatenate([a, b], 1))[:, ::2],
            [_f32(9, 5), _f32(5, 3), _f32(5, 4)],
        ),
        (
            lambda x, a, b: (x @ jnp.concatenate([a, b], 0))[:, :2],
            [_f32(9, 7), _f32(3, 5), _f32(4, 5)],
        ),
        (lambda x, a: (x @ a)[:, :2], [_f32(9, 7), _f32(7, 5)]),
    ],
)
def test_other_slices_of_products_stay(fun: Callable[..., Any], args: list[Any]) -> None:
    graph = whole_of(fun, *args)
    assert part_products(graph) is graph


def test_products_that_are_read_whole_stay_beside_their_parts() -> None:
    def fun(x: Array, a: Array, b: Array) -> Array:
        both = x @ jnp.concatenate([a, b], 1)
        return both[:, :3] * 2, both.sum(1)

    found = _opcodes(_same(whole_of(fun, _f32(9, 5), _f32(5, 3), _f32(5, 4))))
    assert found.count("dot") == 2
    assert "concatenate" in found


def test_batches_keep_their_place() -> None:
    def fun(x: Array, y: Array, w: Array) -> Array:
        both = jnp.einsum("bij,bjk->bik", jnp.concatenate([x, y], 1), w)
        return jnp.tanh(both[:, :4]), both[:, 4:]

    found = _opcodes(_same(whole_of(fun, _f32(3, 4, 5), _f32(3, 2, 5), _f32(3, 5, 6))))
    assert found.count("dot") == 2
