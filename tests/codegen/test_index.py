"""Index arithmetic against plain integers: every expression at every point of its variables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionstitch.codegen.index_maps.index import (
    Index,
    Quotient,
    Remainder,
    Var,
    constant,
    delinearize,
    linearize,
    render,
    variable,
)

EXTENTS = {"i": 3, "j": 4, "k": 6}
POINTS = [
    dict(zip(EXTENTS, point, strict=True))
    for point in itertools.product(*(range(n) for n in EXTENTS.values()))
]
i_, j_, k_ = (variable(name, extent) for name, extent in EXTENTS.items())


class CInt(int):
    """A C int: division and remainder truncate."""

    def __truediv__(self, other: int) -> CInt:
        return CInt(math.trunc(int(self) / int(other)))

    def __mod__(self, other: int) -> CInt:
        return CInt(math.fmod(int(self), int(other)))

    def __add__(self, other: int) -> CInt:
        return CInt(int(self) + int(other))

    __radd__ = __add__

    def __sub__(self, other: int) -> CInt:
        return CInt(int(self) - int(other))

    def __mul__(self, other: int) -> CInt:
        return CInt(int(self) * int(other))

    def __neg__(self) -> CInt:
        return CInt(-int(self))


def in_c(index: Index, point: Mapping[str, int]) -> int:
    """What C makes of the index's text."""
    return int(eval(render(index), {name: CInt(value) for name, value in point.items()}))


@dataclass(frozen=True)
class Traced:
    """An index, and its value at each point: None where a dividend was negative on the way."""

    index: Index
    values: tuple[int | None, ...]

    def map(self, index: Index, rule: Callable[[int], int | None]) -> Traced:
        return Traced(index, tuple(None if v is None else rule(v) for v in self.values))

    def valid(self) -> Iterator[tuple[Mapping[str, int], int]]:
        return ((p, v) for p, v in zip(POINTS, self.values, strict=True) if v is not None)


def _of(name: str) -> Traced:
    return Traced(variable(name, EXTENTS[name]), tuple(p[name] for p in POINTS))


def _divided(x: Traced, d: int) -> Traced:
    return x.map(x.index // d, lambda v: v // d if v >= 0 else None)


def _rest(x: Traced, d: int) -> Traced:
    return x.map(x.index % d, lambda v: v % d if v >= 0 else None)


def _sum(x: Traced, y: Traced, sign: int) -> Traced:
    values = tuple(
        None if a is None or b is None else a + sign * b
        for a, b in zip(x.values, y.values, strict=True)
    )
    return Traced(x.index + y.index if sign > 0 else x.index - y.index, values)


def _grown(inner: st.SearchStrategy[Traced]) -> st.SearchStrategy[Traced]:
    divisors = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24])
    return st.one_of(
        st.builds(_sum, inner, inner, st.sampled_from([1, -1])),
        st.builds(lambda x, c: x.map(x.index + c, lambda v: v + c), inner, st.integers(-9, 24)),
        st.builds(
            lambda x, c: x.map(x.index * c, lambda v: v * c),
            inner,
            st.sampled_from([-1, 0, 2, 3, 4, 6, 12, 24]),
        ),
        st.builds(_divided, inner, divisors),
        st.builds(_rest, inner, divisors),
    )


expressions = st.recursive(st.sampled_from("ijk").map(_of), _grown, max_leaves=8)


@settings(max_examples=300)
@given(expressions)
def test_arithmetic_agrees_with_integers_in_c(x: Traced) -> None:
    for point, value in x.valid():
        assert in_c(x.index, point) == value, (render(x.index), point)


@settings(max_examples=300)
@given(expressions)
def test_ranges_hold(x: Traced) -> None:
    for _, value in x.valid():
        assert x.index.lo <= value <= x.index.hi, render(x.index)


@given(expressions, expressions)
def test_sums_have_one_form(x: Traced, y: Traced) -> None:
    assert x.index + y.index == y.index + x.index
    assert render(x.index + y.index) == render(y.index + x.index)
    assert x.index - x.index == constant(0)


@settings(max_examples=300)
@given(expressions)
def test_variables_are_those_of_the_text(x: Traced) -> None:
    assert {v.name for v in x.index.variables} == set(render(x.index)) & set("ijk")


shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 8]), min_size=1, max_size=4).map(tuple)


@given(shapes)
def test_the_digits_of_a_position_make_it_up(dims: tuple[int, ...]) -> None:
    position = variable("p", math.prod(dims))
    digits = delinearize(position, dims)
    assert linearize(digits, dims) == position
    for p in range(math.prod(dims)):
        values = [in_c(d, {"p": p}) for d in digits]
        assert all(0 <= v < n for v, n in zip(values, dims, strict=True))
        assert sum(v * math.prod(dims[d + 1 :]) for d, v in enumerate(values)) == p


@given(shapes)
def test_the_position_of_digits_gives_them_back(dims: tuple[int, ...]) -> None:
    digits = tuple(variable(f"d{n}", extent) for n, extent in enumerate(dims))
    assert delinearize(linearize(digits, dims), dims) == digits


@given(st.permutations([2, 2, 3, 4, 5]), st.permutations([2, 2, 3, 4, 5]), st.data())
def test_reshapes_there_and_back_are_no_reshape(
    one: list[int], other: list[int], data: st.DataObject
) -> None:
    """Digits of a tile and a row, as kernels have them, through another shape and back."""
    cut = data.draw(st.integers(1, len(one) - 1))
    rows = math.prod(one[cut:])
    position = variable("tile", 240 // rows) * rows + variable("row", rows)
    digits = delinearize(position, one)
    there = delinearize(linearize(digits, one), other)
    assert delinearize(linearize(there, other), one) == digits


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (constant(0), "0"),
        (constant(-3), "-3"),
        (i_ * 8 + j_ + 2, "i * 8 + j + 2"),
        (j_ + i_ * 8, "i * 8 + j"),
        (i_ * -1 + 2, "-i + 2"),
        (j_ - i_, "-i + j"),
        ((i_ * 8 + j_) // 8, "i"),
        ((i_ * 8 + j_) % 8, "j"),
        ((k_ * 8 + j_) // 24, "(k / 3)"),
        ((k_ * 8 + j_) % 24, "(k % 3) * 8 + j"),
        ((k_ + i_ * 6) // 4, "((i * 6 + k) / 4)"),
        ((k_ + i_ * 6) % 18, "i * 6 + k"),
        (k_ // 2 // 3, "0"),
        (variable("p", 99) // 2 // 3, "(p / 6)"),
        (variable("p", 99) % 12 % 4, "(p % 4)"),
        (variable("p", 99) % 12 // 4, "((p / 4) % 3)"),
        ((variable("p", 99) // 4 % 3) * 4 + variable("p", 99) % 4, "(p % 12)"),
        ((variable("p", 99) // 7) * 7 + variable("p", 99) % 7, "p"),
        ((i_ - 1) // 2, "((i + 1) / 2) - 1"),
        ((i_ * 4 - 1) % 4, "3"),
    ],
    ids=str,
)
def test_canonical_text(index: Index, text: str) -> None:
    assert render(index) == text == str(index)


def test_a_variable_of_one_value_is_zero() -> None:
    assert variable("i", 1) == constant(0)


def test_terms_know_their_ranges() -> None:
    x = i_ * 2 + 1
    assert (Quotient(x, 2).lo, Quotient(x, 2).hi) == (0, 2)
    assert (Remainder(x, 2).lo, Remainder(x, 2).hi) == (0, 1)
    assert (Remainder(x, 9).hi, Var("i", 3).hi) == (5, 2)


def test_multiplying_by_zero_leaves_nothing() -> None:
    assert constant(0) == i_ * 0
    assert (i_ * 0).variables == frozenset()


def test_linearize_wants_as_many_dims_as_indices() -> None:
    with pytest.raises(ValueError, match="longer"):
        linearize([i_], [3, 4])
