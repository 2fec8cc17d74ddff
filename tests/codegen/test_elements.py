"""Sets of elements, against the sets themselves."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from fusionstitch.codegen.index_maps.index import variable
from fusionstitch.codegen.ir.elements import Elements, between
from fusionstitch.codegen.ir.expressions import (
    Apply,
    Cast,
    Choice,
    Expr,
    Infix,
    Integer,
    Name,
    Not,
    Number,
    infix,
)
from fusionstitch.codegen.ir.intrinsics import EXP, MAXIMUM, MINIMUM
from fusionstitch.codegen.ir.reach import Reach, Sync
from fusionstitch.codegen.ir.statements import Blank
from fusionstitch.codegen.ir.types import FLOAT, INT
from fusionstitch.codegen.ir.values import holds, value

SETS = st.builds(
    lambda first, steps: sum(
        (between(0, count - 1) * step for step, count in steps), Elements(first)
    ),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(-9, 12), st.integers(1, 5)), max_size=3),
)
NUMBERS = st.integers(1, 13)


def members(one: Elements) -> set[int]:
    counts = product(*(range(count) for _, count in one.steps))
    return {
        one.first + sum(k * s for k, (s, _) in zip(ks, one.steps, strict=True)) for ks in counts
    }


@given(one=SETS, other=SETS)
def test_sets_meet_where_they_have_an_element_in_common(one: Elements, other: Elements) -> None:
    assert one.meets(other) == bool(members(one) & members(other))


@given(one=SETS, other=SETS, number=st.integers(-7, 9))
def test_sums_and_multiples(one: Elements, other: Elements, number: int) -> None:
    assert members(one + other) == {a + b for a in members(one) for b in members(other)}
    assert members(one * number) == {a * number for a in members(one)}
    assert (one.first, one.last) == (min(members(one)), max(members(one)))


def test_remainders_keep_what_all_are_multiples_apart_by() -> None:
    assert members((between(0, 4) * 6 + Elements(5)) % 8) == {1, 3, 5, 7}


@given(one=SETS, number=NUMBERS)
def test_quotients_and_remainders_are_among_those_found(one: Elements, number: int) -> None:
    assert members(one // number) >= {a // number for a in members(one)}
    assert members(one % number) >= {a % number for a in members(one)}


@given(one=SETS, limit=st.integers(-5, 60))
def test_what_is_below_a_limit_stays(one: Elements, limit: int) -> None:
    assert members(one) >= members(one.below(limit)) >= {a for a in members(one) if a < limit}


def test_columns_of_a_matrix_do_not_meet() -> None:
    rows = between(0, 31) * 64
    one, other = rows + between(8, 15), rows + between(16, 23)
    assert not one.meets(other)
    assert one.meets(other + Elements(-1))


ROW, LANE = Name("row"), Name("lane")
KNOWN = {"row": between(0, 3), "lane": between(0, 31), "n": Elements(5)}


def test_values_of_expressions() -> None:
    found: dict[Expr, Elements | None] = {
        Name("n"): Elements(5),
        Name("other"): None,
        Number("7"): Elements(7),
        Number("7.0f"): None,
        Integer(variable("row", 4) * 32 + variable("lane", 32)): between(0, 127),
        Integer(variable("other", 4) * 2): between(0, 3) * 2,
        Integer((variable("n", 9) + 2) % 3): Elements(1),
        infix("+", infix("*", ROW, 32), LANE): between(0, 127),
        infix("-", Number("9"), ROW): between(6, 9),
        infix("/", LANE, 8): between(0, 3),
        infix("%", LANE, 8): between(0, 7),
        infix("<", LANE, 8): None,
        Infix("+", (ROW, Name("other"))): None,
        Apply(MINIMUM, (INT,), (Name("n"), LANE)): between(0, 5),
        Apply(MAXIMUM, (INT,), (Name("n"), ROW)): Elements(5),
        Apply(EXP, (), (ROW,)): None,
        Cast(INT, ROW): between(0, 3),
        Cast(FLOAT, ROW): None,
        Choice(((infix("<", ROW, 2), ROW),), LANE): None,
    }
    assert {expr: value(expr, KNOWN) for expr in found} == found


def test_conditions() -> None:
    below = infix("<", ROW, 4)
    found: dict[Expr, bool | None] = {
        below: True,
        infix("<", ROW, 3): None,
        infix("<", ROW, 0): False,
        infix(">=", LANE, 32): False,
        infix(">", Name("n"), ROW): True,
        infix("<=", ROW, 3): True,
        infix("==", Name("n"), 5): True,
        infix("==", Name("n"), ROW): False,
        infix("==", ROW, 2): None,
        infix("!=", Name("n"), 5): False,
        infix("<", Name("other"), 3): None,
        Not(below): False,
        Not(Name("other")): None,
        infix("&&", below, infix("<", ROW, 0)): False,
        infix("&&", below, Name("other")): None,
        infix("&&", below, below): True,
        infix("||", Name("other"), below): True,
        ROW: None,
    }
    assert {expr: holds(expr, KNOWN) for expr in found} == found


# ---- how far blocks come -------------------------------------------------------------------------


def syncs(text: str) -> list[Sync]:
    """Such as "a b2": the block arrives at counter a, then waits until b is 2."""
    return [
        Sync((word[0], 0), int(word[1:]) if word[1:] else None, Blank()) for word in text.split()
    ]


def reach(*blocks: str) -> Reach:
    return Reach([syncs(one) for one in blocks])


def test_blocks_come_to_what_they_wait_for() -> None:
    assert reach("a b1", "a1 b").stuck() is None
    stuck = reach("a b1", "a2 b").stuck()
    assert stuck is not None
    assert (stuck.block, stuck.sync.counter, stuck.arrived) == (0, ("b", 0), 0)


def test_nobody_passes_a_wait_for_all_while_one_stands_still() -> None:
    found = reach("a a3", "a a3", "a a3")
    assert found.without(0, 0).tolist() == [0, 1, 1]
    assert found.without(0, 1).tolist() == [2, 2, 2]


def test_a_wait_for_some_may_do_without_one() -> None:
    assert reach("a", "a", "a1").without(0, 0).tolist() == [0, 1, 1]


def test_what_blocks_wait_for_goes_on_through_others() -> None:
    """A chain, and barriers that are made of one counter."""
    assert reach("a", "a1 b", "b1").without(0, 0).tolist() == [0, 0, 0]
    barriers = reach(*["a a2 a a4"] * 2)
    assert barriers.without(0, 1).tolist() == [2, 3]
    assert barriers.without(1, 0).tolist() == [1, 0]
