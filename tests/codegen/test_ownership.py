"""Integers that no two threads have alike: what is found to be a thread's own, is."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionstitch.codegen.index_maps.index import Index, Quotient, Remainder, Term, Var, variable
from fusionstitch.codegen.ir.accesses import Access, Accesses
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Expr,
    Integer,
    Load,
    Name,
    infix,
    least,
    number,
)
from fusionstitch.codegen.ir.ownership import Digit, Digits, Ownership
from fusionstitch.codegen.ir.statements import For, Let, Shared, Store
from fusionstitch.codegen.ir.types import FLOAT, INT, Scalar

THREADS, BLOCKS = 24, 4
LANE, ROW = variable("lane", 4), variable("row", 6)


TILES = For(INT, "tile", BLOCK, number(8), step=BLOCKS)


def known() -> Ownership:
    """Four threads a row, and a loop over columns and one over tiles."""
    found = Ownership(THREADS, BLOCKS)
    found.define(Let(INT, "lane", infix("%", THREAD, 4)))
    found.define(Let(INT, "row", infix("/", THREAD, 4)))
    found.begin(For(INT, "column", Name("lane"), number(12), step=4))
    found.begin(TILES)
    return found


def own(found: Ownership, value: Expr, blocks: int) -> bool:
    return found.whose(value, blocks) is not None


OWN: dict[str, tuple[Expr, bool]] = {
    "the thread": (THREAD, True),
    "a row of several threads": (Integer(ROW), False),
    "a lane of several rows": (Integer(LANE), False),
    "row and lane": (Integer(ROW * 4 + LANE), True),
    "lane and row": (Integer(LANE * 6 + ROW), True),
    "row and lane, one over the other": (Integer(ROW + LANE), False),
    "row and lane, with too few between": (Integer(ROW * 3 + LANE), False),
    "a column from the lane on": (Integer(ROW * 12 + variable("column", 12)), True),
    "a part of a column, and the rest": (
        Integer(ROW * 12 + (variable("column", 12) % 3) * 4 + variable("column", 12) // 3),
        True,
    ),
    "a part of a column": (Integer(ROW * 12 + variable("column", 12) // 3), False),
    "what nobody knows": (Integer(ROW * 4 + variable("other", 4)), False),
}


@pytest.mark.parametrize("name", OWN)
def test_a_threads_own(name: str) -> None:
    value, alone = OWN[name]
    assert own(known(), value, 1) is alone


def test_blocks_have_their_own_by_their_number() -> None:
    tile = variable("tile", 8)
    assert not own(known(), Integer(ROW * 4 + LANE), 0)
    assert own(known(), Integer(tile * 24 + ROW * 4 + LANE), 0)
    found = Ownership(THREADS, BLOCKS)
    found.define(Let(INT, "rank", infix("%", BLOCK, 2)))
    position = Integer(variable("rank", 2) * 24 + Index(((Var(THREAD.name, 24), 1),)))
    assert own(found, position, 2)
    assert not own(found, position, 0)


def test_conditions_leave_one_thread_or_one_block() -> None:
    found = known()
    position = Integer(ROW)
    with found.where([(infix("==", Name("lane"), 0), True)]):
        assert own(found, position, 1)
        assert not own(found, position, 0)
        with found.turning(TILES), found.where([(infix("<", Name("tile"), 7), False)]):
            assert own(found, position, 0)
    with found.where([(infix("==", Name("lane"), 0), False)]):
        assert not own(found, position, 1)
    with found.where([(infix("<", THREAD, 4), True)]):
        assert own(found, Integer(LANE), 1)
    assert not own(found, position, 1)


def test_who_is_left_by_other_conditions_is_another() -> None:
    """One thread of each row, and one of all: their first elements have one address."""
    found, position = Ownership(THREADS, BLOCKS), Integer(Index())
    with found.where([(infix("==", THREAD, 0), True)]):
        first = found.whose(position, 1)
        assert first == found.whose(position, 1)
    with found.where([(infix("<", THREAD, 2), True), (infix("<", THREAD, 1), False)]):
        second = found.whose(position, 1)
    assert None not in (first, second)
    assert first != second


def test_variables_whose_steps_meet_are_nobodys() -> None:
    found = Ownership(THREADS, BLOCKS)
    for step, alone in ((1, False), (12, False), (24, True), (48, True)):
        found.begin(For(INT, "column", THREAD, number(96), step=step))
        assert own(found, Name("column"), 1) is alone


def test_a_number_of_values_is_not_rounded_down() -> None:
    """Of 24 threads, five each have a digit: it has five values, and a loop of four steps ends
    where another's begins."""
    found = Ownership(THREADS, BLOCKS)
    for step, alone in ((4, False), (5, True)):
        found.define(Let(INT, "lane", infix("%", THREAD, 5)))
        found.define(Let(INT, "row", infix("/", THREAD, 5)))
        found.begin(For(INT, "column", Name("row"), number(60), step=step))
        position = infix("+", infix("*", Name("column"), 5), Name("lane"))
        assert own(found, position, 1) is alone


@pytest.mark.parametrize(
    ("length", "step", "alone"), [(2, 1, True), (2, 2, True), (3, 1, False), (5, 4, False)]
)
def test_blocks_have_parts_one_behind_the_other(length: int, step: int, alone: bool) -> None:
    start = infix("*", BLOCK, 2)
    for stop in (
        infix("+", start, length),
        least(INT, infix("+", start, length), 7),
    ):
        found = Ownership(THREADS, BLOCKS)
        found.begin(For(INT, "row", start, stop, step=step))
        position = infix("+", infix("*", Name("row"), THREADS), THREAD)
        assert own(found, position, 0) is alone
    found.begin(For(INT, "row", start, number(8), step=step))
    assert not own(found, position, 0)


def test_variables_that_change_are_nobodys() -> None:
    found = Ownership(THREADS, BLOCKS)
    found.define(Let(INT, "n", number(4)))
    found.define(Let(INT, "n", THREAD, changes=True))
    found.define(Let(INT, "lane", infix("%", THREAD, Name("n"))))
    assert not own(found, Name("n"), 1)
    assert not own(found, infix("+", infix("*", infix("/", THREAD, 4), 4), Name("lane")), 1)


def test_what_turns_by_the_iteration_is_nobodys() -> None:
    """Thread t has element t + n in iteration n, which another one had before."""
    found = Ownership(THREADS, BLOCKS)
    found.begin(For(INT, "turn", number(0), number(5)))
    found.define(Let(INT, "place", infix("+", THREAD, Name("turn"))))
    assert not own(found, Name("place"), 1)
    assert not own(found, Integer(Index(((Var(THREAD.name, 24), 1),)) + variable("turn", 5)), 1)
    found.define(Let(INT, "lane", infix("%", THREAD, 4)))
    for each, alone in ((4, True), (3, False)):
        column = infix("+", infix("*", infix("/", THREAD, 4), each), Name("lane"))
        assert own(found, column, 1) is alone
    found.begin(For(INT, "near", Integer(ROW * 4), number(96), step=1))
    assert not own(found, Name("near"), 1)


def test_what_holds_in_a_loop_does_not_hold_behind_it() -> None:
    found, position = Ownership(THREADS, BLOCKS), Integer(Index(((Var(THREAD.name, 24), 1),)))
    one = For(INT, "tile", BLOCK, number(1), step=BLOCKS)
    found.begin(one)
    with found.turning(one):
        assert own(found, position, 0)
    assert not own(found, position, 0)


def test_what_is_told_does_not_hang_on_an_order() -> None:
    for digits in itertools.permutations([Digit("x", 1, 4), Digit("x", 1, 0), Digit("x", 1, 2)]):
        assert Digits(frozenset(digits)).determines("x", 0)


@st.composite
def terms(draw: st.DrawFn, depth: int = 2) -> Term:
    base = Var(THREAD.name, THREADS)
    for _ in range(draw(st.integers(0, depth))):
        kind = draw(st.sampled_from((Quotient, Remainder)))
        inner = Index(((base, 1),))
        base = kind(inner, draw(st.integers(1, 8)))
    return base


@settings(max_examples=400)
@given(st.lists(st.tuples(terms(), st.integers(1, 12)), min_size=1, max_size=3))
def test_what_is_own_is_no_other_threads(parts: list[tuple[Term, int]]) -> None:
    position = Index()
    for term, factor in parts:
        position = position + Index(((term, factor),))
    if own(Ownership(THREADS, BLOCKS), Integer(position), 1):
        found = [_value(position, thread) for thread in range(THREADS)]
        assert len(set(found)) == THREADS


def _value(index: Index, thread: int) -> int:
    return index.const + sum(factor * _term(term, thread) for term, factor in index.terms)


def _term(term: Term, thread: int) -> int:
    if isinstance(term, (Quotient, Remainder)):
        base = _value(term.base, thread)
        return base // term.divisor if isinstance(term, Quotient) else base % term.divisor
    return thread


def test_the_property_has_both_cases() -> None:
    """Or else the test above shows nothing."""
    thread = Index(((Var(THREAD.name, THREADS), 1),))
    indices = [
        thread // a * f + thread % b for a, b, f in itertools.product((2, 3, 4), (2, 3, 4), (2, 4))
    ]
    printed = [own(Ownership(THREADS, BLOCKS), Integer(position), 1) for position in indices]
    assert any(printed)
    assert not all(printed)


@pytest.mark.parametrize(("dtype", "waits"), [("f32", False), ("f64", True)])
def test_elements_of_another_size_lie_elsewhere(dtype: str, waits: bool) -> None:
    """Two arrays one after the other in the same memory: element 1 of 8 bytes is that of threads 2
    and 3 of 4."""
    kind, accesses = Scalar(dtype), Accesses({}, Ownership(THREADS, 1), 1)
    position = Integer(Index(((Var(THREAD.name, 24), 1),)))
    statements = (
        Shared(FLOAT, "first", 0, THREADS),
        Shared(kind, "second", 0, THREADS * 4 // kind.bytes),
        Store("first", position, number(1)),
        Let(kind, "read", Load(Name("second"), position)),
    )
    write, read = (
        event for one in statements for event in accesses.of(one) if isinstance(event, Access)
    )
    assert bool(read.needs(write)) is waits
