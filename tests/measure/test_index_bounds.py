"""Integers that are indices are spread over what they index."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.measure import buffers, index_bounds

TABLE, ROWS = jax.ShapeDtypeStruct((5003, 48), jnp.float32), 5003
TOKENS = jax.ShapeDtypeStruct((64, 7), jnp.int32)
SMALL = jax.ShapeDtypeStruct((64, 7), jnp.int8)


def onehot(table: Any, labels: Any) -> Any:
    return jax.nn.one_hot(labels, 9).sum() + table.sum()


def summed(rows: Any, place: Any) -> Any:
    return jax.ops.segment_sum(rows, place, 31)


def read_in_turn(table: Any, tokens: Any) -> Any:
    return jax.lax.scan(lambda s, i: (s + table[i].sum(0), None), jnp.zeros(48), tokens)[0]


def followed(table: Any, place: Any) -> Any:
    def step(_: Any, place: Any) -> Any:
        return jnp.take_along_axis(table, place[:, None], 1)[:, 0].astype(jnp.int32)

    return jax.lax.fori_loop(0, 9, step, place)


@pytest.mark.parametrize(
    ("fun", "shapes", "below"),
    [
        (lambda t, i: t[i], (TABLE, TOKENS), ROWS),
        (lambda t, i: jnp.take(t, i + 1, axis=0, mode="clip") * 2, (TABLE, TOKENS), ROWS),
        (lambda t, i: t.at[i].add(1.0), (TABLE, TOKENS), ROWS),
        (lambda t, i: jnp.take_along_axis(t, i[:1].repeat(5003, 0), 1), (TABLE, TOKENS), 48),
        (lambda t, i: t[i, i], (TABLE, TOKENS), 48),
        (lambda t, i: t[i.astype(jnp.int32)], (TABLE, SMALL), ROWS),
        (summed, (TABLE, jax.ShapeDtypeStruct((5003,), jnp.int32)), 31),
        (
            lambda t, i: jax.lax.dynamic_slice(t, (i, 0), (100, 48)),
            (TABLE, jax.ShapeDtypeStruct((), jnp.int32)),
            ROWS - 99,
        ),
        (onehot, (TABLE, TOKENS), index_bounds.LEAST),
        (read_in_turn, (TABLE, TOKENS), ROWS),
        (followed, (TABLE, jax.ShapeDtypeStruct((5003,), jnp.int32)), 48),
    ],
)
def test_the_least_extent_that_is_indexed(fun: Any, shapes: Any, below: int) -> None:
    ir = jax.jit(fun).lower(*shapes).compiler_ir("hlo")
    graph = from_proto(inline_calls(ir.as_serialized_hlo_module_proto())).entry
    assert index_bounds.below(graph) == (index_bounds.LEAST, below)


def test_inputs_are_below() -> None:
    operands = [buffers.Operand(Shape(dtype, (999,)), 5003) for dtype in ("s32", "s8", "pred")]
    wide, narrow, flags = map(np.asarray, buffers.inputs(operands, jax.devices()[0]))
    assert 4000 < wide.max() < 5003
    assert wide.min() >= 0
    assert 100 < narrow.max() <= 127
    assert narrow.min() >= 0
    assert set(flags.tolist()) == {False, True}
