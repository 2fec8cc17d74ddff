"""The pass that makes vectors of neighbouring accesses: which it may make, and which it may not."""

from __future__ import annotations

import pytest

from fusionstitch.codegen.index_maps.index import Index, constant, variable
from fusionstitch.codegen.ir.expressions import (
    THREAD,
    Choice,
    Expr,
    Integer,
    Load,
    Name,
    Number,
    apply,
    infix,
)
from fusionstitch.codegen.ir.intrinsics import LOAD
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.passes.vectors import gather_vectors
from fusionstitch.codegen.ir.printer import text
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Assign,
    Barrier,
    For,
    If,
    Leave,
    Let,
    Skip,
    Statement,
    Store,
    While,
)
from fusionstitch.codegen.ir.types import BOOL, FLOAT, INT, Scalar
from fusionstitch.codegen.ir.verifier import verify

ROW, OTHER = variable("row", 16), variable("other", 16)
BUFFERS = (
    Buffer("x", FLOAT, 256, Memory.INPUT),
    Buffer("odd", FLOAT, 63, Memory.INPUT),
    Buffer("halves", Scalar("bf16"), 128, Memory.INPUT),
    Buffer("changing", FLOAT, 64, Memory.INPUT, overwritten=True),
    Buffer("out", FLOAT, 64, Memory.OUTPUT),
    Buffer("kept", FLOAT, 64, Memory.SCRATCH),
)
ASKED = infix("<", Name("row"), 3)


def at(n: int, row: Index = ROW, fields: int = 4) -> Integer:
    return Integer(row * fields + constant(n))


def field(n: int, buffer: str = "x", row: Index = ROW) -> Load:
    return Load(Name(buffer), at(n, row))


def read(n: int, buffer: str = "x") -> Let:
    return Let(FLOAT, f"{buffer}_{n}", field(n, buffer))


def write(n: int, row: Index = ROW, buffer: str = "out", value: str = "1.0f") -> Store:
    return Store(buffer, at(n, row), Number(value))


def passed(*body: Statement) -> Lowered:
    """A kernel of a loop over rows with these statements, after the pass."""
    rows = For(INT, "row", THREAD, Number("16"), step=128, body=body)
    others = For(INT, "other", Number("0"), Number("16"), body=(rows,))
    used = [one.name for one in BUFFERS]
    return gather_vectors(Lowered("k", BUFFERS, (), (others,), 128, 1, 16, 0), Names(used))


def gathered(*body: Statement) -> str:
    """Its text; it breaks no rule."""
    kernel = passed(*body)
    verify(kernel)
    return text(kernel.body)


def test_fields_are_read_at_once() -> None:
    printed = gathered(*map(read, (2, 0, 3, 1)))
    assert printed.count("fs_load_vec") == 1
    assert "const auto x_vector = fs_load_vec<float, 4>(x + row * 4);" in printed
    assert "const float x_2 = x_vector[2];" in printed
    assert "x[" not in printed


def test_three_of_four_are_read_as_four_and_two_as_two() -> None:
    assert "fs_load_vec<float, 4>" in gathered(read(0), read(1), read(3))
    assert "fs_load_vec<float, 2>(x + row * 4 + 2)" in gathered(read(2), read(3))
    assert "fs_load_vec" not in gathered(read(1), read(2))


def test_the_rest_of_a_vector_lies_inside_its_buffer_or_it_is_not_read() -> None:
    printed = gathered(*(read(n, "odd") for n in range(3)))
    assert "fs_load_vec<float, 2>(odd + row * 4)" in printed
    assert "odd[row * 4 + 2]" in printed


def test_values_of_two_bytes_are_read_as_they_are_computed_with() -> None:
    loads = [apply(LOAD, Load(Name("halves"), at(n, fields=8))) for n in range(8)]
    printed = gathered(*(Let(FLOAT, f"h_{n}", load) for n, load in enumerate(loads)))
    assert "fs_load_vec<bf16, 8>(halves + row * 8)" in printed
    assert "const float h_5 = fs_load(halves_vector[5]);" in printed


def test_loads_inside_of_expressions_are_found() -> None:
    total: Expr = infix("+", *(field(n) for n in range(4)))
    assert "x_vector[0] + x_vector[1]" in gathered(Let(FLOAT, "total", total))


@pytest.mark.parametrize(
    "body",
    [
        (read(0), If(ASKED, body=(read(1),))),
        (read(0), Skip(ASKED), read(1)),
        (read(0), If(ASKED, body=(Skip(ASKED),)), read(1)),
        (While((read(0), Leave(ASKED), read(1))),),
        (Let(FLOAT, "x_1", Choice(((ASKED, field(0)),), field(1))),),
        (Let(BOOL, "x_1", infix("&&", ASKED, field(0), field(1))),),
    ],
    ids=["branch", "skipped", "skipped inside", "left", "chosen", "asked one after the other"],
)
def test_what_may_not_be_read_is_not_read_ahead(body: tuple[Statement, ...]) -> None:
    assert "fs_load_vec" not in gathered(*body)


def test_what_is_read_before_is_known_inside_of_frames_behind_it_only() -> None:
    inside = If(ASKED, body=(Let(FLOAT, "early", field(1)),))
    after = If(ASKED, body=(Let(FLOAT, "late", field(1)),))
    printed = gathered(inside, *map(read, range(4)), after)
    assert "early = x[row * 4 + 1]" in printed
    assert "late = x_vector[1]" in printed


def test_only_what_holds_still_is_read_at_once() -> None:
    assert "fs_load_vec" not in gathered(*(read(n, "changing") for n in range(4)))
    assert "fs_load_vec" not in gathered(*(read(n, "kept") for n in range(4)))


def test_places_that_change_are_not_the_same_for_looking_alike() -> None:
    position = variable("place", 8)
    begin = Let(INT, "place", THREAD, changes=True)
    step = Assign(Name("place"), infix("+", Name("place"), 1))
    loads = [Let(FLOAT, f"x_{n}", field(n, row=position)) for n in range(4)]
    printed = gathered(begin, *loads[:2], step, *loads[2:])
    assert "fs_load_vec" not in printed


def test_what_a_warp_reads_alike_is_read_one_by_one() -> None:
    for position in (OTHER, ROW // 64, (ROW + OTHER * 64) // 32):
        loads = [Let(FLOAT, f"x_{n}", field(n, row=position)) for n in range(4)]
        assert "fs_load_vec" not in gathered(*loads)
    for position in (ROW + OTHER, ROW // 8, ROW % 8):
        loads = [Let(FLOAT, f"x_{n}", field(n, row=position)) for n in range(4)]
        assert "fs_load_vec" in gathered(*loads)


def test_fields_are_written_at_once() -> None:
    printed = gathered(write(1), Let(FLOAT, "y", Number("2.0f")), write(0, value="y"))
    assert "fs_vec<float, 2> out_vector;" in printed
    lines = [line.strip() for line in printed.splitlines()]
    assert lines[-4:-2] == ["out_vector[0] = y;", "fs_store_vec(out + row * 4, out_vector);"]
    assert "out_vector[1] = 1.0f;" in lines
    assert "fs_store_vec" not in gathered(*map(write, (1, 2)))
    three = gathered(*map(write, range(3)))
    assert "fs_store_vec(out + row * 4, out_vector)" in three
    assert "out[row * 4 + 2] = 1.0f;" in three


@pytest.mark.parametrize(
    "body",
    [
        (write(0), Barrier(Scope.BLOCK), write(1)),
        (write(0), If(ASKED, body=(write(1),))),
        (write(0), write(1), write(0, value="2.0f")),
        (write(0), write(1, OTHER), write(1)),
        (write(0, buffer="kept"), write(1, buffer="kept")),
        (write(0), Store("out", THREAD, Number("3.0f")), write(1)),
    ],
    ids=["barrier", "branch", "twice", "another row", "scratch", "anywhere"],
)
def test_what_others_may_see_is_written_one_by_one(body: tuple[Statement, ...]) -> None:
    assert "fs_store_vec" not in text(passed(*body).body)


def test_what_is_read_again_is_written_one_by_one() -> None:
    """Addresses that are the same decide whether a barrier is needed in between."""
    back = Let(FLOAT, "back", field(0, "out"))
    assert "fs_store_vec" not in text(passed(write(0), write(1), back).body)


def test_rows_one_after_the_other_are_written_each_at_once() -> None:
    printed = gathered(write(0), write(1), write(0, OTHER), write(1, OTHER))
    assert printed.count("fs_store_vec") == 2
    assert "out_vector_1" in printed
