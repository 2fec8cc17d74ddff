"""What iterations read again is held in registers: which loads, and where they read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import pytest

from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Choice,
    Expr,
    Integer,
    Load,
    LoadVector,
    Name,
    Not,
    infix,
    least,
    number,
)
from fusionstitch.codegen.ir.passes.hoisted_loads import hold
from fusionstitch.codegen.ir.printer import text
from fusionstitch.codegen.ir.statements import (
    Assign,
    Branch,
    For,
    If,
    Leave,
    Let,
    Skip,
    Statement,
    Store,
    Swap,
    While,
)
from fusionstitch.codegen.ir.types import FLOAT, INT, PointerTo, Raw, Scalar

LANE = Let(INT, "lane", infix("%", THREAD, 4))
COLUMN = variable("column", 16)


def load(at: Index, buffer: str = "w") -> Load:
    return Load(Name(buffer), Integer(at))


def used(value: Expr) -> Statement:
    return Assign(Name("sum"), value, "+")


def columns(*body: Statement, start: Expr = LANE.value, step: int = 4) -> For:
    return For(INT, "column", start, number(16), step, body=body)


def held(body: Sequence[Statement], room: int = 64) -> tuple[str, str]:
    """What comes before a loop of these statements, and the loop."""
    numbers: dict[str, Iterator[int]] = defaultdict(count)
    loop = For(INT, "turn", number(0), number(9), body=tuple(body))
    kinds = {"w": FLOAT, "h": Scalar("bf16")}
    before, after = hold(loop, kinds, room, (64, 8), lambda name: f"{name}_{next(numbers[name])}")
    return text(before), text([after])


def test_each_element_has_a_register_of_its_own() -> None:
    before, after = held([LANE, columns(used(load(COLUMN)), start=Name("lane"))])
    assert before.splitlines() == [
        "const int thread_0 = threadIdx.x;",
        "// w: what a thread reads of it in every iteration",
        "float w_held_0[4];",
        "FS_UNROLL for (int column_turn_0 = 0; column_turn_0 < 4; ++column_turn_0) {",
        "  w_held_0[column_turn_0] = w[column_turn_0 * 4 + (thread_0 % 4)];",
        "}",
    ]
    assert after.splitlines() == [
        "for (int turn = 0; turn < 9; ++turn) {",
        "  const int lane = threadIdx.x % 4;",
        "  FS_UNROLL for (int column_turn_0 = 0; column_turn_0 < 4; ++column_turn_0) {",
        "    const int column = lane + column_turn_0 * 4;",
        "    sum += w_held_0[column_turn_0];",
        "  }",
        "}",
    ]


def test_threads_that_have_fewer_elements_skip_the_rest() -> None:
    before, after = held([columns(used(load(COLUMN)), start=infix("%", THREAD, 8), step=12)])
    assert "if (column_turn_0 * 12 + (thread_0 % 8) < 16) {\n" in before
    assert "if (!(column < 16)) continue;" in after


def test_a_loop_that_counts_down() -> None:
    loop = For(INT, "column", number(7), number(0), down=True, body=(used(load(COLUMN)),))
    before, after = held([loop])
    assert "float w_held_0[8];" in before
    assert "w_held_0[column_turn_0] = w[-column_turn_0 + 7];" in before
    assert "const int column = 7 + -column_turn_0;" in after


def test_a_scalar_is_a_variable() -> None:
    before, after = held([used(load(Index()))])
    assert before.splitlines()[1:] == ["float w_held_0;", "w_held_0 = w[0];"]
    assert "sum += w_held_0;" in after


def test_a_vector_is_held_as_one() -> None:
    vector = LoadVector(Scalar("bf16"), 8, Name("h"), Integer(COLUMN * 8))
    before, after = held([columns(Let(Raw.LOADED, "v", vector), start=number(0), step=1)])
    assert "fs_loaded<bf16, 8> h_held_0[16];" in before
    assert "const auto v = h_held_0[column];" in after


def test_the_branch_of_a_load_is_asked_before() -> None:
    first = infix("<", THREAD, 3)
    body = If(
        first,
        body=(used(load(Index())),),
        others=(
            Branch(infix("<", THREAD, 5), (used(load(Index((), 1))),)),
            Branch(None, (used(load(Index((), 2))),)),
        ),
    )
    before, _ = held([body])
    assert "if (thread_0 < 3) {\n  w_held_0 = w[0];" in before
    assert "if (!(thread_0 < 3) && thread_0 < 5) {\n  w_held_1 = w[1];" in before
    assert "if (!(thread_0 < 3) && !(thread_0 < 5)) {\n  w_held_2 = w[2];" in before


def test_numbers_of_blocks_may_become_negative() -> None:
    """Those of the hardware have no sign: 0 - 1 >= 0 would hold."""
    there = infix(">=", infix("-", infix("/", BLOCK, 2), 1), 0)
    before, _ = held([If(there, body=(used(load(variable("blockIdx.x", 8) * 4 - 8)),))])
    assert before.startswith("const int block_0 = blockIdx.x;\n")
    assert "if (block_0 / 2 - 1 >= 0) {\n  w_held_0 = w[block_0 * 4 - 8];" in before
    assert "blockIdx.x" not in before[len("const int block_0 = blockIdx.x;") :]


def test_what_is_skipped_is_not_loaded() -> None:
    before, _ = held([columns(Skip(infix(">=", Name("column"), 9)), used(load(COLUMN)))])
    assert "if (!(" in before
    assert ">= 9)) {" in before


def test_a_place_that_is_the_lesser_of_two() -> None:
    row = Let(INT, "row", least(INT, infix("/", THREAD, 2), 20))
    before, _ = held([row, used(load(variable("row", 21) * 3)), used(load(variable("row", 21)))])
    assert before.count("const int row_0 = fs_min<int>((thread_0 / 2), 20);") == 1
    assert "w_held_0 = w[row_0 * 3];" in before


def test_those_that_fit_are_held_and_those_read_most_come_first() -> None:
    often = columns(used(load(Index((), 5))), start=number(0), step=1)
    before, after = held([columns(used(load(COLUMN)), start=number(0), step=1), often], room=4)
    assert "w_held_0 = w[5];" in before
    assert "sum += w[column];" in after


def test_loops_in_each_other_are_not_all_written_out() -> None:
    """64 rows and 32 columns would be the same statement 2048 times."""
    rows = variable("row", 64)
    product = columns(used(load(COLUMN)), used(load(rows, "h")), start=number(0), step=1)
    inner = replace(product, stop=number(32))
    before, _ = held([For(INT, "row", number(0), number(64), body=(inner,))], room=128)
    assert "w_held" in before
    assert "h_held" not in before


TURN = variable("turn", 9)
OTHER = used(load(Index(), "w"))


@pytest.mark.parametrize(
    "body",
    [
        [used(load(TURN))],
        [Let(INT, "place", Load(Name("i"), number(0))), used(load(variable("place", 4)))],
        [OTHER, Store("w", number(0), number(1))],
        [OTHER, Swap("w", "h")],
        [OTHER, Let(PointerTo(FLOAT), "p", infix("+", Name("w"), 1))],
        [used(Choice(((infix("<", Name("turn"), 3), load(Index())),), number(0)))],
        [If(infix("<", Name("turn"), 3), body=(OTHER,))],
        [If(infix("<", Name("sum"), 3), body=(OTHER,)), used(number(1))],
        [While((Leave(infix("<", Name("sum"), 3)), OTHER))],
        [For(INT, "column", number(0), Name("sum"), body=(OTHER,)), used(number(1))],
        [used(load(Index(), "elsewhere"))],
        [Let(INT, "k", number(0), changes=True), used(load(variable("k", 4)))],
        [Skip(Not(Name("sum"))), OTHER, used(number(1))],
    ],
)
def test_what_iterations_change_or_may_not_read_is_not_held(body: list[Statement]) -> None:
    before, after = held(body)
    assert not before
    assert after == text([For(INT, "turn", number(0), number(9), body=tuple(body))])
