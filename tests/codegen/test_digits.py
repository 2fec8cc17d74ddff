"""Digits: where a loop stands, and the same in a loop's own variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen.generate import plan_kernel
from fusionstitch.codegen.index_maps.index import (
    Fetched,
    Index,
    Var,
    constant,
    renamed,
    render,
    substituted,
    variable,
)
from fusionstitch.codegen.loops.digits import Digits
from fusionstitch.codegen.schedule.schedule import GroupPlan, NestPlan
from fusionstitch.costmodel.devices import device
from tests.codegen.regions import whole_of
from tests.graphs import Builder


def planned(fun: Callable[..., Any], *shape: int) -> tuple[GroupPlan, NestPlan]:
    region = whole_of(fun, jax.ShapeDtypeStruct(shape, jnp.float32))
    [group] = plan_kernel(region, device("h200")).plan.groups
    return group, group.nests[0]


def test_rows_and_columns_are_where_they_were_bound() -> None:
    group, nest = planned(lambda x: x - x.sum(1, keepdims=True), 64, 512)
    digits = Digits(group.group, nest.nest, group.points)
    point = variable("tile", group.tiles)
    digits.bind_rows(constant(0), point)
    digits.bind_column(variable("column", 512))
    total, result = nest.nest.stages
    assert digits.indices(total) == ((point,), (variable("column", 512),))
    assert digits.indices(result) == ((point, variable("column", 512)), ())


def test_rows_that_lie_together_are_of_neighbouring_points() -> None:
    """The columns of a scan down an array are its grid points, one a thread side by side."""
    region = whole_of(
        lambda x: jnp.cumsum(x, 0) * 2, jax.ShapeDtypeStruct((128, 4096), jnp.float32)
    )
    [group] = plan_kernel(region, device("h200")).plan.groups
    digits = [Digits(group.group, nest.nest, group.points) for nest in group.nests]
    assert all(one.points_last for one in digits)
    row = variable("row", group.nests[0].rows)
    digits[0].bind_rows(row, digits[0].point_of(row))
    assert digits[0].point == row % group.points
    first = group.nests[0].nest.stages[0]
    *_, column = digits[0].index(first)
    assert column == row % group.points


def test_rows_of_one_point_lie_together_where_the_last_axis_is_theirs() -> None:
    group, nest = planned(lambda x: x - x.sum(1, keepdims=True), 64, 512)
    assert not Digits(group.group, nest.nest, group.points).points_last


def test_binding_rows_forgets_the_column() -> None:
    group, nest = planned(lambda x: x.sum(1), 64, 512)
    digits = Digits(group.group, nest.nest, group.points)
    digits.bind_rows(constant(0), constant(3))
    digits.bind_column(constant(5))
    digits.bind_rows(constant(0), constant(4))
    with pytest.raises(KeyError):
        digits.inner(nest.nest.stages[0])


def test_several_grid_points_are_rows_of_a_tile() -> None:
    group, nest = planned(lambda x: x.sum(1), 8192, 64)
    assert group.points > 1
    digits = Digits(group.group, nest.nest, group.points)
    row = variable("row", nest.rows)
    digits.bind_rows(row, variable("tile", group.tiles) * group.points + row)
    assert digits.point == row
    assert render(digits.index(nest.nest.stages[0])[0]) == f"tile * {group.points} + row"


ROW, COLUMN = variable("row", 12), variable("column", 48)


def picked() -> Index:
    op = Builder().parameter((12,), "s32")
    return Index(((Fetched(op, (ROW,), 7), 1),))


@pytest.mark.parametrize(
    "index",
    [ROW * 48 + COLUMN, (ROW * 48 + COLUMN) // 7, (ROW + COLUMN) % 5 + ROW * 3 - 2, picked()],
)
def test_other_names_change_nothing_else(index: Index) -> None:
    other = renamed(index, {"row": "z", "column": "a"})
    assert {v.name for v in other.variables} <= {"z", "a"}
    assert (other.lo, other.hi) == (index.lo, index.hi)
    assert renamed(other, {"z": "row", "a": "column"}) == index


def test_values_of_variables_are_put_in_everywhere() -> None:
    values = {Var("row", 12): constant(2)}
    assert substituted(ROW * 48 + COLUMN, values) == COLUMN + 96
    assert substituted((ROW * 48 + COLUMN) // 48, values) == constant(2)
    assert substituted(COLUMN, values) is COLUMN
    [(position, _)] = substituted(picked(), values).terms
    assert isinstance(position, Fetched)
    assert position.at == (constant(2),)
