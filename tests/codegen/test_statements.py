"""The statements of the kernel IR: how they print, how they are written, what is inside of them."""

from __future__ import annotations

import typing

import pytest

from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.leaves import frame, leaves, mentions, with_leaves
from fusionstitch.codegen.ir.printer import text
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    Barrier,
    Blank,
    Branch,
    Call,
    Fill,
    For,
    Group,
    If,
    Let,
    Note,
    Scope,
    Skip,
    Statement,
    Store,
    StoreVector,
    Table,
    unrolled,
)

#: One statement of each kind, or more, with its text.
PRINTED: tuple[tuple[Statement, str], ...] = (
    (Note("// y: f32[4] exponential"), "// y: f32[4] exponential"),
    (Blank(), ""),
    (Let("float", "x", "in[row]"), "const float x = in[row];"),
    (Let("const float*", "from", "a ? b : c"), "const float* const from = a ? b : c;"),
    (Let("float", "total", "0.0f", changes=True), "float total = 0.0f;"),
    (Array("float", "x"), "float x;"),
    (Array("float", "row", "8"), "float row[8];"),
    (Array("float", "row", "8", zero=True), "float row[8] = {};"),
    (Table("int", "at", ("3", "5")), "const int at[2] = {3, 5};"),
    (Table("const float*", "from", ("a", "b")), "const float* const from[2] = {a, b};"),
    (Assign("total", "x"), "total = x;"),
    (Assign("total", "x", "+"), "total += x;"),
    (Store("out", "row * 4", "x"), "out[row * 4] = x;"),
    (StoreVector("out", "row * 4", "v"), "fs_store_vec(out + row * 4, v);"),
    (StoreVector("out", "row", "v", "live"), "if (live) fs_store_vec(out + row, v);"),
    (Fill("row", 8, "0.0f"), "FS_UNROLL for (int i = 0; i < 8; ++i) row[i] = 0.0f;"),
    (Call("fs_mma<2>", ("a", "b")), "fs_mma<2>(a, b);"),
    (Barrier(Scope.TEAM, 128), "fs_team_barrier<128>();"),
    (Barrier(Scope.BLOCK), "__syncthreads();"),
    (Barrier(Scope.CLUSTER, why="all run"), "fs_cluster_barrier();  // all run"),
    (Barrier(Scope.GRID), "fs_grid_barrier();"),
    (Skip("left_out"), "if (left_out) continue;"),
    (Group((Assign("a", "b"), Assign("c", "d"))), "a = b;\nc = d;"),
    (For("int", "i", "0", "n"), "for (int i = 0; i < n; ++i) {\n}"),
    (For("int", "i", "j", "n", step="32"), "for (int i = j; i < n; i += 32) {\n}"),
    (For("int", "i", "n - 1", "0", down=True), "for (int i = n - 1; i >= 0; --i) {\n}"),
    (For("int", "i", "0", "n", unroll=4), "FS_UNROLL_BY(4) for (int i = 0; i < n; ++i) {\n}"),
    (unrolled("i", 3), "FS_UNROLL for (int i = 0; i < 3; ++i) {\n}"),
    (
        If("i < n", Let("int", "i", "threadIdx.x"), (Skip("i == 2"),)),
        "if (const int i = threadIdx.x; i < n) {\n  if (i == 2) continue;\n}",
    ),
    (
        If("a", None, (), (Branch("b", (Assign("x", "y"),)), Branch(""))),
        "if (a) {\n}\nelse if (b) {\n  x = y;\n}\nelse {\n}",
    ),
)


@pytest.mark.parametrize(("statement", "printed"), PRINTED)
def test_statements_print_as_c(statement: Statement, printed: str) -> None:
    assert text([statement]) == printed


def test_every_kind_of_statement_is_printed() -> None:
    assert {type(one) for one, _ in PRINTED} == set(typing.get_args(Statement))


@pytest.mark.parametrize("statement", [one for one, _ in PRINTED])
def test_leaves_can_be_taken_out_and_put_back(statement: Statement) -> None:
    texts = [leaf.text for leaf in leaves(statement)]
    assert with_leaves(statement, iter(texts)) == statement
    assert with_leaves(frame(statement), iter(texts)) == statement


def test_notes_mention_nothing() -> None:
    said = [Note("// row"), Barrier(Scope.BLOCK, why="row"), Assign("rows", "x_row")]
    assert not mentions(said, "row")
    assert mentions([unrolled("i", 4), If("x", None, (Assign("x", "a[row]"),))], "row")


def test_what_is_hoisted_precedes_the_frame_it_leaves() -> None:
    writer = Writer()
    with writer.nested(unrolled("i", 4)), writer.nested(If("i < n")):
        writer.let("int", "n", "3", depth=0)
        writer.let("int", "k", "i", depth=1)
        writer.add(Assign("x", "k"))
    assert text(writer.body) == (
        "const int n = 3;\n"
        "FS_UNROLL for (int i = 0; i < 4; ++i) {\n"
        "  const int k = i;\n"
        "  if (i < n) {\n"
        "    x = k;\n"
        "  }\n"
        "}"
    )


def test_branches_belong_to_the_condition_before() -> None:
    writer = Writer()
    with writer.nested(If("a")):
        writer.add(Assign("x", "1"))
    with writer.otherwise("b"):
        writer.add(Assign("x", "2"))
    with writer.otherwise():
        writer.add(Assign("x", "3"))
    one = If("a", None, (Assign("x", "1"),))
    others = (Branch("b", (Assign("x", "2"),)), Branch("", (Assign("x", "3"),)))
    assert writer.body == (If(one.condition, None, one.body, others),)


def test_a_name_is_given_once() -> None:
    writer = Writer()
    assert [writer.name("x") for _ in range(3)] == ["x", "x_1", "x_2"]
    assert writer.name("x_1") == "x_1_1"
