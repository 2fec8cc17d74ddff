"""The kernel IR: how statements and expressions print, how they are written, what is inside."""

from __future__ import annotations

import typing

import pytest

from fusionstitch.codegen.index_maps.index import Index, constant, variable
from fusionstitch.codegen.ir.addresses import readdressed
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    SHARED,
    THREAD,
    Address,
    Arithmetic,
    Cast,
    Choice,
    Element,
    Expr,
    Infix,
    Integer,
    Load,
    LoadVector,
    Name,
    Named,
    Not,
    Number,
    Pointer,
    all_of,
    apply,
    element,
    infix,
    least,
    number,
    pointer_at,
)
from fusionstitch.codegen.ir.intrinsics import ALIGNED, MAXIMUM, MMA
from fusionstitch.codegen.ir.printer import function, text
from fusionstitch.codegen.ir.renaming import renamed
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.spelling import spell
from fusionstitch.codegen.ir.statements import (
    Array,
    Arrive,
    Assign,
    Barrier,
    Blank,
    Branch,
    Call,
    Fill,
    For,
    Function,
    Group,
    If,
    Invoke,
    Leave,
    Let,
    Note,
    Shared,
    Skip,
    Statement,
    Store,
    StoreVector,
    Swap,
    Table,
    Wait,
    While,
    unrolled,
)
from fusionstitch.codegen.ir.types import FLOAT, INT, LONG, PointerTo
from fusionstitch.codegen.ir.walk import every, mapped, mentions, names
from fusionstitch.hlo.graph import Op, Shape

ROW, LANE = variable("row", 100), variable("lane", 32)
A, B, C = Name("a"), Name("b"), Name("c")
SCALAR = Shape("f32")


def op(opcode: str, operands: int = 1, **attrs: object) -> Op:
    inputs = tuple(Op("parameter", SCALAR) for _ in range(operands))
    return Op(opcode, SCALAR, inputs, dict(attrs))


#: Expressions of each kind, or more, with their texts.
SPELT: tuple[tuple[Expr, str], ...] = (
    (A, "a"),
    (Number("0.5f"), "0.5f"),
    (Integer(Index()), "0"),
    (Integer(ROW * 4 + LANE - 3), "row * 4 + lane - 3"),
    (Integer((ROW + 1) // 3), "((row + 1) / 3)"),
    (Named(("row", " * ", "at_0")), "row * at_0"),
    (element("kept", LANE), "kept[lane]"),
    (Element(element("kept", LANE), Name("v")), "kept[lane][v]"),
    (Load(A, Integer(ROW * 8)), "a[row * 8]"),
    (Load(apply(ALIGNED, A), Integer(ROW)), "fs_aligned(a)[row]"),
    (LoadVector(FLOAT, 4, A, Integer(ROW * 4)), "fs_load_vec<float, 4>(a + row * 4)"),
    (LoadVector(FLOAT, 4, A, Integer(Index())), "fs_load_vec<float, 4>(a)"),
    (Arithmetic(op("tanh"), (A,), "default"), "tanhf(a)"),
    (Arithmetic(op("add", 2), (A, infix("*", B, C)), "default"), "a + (b * c)"),
    (apply(MAXIMUM, A, number(3)), "fs_max(a, 3)"),
    (least(INT, A, 3), "fs_min<int>(a, 3)"),
    (least(None, 4, A), "fs_min(4, a)"),
    (Cast(INT, A), "int(a)"),
    (Cast(LONG, A), "static_cast<long long>(a)"),
    (Not(A), "!(a)"),
    (infix("+", A, B, C), "a + b + c"),
    (infix("-", A, infix("-", B, C)), "a - (b - c)"),
    (infix("-", infix("-", A, B), C), "a - b - c"),
    (infix("*", infix("+", A, B), 2), "(a + b) * 2"),
    (infix("%", infix("*", A, B), 2), "(a * b) % 2"),
    (infix("*", A, Arithmetic(op("add", 2), (A, B), "default")), "a * (a + b)"),
    (infix("<", Integer(ROW * 4 + 1), 7), "row * 4 + 1 < 7"),
    (infix("-", Name("n"), Integer(constant(-2))), "n - -2"),
    (infix("+", infix("*", infix("%", BLOCK, 4), 64), THREAD), "blockIdx.x % 4 * 64 + threadIdx.x"),
    (Choice(((A, B),), C), "a ? b : c"),
    (Choice(((infix("<", A, 3), B), (B, C)), A), "a < 3 ? b : b ? c : a"),
    (infix("*", Choice(((A, B),), C), 2), "(a ? b : c) * 2"),
    (Address(A, Integer(ROW)), "&a[row]"),
    (pointer_at(A, ROW), "a + row"),
    (Pointer(FLOAT, SHARED), "(float*)shared_memory"),
    (Pointer(FLOAT, infix("+", SHARED, 64)), "(float*)(shared_memory + 64)"),
)


@pytest.mark.parametrize(("expr", "spelt"), SPELT)
def test_expressions_are_spelt_as_c(expr: Expr, spelt: str) -> None:
    assert spell(expr) == spelt


def test_ops_are_equal_that_compute_the_same() -> None:
    one, other = (Arithmetic(op("add", 2), (A, B), "default") for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Arithmetic(op("add", 2), (A, C), "default")
    assert one != Arithmetic(op("multiply", 2), (A, B), "default")


def test_every_kind_of_expression_is_spelt() -> None:
    assert {type(one) for one, _ in SPELT} == set(typing.get_args(Expr))


def test_conditions_that_always_hold_are_left_out() -> None:
    assert all_of([None, None]) is None
    assert all_of([None, A]) == A
    assert all_of([A, None, B]) == Infix("&&", (A, B))


#: One statement of each kind, or more, with its text.
PRINTED: tuple[tuple[Statement, str], ...] = (
    (Note("// y: f32[4] exponential"), "// y: f32[4] exponential"),
    (Blank(), ""),
    (Let(FLOAT, "x", Load(A, Integer(ROW))), "const float x = a[row];"),
    (Let(PointerTo(FLOAT, constant=True), "from", A), "const float* const from = a;"),
    (Let(FLOAT, "total", Number("0.0f"), changes=True), "float total = 0.0f;"),
    (Array(FLOAT, "x"), "float x;"),
    (Array(FLOAT, "row", 8), "float row[8];"),
    (Array(FLOAT, "row", 8, zero=True), "float row[8] = {};"),
    (Shared(FLOAT, "kept", 0, 8), "float* const kept = (float*)shared_memory;"),
    (Shared(FLOAT, "kept", 64, 8), "float* const kept = (float*)(shared_memory + 64);"),
    (Table(INT, "at", (number(3), number(5))), "const int at[2] = {3, 5};"),
    (
        Table(PointerTo(FLOAT, constant=True), "from", (A, B)),
        "const float* const from[2] = {a, b};",
    ),
    (Assign(A, B), "a = b;"),
    (Assign(element("sums", LANE), B, "+"), "sums[lane] += b;"),
    (Store("out", Integer(ROW * 4), A), "out[row * 4] = a;"),
    (Store("out", Integer(ROW), A, blocks=4), "fs_store_all<4>(out + row, a);"),
    (StoreVector("out", Integer(ROW), "v", blocks=4), "fs_store_vec_all<4>(out + row, v);"),
    (StoreVector("out", Integer(ROW * 4), "v"), "fs_store_vec(out + row * 4, v);"),
    (StoreVector("out", Integer(ROW), "v", A), "if (a) fs_store_vec(out + row, v);"),
    (Fill("row", 8, A), "FS_UNROLL for (int i = 0; i < 8; ++i) row[i] = a;"),
    (Call(MMA, (2, 1), (A, pointer_at(B, LANE))), "fs_mma<2, 1>(a, b + lane);"),
    (Invoke("part", (A, pointer_at(B, LANE))), "part(a, b + lane);"),
    (Barrier(Scope.TEAM, 128), "fs_team_barrier<128>();"),
    (Barrier(Scope.BLOCK), "__syncthreads();"),
    (Barrier(Scope.CLUSTER, why="all run"), "fs_cluster_barrier();  // all run"),
    (Barrier(Scope.GRID), "fs_grid_barrier();"),
    (Arrive("done", Integer(ROW)), "fs_arrive(&done[row]);"),
    (Wait("done", Integer(ROW + 1), B), "fs_wait(&done[row + 1], b);"),
    (Skip(A), "if (a) continue;"),
    (Leave(A), "if (a) break;"),
    (Swap("a", "b"), "fs_swap(a, b);"),
    (While((Leave(A), Assign(A, B))), "while (true) {\n  if (a) break;\n  a = b;\n}"),
    (Group((Assign(A, B), Assign(B, C))), "a = b;\nb = c;"),
    (For(INT, "i", number(0), A), "for (int i = 0; i < a; ++i) {\n}"),
    (For(INT, "i", B, A, step=32), "for (int i = b; i < a; i += 32) {\n}"),
    (For(INT, "i", A, B, down=True), "for (int i = a; i >= b; --i) {\n}"),
    (
        For(INT, "i", number(0), A, unroll=4),
        "FS_UNROLL_BY(4) for (int i = 0; i < a; ++i) {\n}",
    ),
    (unrolled("i", 3), "FS_UNROLL for (int i = 0; i < 3; ++i) {\n}"),
    (
        If(infix("<", Name("i"), 5), Let(INT, "i", THREAD), (Skip(A),)),
        "if (const int i = threadIdx.x; i < 5) {\n  if (a) continue;\n}",
    ),
    (
        If(A, None, (), (Branch(B, (Assign(A, C),)), Branch(None))),
        "if (a) {\n}\nelse if (b) {\n  a = c;\n}\nelse {\n}",
    ),
)


@pytest.mark.parametrize(("statement", "printed"), PRINTED)
def test_statements_print_as_c(statement: Statement, printed: str) -> None:
    assert text([statement]) == printed


def test_every_kind_of_statement_is_printed() -> None:
    assert {type(one) for one, _ in PRINTED} == set(typing.get_args(Statement))


def test_a_function_has_its_parameters_line_by_line() -> None:
    one = Function("part", ((INT, "tile"), (PointerTo(FLOAT), "out")), (Assign(A, B),))
    assert list(function(one)) == [
        "static __device__ __noinline__ void part(\n    const int tile,\n    float* out) {",
        "  a = b;",
        "}\n",
    ]


# ---- what is inside ------------------------------------------------------------------------------

NODES = [one for one, _ in (*SPELT, *PRINTED)]


@pytest.mark.parametrize("node", NODES)
def test_a_node_with_nothing_replaced_is_the_same(node: Statement | Expr) -> None:
    assert mapped(node, lambda part: part) == node


@pytest.mark.parametrize("statement", [one for one, _ in PRINTED])
def test_names_can_be_changed_and_nothing_else(statement: Statement) -> None:
    swapped = {"a": "b", "b": "a"}
    there = renamed(statement, lambda name: swapped.get(name, name))
    back = renamed(there, lambda name: swapped.get(name, name))
    assert text([back]) == text([statement])
    assert len(list(every([there]))) == len(list(every([statement])))


def test_notes_mention_nothing() -> None:
    message = [Note("// row"), Barrier(Scope.BLOCK, why="row"), Assign(Name("rows"), Name("x_row"))]
    assert not mentions(message, "row")
    assert mentions([unrolled("i", 4), If(A, None, (Assign(B, Load(A, Integer(ROW))),))], "row")
    assert mentions([Store("out", Integer(Index()), A)], "out")
    assert "lane" in set(names(element("x", ROW + LANE)))


def test_constants_of_addresses_alone_are_spelt_anew() -> None:
    found: list[str] = []

    def new(constant: str) -> str:
        found.append(constant)
        return f"at_{len(found)}"

    statements = (
        Let(FLOAT, "x", infix("*", Load(A, Integer(ROW * 8 + LANE + 5)), Number("2.0f"))),
        Store("out", Integer((ROW // 3) * 7), infix("+", Name("x"), 9)),
        Assign(Element(Name("kept"), infix("+", infix("*", Name("step"), 4), Name("v"))), A),
    )
    one = readdressed(Group(statements), new)
    assert text([one]) == (
        "const float x = a[row * at_1 + lane + at_2] * 2.0f;\n"
        "out[(row / at_3) * at_4] = x + 9;\n"
        "kept[step * at_5 + v] = a;"
    )
    assert found == ["8", "5", "3", "7", "4"]


# ---- writing -------------------------------------------------------------------------------------


def test_what_is_hoisted_precedes_the_frame_it_leaves() -> None:
    writer = Writer()
    with writer.nested(unrolled("i", 4)), writer.nested(If(A)):
        writer.let(INT, "n", number(3), depth=0)
        writer.let(INT, "k", Name("i"), depth=1)
        writer.add(Assign(B, Name("k")))
    assert text(writer.body) == (
        "const int n = 3;\n"
        "FS_UNROLL for (int i = 0; i < 4; ++i) {\n"
        "  const int k = i;\n"
        "  if (a) {\n"
        "    b = k;\n"
        "  }\n"
        "}"
    )


def test_branches_belong_to_the_condition_before() -> None:
    writer = Writer()
    with writer.nested(If(A)):
        writer.add(Assign(C, number(1)))
    with writer.otherwise(B):
        writer.add(Assign(C, number(2)))
    with writer.otherwise():
        writer.add(Assign(C, number(3)))
    others = (Branch(B, (Assign(C, number(2)),)), Branch(None, (Assign(C, number(3)),)))
    assert writer.body == (If(A, None, (Assign(C, number(1)),), others),)


def test_what_leaves_a_branch_stands_before_its_condition() -> None:
    writer = Writer()
    with writer.nested(If(A)):
        writer.add(Assign(C, number(1)))
    with writer.otherwise():
        writer.let(INT, "n", number(3), depth=0)
        writer.add(Assign(C, Name("n")))
    others = (Branch(None, (Assign(C, Name("n")),)),)
    assert writer.body == (
        Let(INT, "n", number(3)),
        If(A, None, (Assign(C, number(1)),), others),
    )


def test_a_name_is_given_once() -> None:
    writer = Writer()
    assert [writer.name("x") for _ in range(3)] == ["x", "x_1", "x_2"]
    assert writer.name("x_1") == "x_1_1"
