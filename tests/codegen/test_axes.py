"""Axes: what is the same axis, what may be spread over blocks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.codegen.loops.axes import AxisSet, GroupAxes
from fusionstitch.codegen.loops.stages import Stage, find_stages
from fusionstitch.hlo.graph import Op
from tests.codegen.regions import whole
from tests.graphs import Builder


def extents(axes: AxisSet, axis: int) -> list[int]:
    return [axes.extent(leaf) for leaf in axes.leaves(axis)]


# ---- sets of axes --------------------------------------------------------------------------------


def test_axes_of_one_extent_become_one() -> None:
    axes = AxisSet()
    a, b = axes.new(12), axes.new(12)
    assert axes.unify([a], [b])
    assert axes.leaves(a) == axes.leaves(b)


def test_a_reshape_splits_into_digits() -> None:
    axes = AxisSet()
    whole_, major, minor = axes.new(24), axes.new(4), axes.new(6)
    assert axes.unify([whole_], [major, minor])
    assert extents(axes, whole_) == [4, 6]
    assert axes.leaves(whole_) == axes.leaves(major) + axes.leaves(minor)


def test_two_reshapes_refine_each_other() -> None:
    axes = AxisSet()
    a, b, c, d = axes.new(4), axes.new(6), axes.new(8), axes.new(3)
    assert axes.unify([a, b], [c, d])  # [4, 6] and [8, 3] are both [4, 2, 3]
    assert extents(axes, b) == [2, 3]
    assert extents(axes, c) == [4, 2]
    assert axes.leaves(a) + axes.leaves(b) == axes.leaves(c) + axes.leaves(d)


def test_digits_that_do_not_align_stay_apart() -> None:
    axes = AxisSet()
    a, b, c, d = axes.new(2), axes.new(3), axes.new(3), axes.new(2)
    assert not axes.unify([a, b], [c, d])


def test_a_range_of_digits_is_found_or_made() -> None:
    axes = AxisSet()
    axis = axes.new(60)
    middle = axes.range(axis, 5, 4)
    assert middle is not None
    assert extents(axes, axis) == [3, 4, 5]
    assert middle == axes.leaves(axis)[1:2]
    assert axes.range(axis, 1, 20) == axes.leaves(axis)[1:]
    assert axes.range(axis, 7, 2) is None


def test_an_owner_never_has_one_axis_twice() -> None:
    axes = AxisSet()
    rows, columns = axes.new(8, owners=1), axes.new(8, owners=1)
    other = axes.new(8, owners=2)
    assert axes.unify([rows], [other])
    assert not axes.unify([columns], [other])
    assert axes.leaves(rows) != axes.leaves(columns)


def test_digits_keep_their_owners() -> None:
    axes = AxisSet()
    merged = axes.new(16, owners=1)
    axes.split(merged, 4)
    major, minor = axes.leaves(merged)
    assert not axes.unify([major], [minor])


@given(st.permutations([2, 2, 3, 5]), st.data())
def test_unified_chains_have_the_same_leaves(primes: list[int], data: st.DataObject) -> None:
    axes = AxisSet()
    chains = []
    for _ in range(2):
        cut = data.draw(st.integers(1, 3))
        chains.append([axes.new(math.prod(primes[:cut])), axes.new(math.prod(primes[cut:]))])
    assert axes.unify(*chains)
    one, other = ([leaf for axis in chain for leaf in axes.leaves(axis)] for chain in chains)
    assert one == other
    assert math.prod(map(axes.extent, one)) == 60


# ---- axes of stages ------------------------------------------------------------------------------


def stages_of(b: Builder, *roots: Op) -> list[Stage]:
    return find_stages(whole(b.graph(*roots)))


def grid_extents(stages: list[Stage]) -> list[int]:
    axes = GroupAxes(stages)
    return [axes.extent(leaf) for leaf in axes.grid()]


def test_rows_of_a_softmax_are_spread_and_columns_are_not() -> None:
    b = Builder()
    x = b.parameter((30, 50))
    e = b.exp(b.sub(x, b.like(b.reduce(x, (1,), "maximum"), x, (1,))))
    stages = stages_of(b, b.div(e, b.like(b.reduce(e, (1,)), x, (1,))))
    assert grid_extents(stages) == [30]


def test_a_transposed_reader_keeps_the_axis_under_another_name() -> None:
    b = Builder()
    x = b.parameter((30, 50))
    s = b.reduce(b.parameter((30, 50, 9)), (2,))
    stages = stages_of(b, b.add(b.transpose(s, (1, 0)), b.transpose(x, (1, 0))))
    assert sorted(grid_extents(stages)) == [30, 50]


def test_a_value_read_at_two_transposed_places_is_not_spread() -> None:
    b = Builder()
    s = b.reduce(b.parameter((7, 12, 12, 9)), (3,))
    stages = stages_of(b, b.add(s, b.transpose(s, (0, 2, 1))))
    axes = GroupAxes(stages)
    assert [axes.extent(leaf) for leaf in axes.grid()] == [7]
    for stage in stages:
        leaves = axes.leaves(stage) + axes.inner_leaves(stage)
        assert len(set(leaves)) == len(leaves)


def test_a_square_of_a_matrix_has_three_axes_of_one_extent() -> None:
    b = Builder()
    s = b.reduce(b.parameter((12, 12, 9)), (2,))
    stages = stages_of(b, b.dot(s, s))
    axes = GroupAxes(stages)
    dot = stages[-1]
    assert len({*axes.leaves(dot), *axes.inner_leaves(dot)}) == 3
    assert axes.grid() == []


def test_a_reshape_between_stages_spreads_the_common_digits() -> None:
    b = Builder()
    s = b.reduce(b.parameter((12, 20, 9)), (2,))
    stages = stages_of(b, b.exp(b.reshape(s, (3, 80))))
    assert grid_extents(stages) == [3, 4, 20]


@pytest.mark.parametrize("move", ["slice", "reverse", "pad"])
def test_an_axis_ends_where_elements_move_along_it(move: str) -> None:
    b = Builder()
    s = b.reduce(b.parameter((10, 20, 9)), (2,))
    moved = {
        "slice": lambda: b.slice(s, (0, 3), (10, 17)),
        "reverse": lambda: b.op("reverse", (10, 20), s, dimensions=(1,)),
        "pad": lambda: b.op(
            "pad", (10, 23), s, b.constant(0.0), low=(0, 1), high=(0, 2), interior=(0, 0)
        ),
    }[move]()
    assert grid_extents(stages_of(b, b.exp(moved))) == [10]


def test_a_whole_slice_of_an_axis_is_the_axis() -> None:
    b = Builder()
    s = b.reduce(b.parameter((10, 20, 9)), (2,))
    assert grid_extents(stages_of(b, b.exp(b.slice(s, (0, 0), (10, 20))))) == [10, 20]


def test_stages_that_read_one_input_alike_share_its_axes_when_asked() -> None:
    b = Builder()
    x = b.parameter((30, 50))
    stages = stages_of(b, b.reduce(x, (1,)), b.reduce(x, (1,), "maximum"))
    assert GroupAxes(stages).grid() == []
    shared = GroupAxes(stages).sharing_inputs()
    assert [shared.extent(leaf) for leaf in shared.grid()] == [30]


def test_sizes_leave_out_axes_of_one_element() -> None:
    b = Builder()
    [stage] = stages_of(b, b.exp(b.parameter((1, 5, 1, 3))))
    axes = GroupAxes([stage])
    assert len(axes.leaves(stage)) == 2
    assert axes.size(axes.leaves(stage)) == 15
