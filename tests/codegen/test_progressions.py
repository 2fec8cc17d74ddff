"""Sequences known without their elements agree with their elements."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.codegen.count.axes import Axis, Part
from fusionstitch.codegen.count.conditions import _shortened
from fusionstitch.codegen.count.progressions import Progression

#: What index arithmetic does: (what, its constant, its factor or divisor).
STEPS = st.one_of(
    st.tuples(st.just("times"), st.just(0), st.sampled_from([-1, 0, 2, 3, 8])),
    st.tuples(st.just("plus"), st.integers(-9, 9), st.just(1)),
    st.tuples(
        st.sampled_from(["quotient", "remainder"]),
        st.sampled_from([0, 0, 1, 3, 5]),
        st.sampled_from([1, 2, 3, 4, 6, 8, 12]),
    ),
)


def done(part: Part, step: tuple[str, int, int]) -> Part:
    what, const, number = step
    if what == "times":
        return part.times(number)
    if what == "plus":
        return part.plus(const)
    return part.divided(const, number, remainder=what == "remainder")


def same(part: Part, other: Part) -> None:
    np.testing.assert_array_equal(part.array, other.array)
    assert part.ends == other.ends
    assert (part.unit, part.first, part.values) == (other.unit, other.first, other.values)
    some = np.arange(0, part.array.size, 3)
    np.testing.assert_array_equal(part.at([some]), other.array[some])


@given(st.integers(1, 60), st.integers(-4, 6), st.lists(STEPS, max_size=6))
def test_index_arithmetic_gives_what_it_gives_of_the_elements(
    extent: int, step: int, steps: list[tuple[str, int, int]]
) -> None:
    axis = Axis(1, extent)
    known = Part((axis,), Progression.of(extent, step, 0, 1, extent))
    elements = Part((axis,), np.arange(extent) * step)
    same(known, elements)
    for one in steps:
        known, elements = done(known, one), done(elements, one)
        same(known, elements)


@given(
    st.builds(
        Progression.of,
        st.integers(64, 200),
        st.integers(-5, 5),
        st.integers(-9, 9),
        st.sampled_from([1, 2, 5, 16]),
        st.integers(1, 200),
    ),
    st.integers(-40, 60),
    st.integers(0, 80),
)
def test_elements_of_a_range_are_told_apart_as_if_they_were_written_out(
    known: Progression, low: int, width: int
) -> None:
    axes = (Axis(1, known.extent),)
    short, long = (_shortened(Part(axes, one), low, low + width) for one in (known, known.array))
    np.testing.assert_array_equal(short.weights, long.weights)
    [one], [other] = short.starts, long.starts
    assert (one is None) == (other is None)
    if one is not None:
        np.testing.assert_array_equal(one, other)


def test_progressions_of_a_long_axis_are_never_written_out() -> None:
    found = Part((Axis(1, 10**12),), Progression.of(10**12, 1, 0, 1, 10**12))
    row, column = (found.divided(0, 4096, remainder).times(4) for remainder in (False, True))
    assert column.ends == (0, 4 * 4095)
    assert row.divided(2, 8, remainder=True).ends == (2, 6)
    assert (row.unit, column.values) == (4, 4096)
    assert row.at([np.array([4095, 4096, 10**12 - 1])]).tolist() == [0, 4, 976562496]
