"""Integers are equal however they are written (`codegen/ir/sums.py`)."""

from __future__ import annotations

import pytest

from fusionstitch.codegen.index_maps.index import Index, constant, variable
from fusionstitch.codegen.ir.expressions import THREAD, Expr, Integer, Load, Name, infix, number
from fusionstitch.codegen.ir.sums import sum_of

ROW, LANE = variable("row", 8), variable("lane", 4)
A, B = Name("row"), Name("lane")
LOADED = Load(Name("at"), A)

SAME: dict[str, tuple[Expr, Expr]] = {
    "a variable": (Integer(ROW), A),
    "a variable that is said to be longer": (Integer(variable("row", 99)), Integer(ROW)),
    "a constant": (Integer(constant(7)), number(7)),
    "nothing": (Integer(Index()), infix("-", A, A)),
    "a sum": (Integer(ROW * 4 + LANE + 3), infix("+", infix("*", A, 4), B, 3)),
    "another order": (infix("+", B, infix("*", A, 4)), infix("+", infix("*", A, 4), B)),
    "a difference": (Integer(ROW - LANE), infix("-", A, B)),
    "a multiple of a sum": (infix("*", infix("+", A, B), 4), Integer(ROW * 4 + LANE * 4)),
    "a quotient": (Integer(ROW // 4), infix("/", A, 4)),
    "a remainder of a sum": (Integer((ROW * 3 + LANE) % 5), infix("%", Integer(ROW * 3 + LANE), 5)),
    "what is loaded": (infix("+", LOADED, 1), infix("+", 1, LOADED)),
}
OTHERS: dict[str, tuple[Expr, Expr]] = {
    "another variable": (A, B),
    "another constant": (Integer(ROW + 1), Integer(ROW + 2)),
    "a quotient, not a remainder": (Integer(ROW // 4), Integer(ROW % 4)),
    "quotients by others": (infix("/", A, 4), infix("/", A, 2)),
    "a quotient of a sum, not of a term": (infix("/", infix("+", A, B), 4), infix("+", A, B)),
    "a product of variables": (infix("*", A, B), infix("*", A, 4)),
    "something else that is loaded": (LOADED, Load(Name("at"), B)),
    "the thread": (THREAD, A),
}


@pytest.mark.parametrize("printed", SAME)
def test_these_are_equal(printed: str) -> None:
    one, other = SAME[printed]
    assert sum_of(one) == sum_of(other)
    assert hash(sum_of(one)) == hash(sum_of(other))


@pytest.mark.parametrize("printed", OTHERS)
def test_these_are_not(printed: str) -> None:
    one, other = OTHERS[printed]
    assert sum_of(one) != sum_of(other)
