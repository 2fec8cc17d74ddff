"""Which dims of a dot's result belong to which of its operands."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from fusionstitch.hlo.dots import result_dims
from tests.codegen.regions import whole_of

Dims = tuple[int, ...]


@pytest.mark.parametrize(
    ("left", "right", "contract", "batch", "found"),
    [
        ((5, 7), (7, 3), ((1,), (0,)), ((), ()), ({0: 0}, {1: 1})),
        # batches in another order, at other places, and two dims that are summed over
        (
            (7, 2, 5, 3, 4),
            (3, 7, 6, 4, 2),
            ((0, 4), (1, 3)),
            ((3, 1), (0, 4)),
            ({1: 1, 2: 2, 3: 0}, {0: 0, 2: 3, 4: 1}),
        ),
        ((7,), (7,), ((0,), (0,)), ((), ()), ({}, {})),
        ((2,), (3,), ((), ()), ((), ()), ({0: 0}, {0: 1})),
    ],
)
def test_each_dim_that_is_kept_has_one_of_the_result(
    left: Dims, right: Dims, contract: Any, batch: Any, found: Any
) -> None:
    shapes = (jax.ShapeDtypeStruct(dims, jnp.float32) for dims in (left, right))
    graph = whole_of(lambda x, y: lax.dot_general(x, y, (contract, batch)), *shapes)
    [dot] = (op for op in graph.ops if op.opcode == "dot")
    for side, dims in enumerate(found):
        got = result_dims(dot, side)
        assert got == dims
        assert list(got) == sorted(got)
        assert all(dot.dims[n] == dot.operands[side].dims[d] for d, n in got.items())
