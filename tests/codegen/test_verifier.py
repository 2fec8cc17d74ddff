"""The verifier of kernels: faults that are planted are found, and what is right passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fusionstitch.codegen import assembly
from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.index_maps.index import Index, constant, variable
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    SHARED,
    THREAD,
    Element,
    Expr,
    Integer,
    Load,
    LoadVector,
    Name,
    Number,
    apply,
    element,
    infix,
    number,
    pointer_at,
)
from fusionstitch.codegen.ir.intrinsics import (
    ALL_LANES,
    ALL_THREADS,
    ANNOUNCE,
    REDUCE_BLOCK,
    REDUCE_LANES,
    REDUCE_TEAM,
)
from fusionstitch.codegen.ir.kernel import Buffer, Lowered, Overwriting
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    FILLED,
    Array,
    Assign,
    Barrier,
    Branch,
    Call,
    Fill,
    For,
    Function,
    If,
    Invoke,
    Leave,
    Let,
    Shared,
    Skip,
    Statement,
    Store,
    StoreVector,
    Table,
    unrolled,
)
from fusionstitch.codegen.ir.types import FLOAT, INT, PointerTo, Raw, Type, VectorOf
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.hlo.errors import PassError
from tests.codegen.cases import CASES

X, ROW, LANE = Name("x"), variable("row", 64), variable("lane", 32)
NOWHERE = Integer(Index())
BUFFERS = (
    Buffer("x", FLOAT, 64, Memory.INPUT),
    Buffer("out", FLOAT, 64, Memory.OUTPUT),
    Buffer("between", FLOAT, 64, Memory.SCRATCH),
    Buffer("table", FLOAT, 8, Memory.CONSTANT),
)


def kernel(*body: Statement, functions: Sequence[Function] = ()) -> Lowered:
    return Lowered(
        *("k", BUFFERS, tuple(functions), body),
        block=128,
        cluster=4,
        grid=16,
        shared=4096,
        cooperative=True,
    )


def load(buffer: str, at: Index) -> Load:
    return Load(Name(buffer), Integer(at))


def rows(*body: Statement, stop: int = 64) -> For:
    return For(INT, "row", number(0), number(stop), body=body)


def own_rows(*body: Statement) -> For:
    """A row each thread."""
    return For(INT, "row", THREAD, number(64), step=128, body=body)


def where(condition: Expr, *body: Statement) -> If:
    return If(condition, None, body)


def let(name: str, value: Expr, kind: Type = FLOAT) -> Let:
    return Let(kind, name, value)


BLOCKS, TEAMS, GRID = Barrier(Scope.BLOCK), Barrier(Scope.TEAM, 64), Barrier(Scope.GRID)
CLUSTER = Barrier(Scope.CLUSTER)
ROWS_SHARED = Shared(FLOAT, "kept", 0, 64)
OVERLAPPING = Shared(FLOAT, "other", 128, 64)
KEEP = rows(Store("kept", Integer(ROW), load("x", ROW)))
SPREAD = rows(Store("kept", Integer(ROW), load("x", ROW), blocks=4))
USE = rows(Store("out", Integer(ROW), load("kept", ROW)))
LANES = let("lane", infix("%", THREAD, 32), INT)
WARPS = let("warp", infix("/", THREAD, 32), INT)
JOIN_LANES = let("sum", apply(REDUCE_LANES, load("x", Index()), template=(32, "FsAdd")))
JOIN_BLOCK = Call(REDUCE_BLOCK, (4, "FsAdd"), (SHARED, Name("sum")))
JOIN_TEAM = Call(REDUCE_TEAM, (2, "FsAdd"), (SHARED, Name("sum")))
SUM = Let(FLOAT, "sum", Number("0.0f"), changes=True)
SPILL = rows(Store("between", Integer(ROW), load("x", ROW)))
FETCH = rows(Store("out", Integer(ROW), load("between", ROW)))
COPY = Function(
    "copy",
    ((INT, "tile"), (PointerTo(FLOAT, constant=True), "in_0"), (PointerTo(FLOAT), "out_0")),
    (rows(Store("out_0", Integer(ROW), load("in_0", ROW))),),
)


def copied(source: str, target: str) -> Invoke:
    return Invoke("copy", (number(0), Name(source), Name(target)))


def in_place(*body: Statement) -> Lowered:
    """A kernel whose output may lie in the memory of its input, for the threads of a block."""
    over = replace(BUFFERS[0], overwritten=True, by=Overwriting("out", Scope.BLOCK))
    return replace(kernel(*body), buffers=(over, *BUFFERS[1:]))


FAULTS: dict[str, tuple[Lowered, str]] = {
    # names
    "used before": (kernel(rows(let("a", Name("b")), let("b", X))), "b is not known"),
    "used outside": (
        kernel(rows(let("a", load("x", ROW))), Store("out", NOWHERE, Name("a"))),
        "a is not known",
    ),
    "used in another branch": (
        kernel(
            If(
                infix("<", THREAD, 1),
                None,
                (let("a", load("x", Index())),),
                (Branch(None, (Store("out", NOWHERE, Name("a")),)),),
            )
        ),
        "a is not known",
    ),
    "no such buffer": (kernel(let("a", load("y", Index()))), "y is not known"),
    "declared twice": (kernel(let("a", X), let("a", X)), "a is declared twice"),
    "of the kernel, in a function": (
        kernel(LANES, functions=[Function("f", (), (let("a", Integer(LANE), INT),))]),
        "lane is not known",
    ),
    # vectors
    "a load that is not aligned": (
        kernel(rows(let("v", LoadVector(FLOAT, 4, X, Integer(ROW * 2)), Raw.LOADED))),
        "4 elements is not aligned",
    ),
    "a store that is not aligned": (
        kernel(rows(Array(VectorOf(FLOAT, 4), "v"), StoreVector("out", Integer(ROW * 4 + 2), "v"))),
        "4 elements is not aligned",
    ),
    # bounds
    "beyond an array": (
        kernel(Array(FLOAT, "sums", 4), rows(Assign(element("sums", ROW), X))),
        "sums has 4 elements, and 63 is accessed",
    ),
    "beyond an input": (
        kernel(rows(let("a", load("x", ROW + 1)))),
        "x has 64 elements, and 64 is accessed",
    ),
    "before an output": (
        kernel(Store("out", Integer(constant(-1)), X)),
        "out has 64 elements",
    ),
    "the end of a vector": (
        kernel(let("v", LoadVector(FLOAT, 4, X, Integer(constant(64))), Raw.LOADED)),
        "x has 64 elements, and 67 is accessed",
    ),
    "beyond a table": (kernel(rows(let("a", load("table", ROW)))), "table has 8 elements"),
    "beyond shared memory": (
        kernel(ROWS_SHARED, Store("kept", Integer(constant(64)), X)),
        "kept has 64 elements",
    ),
    "beyond known constants": (
        kernel(
            Table(INT, "at", (number(1), number(2))),
            For(INT, "t", number(0), number(3), body=(let("a", element("at", variable("t", 3))),)),
        ),
        "at has 2 elements",
    ),
    "filled beyond": (
        kernel(Array(FLOAT, "sums", 4), Fill("sums", 5, Number("0.0f"))),
        "sums has 4 elements, and 4 is accessed",
    ),
    "beyond by a condition of something else": (
        kernel(LANES, where(infix("<", Name("lane"), 3), let("a", load("x", constant(70))))),
        "x has 64 elements",
    ),
    # meetings
    "a block where threads part": (
        kernel(where(infix("<", THREAD, 64), BLOCKS)),
        "all threads meet where conditions part them by 64",
    ),
    "a team where lanes part": (
        kernel(LANES, where(infix("==", Name("lane"), 0), TEAMS)),
        "64 threads meet",
    ),
    "a team larger than what goes together": (
        kernel(WARPS, where(infix("<", Name("warp"), 3), TEAMS)),
        "64 threads meet where conditions part them by 32",
    ),
    "a block in a loop over a thread's rows": (
        kernel(For(INT, "r", infix("/", THREAD, 32), number(9), step=4, body=(BLOCKS,))),
        "all threads meet",
    ),
    "a block behind some who skip": (
        kernel(rows(Skip(infix("<", THREAD, 32)), BLOCKS)),
        "all threads meet where conditions part them by 32",
    ),
    "a block in a loop that some leave before others": (
        kernel(rows(BLOCKS, Leave(infix("<", THREAD, 32)))),
        "all threads meet where conditions part them by 32",
    ),
    "a block in a loop that its warps leave by votes of their own": (
        kernel(rows(BLOCKS, Leave(apply(ALL_LANES, Number("0xffffffffu"), THREAD)))),
        "all threads meet where conditions part them by 32",
    ),
    "a vote of the block where threads part": (
        kernel(where(infix("<", THREAD, 64), rows(Leave(apply(ALL_THREADS, Name("row")))))),
        "all threads meet where conditions part them by 64",
    ),
    "a block where data parts threads": (
        kernel(LANES, where(infix("<", load("x", LANE), 3), BLOCKS)),
        "all threads meet",
    ),
    "the grid where blocks part": (
        kernel(where(infix("<", BLOCK, 3), GRID)),
        "all blocks meet where conditions part them by 3",
    ),
    "a cluster where its blocks part": (
        kernel(where(infix("==", infix("%", BLOCK, 4), 0), CLUSTER)),
        "4 blocks meet",
    ),
    "lanes that are joined where they part": (
        kernel(LANES, where(infix("<", Name("lane"), 16), JOIN_LANES)),
        "32 threads meet",
    ),
    "a block that joins where its warps part": (
        kernel(SUM, where(infix("<", THREAD, 64), JOIN_BLOCK)),
        "all threads meet",
    ),
    "a team that joins where its warps part": (
        kernel(SUM, where(infix("<", infix("/", THREAD, 32), 1), JOIN_TEAM)),
        "64 threads meet",
    ),
    "in a function that is called where threads part": (
        kernel(
            where(infix("<", THREAD, 32), Invoke("f", ())), functions=[Function("f", (), (BLOCKS,))]
        ),
        "all threads meet",
    ),
    # clusters
    "blocks that may not have begun": (
        kernel(ROWS_SHARED, SPREAD, CLUSTER, USE),
        "kept of blocks is written that may not have begun",
    ),
    "blocks that may have ended": (
        kernel(ROWS_SHARED, CLUSTER, SPREAD),
        "kept of blocks is written that may have ended",
    ),
    "more blocks than a cluster has": (
        kernel(ROWS_SHARED, CLUSTER, Store("kept", NOWHERE, X, blocks=8), CLUSTER),
        "8 blocks are written to in clusters of 4",
    ),
    "global memory of blocks": (
        kernel(CLUSTER, Store("out", NOWHERE, X, blocks=4), CLUSTER),
        "out is no array in shared memory",
    ),
    # hazards
    "what other blocks wrote behind a barrier of the block": (
        kernel(ROWS_SHARED, CLUSTER, SPREAD, BLOCKS, USE, CLUSTER),
        "kept is read with no barrier after a write",
    ),
    "what other blocks may not have read": (
        kernel(ROWS_SHARED, CLUSTER, KEEP, BLOCKS, USE, BLOCKS, SPREAD, CLUSTER),
        "kept is written with no barrier after a read",
    ),
    "read before all have written": (
        kernel(ROWS_SHARED, KEEP, USE),
        "kept is read with no barrier after a write",
    ),
    "a barrier of too few": (
        kernel(ROWS_SHARED, KEEP, TEAMS, USE),
        "kept is read with no barrier after a write",
    ),
    "a barrier in one branch": (
        kernel(ROWS_SHARED, KEEP, where(infix("<", BLOCK, 3), BLOCKS), USE),
        "kept is read with no barrier after a write",
    ),
    "written for the next tile too early": (
        kernel(unrolled("t", 2), replace(unrolled("u", 2), body=(ROWS_SHARED, KEEP, BLOCKS, USE))),
        "kept is written with no barrier after a read",
    ),
    "an array over another one": (
        kernel(ROWS_SHARED, OVERLAPPING, KEEP, rows(Store("other", Integer(ROW), X))),
        "other is written where another array lies",
    ),
    "in place before all have read": (
        kernel(
            *(ROWS_SHARED, OVERLAPPING, KEEP, BLOCKS, USE),
            rows(Store("other", Integer(ROW), X)),
        ),
        "other is written with no barrier after a read",
    ),
    "scratch behind a barrier of the block": (
        kernel(SPILL, BLOCKS, FETCH),
        "between is read with no barrier after a write",
    ),
    "an input that others may still read": (
        in_place(rows(Store("out", Integer(ROW), load("x", ROW * -1 + 63)))),
        "out is written with no barrier after a read",
    ),
    "scratch in a function": (
        kernel(SPILL, copied("between", "out"), functions=[COPY]),
        "between is read with no barrier after a write",
    ),
    "scratch that a function wrote": (
        kernel(copied("x", "between"), FETCH, functions=[COPY]),
        "between is read with no barrier after a write",
    ),
}

RIGHT: dict[str, Lowered] = {
    "filled by its own values, after a longer loop whose variable has the same name": kernel(
        Array(FLOAT, "sums", 2),
        For(INT, FILLED, number(0), number(8), body=(let("a", load("x", variable(FILLED, 8))),)),
        Fill("sums", 2, Element(Name("sums"), Name(FILLED))),
    ),
    "an output over what all are done with": in_place(
        rows(let("sum", load("x", ROW * -1 + 63))),
        BLOCKS,
        rows(Store("out", Integer(ROW), number(0))),
    ),
    "an output over what the same thread read": in_place(
        own_rows(Store("out", Integer(ROW), load("x", ROW)))
    ),
    "a barrier of the block": kernel(ROWS_SHARED, KEEP, BLOCKS, USE),
    "a barrier in a loop that all leave together": kernel(
        LANES, rows(BLOCKS, Leave(apply(ALL_THREADS, Name("lane"))), BLOCKS)
    ),
    "a barrier in both branches": kernel(
        ROWS_SHARED,
        KEEP,
        If(infix("<", BLOCK, 3), None, (BLOCKS,), (Branch(None, (BLOCKS,)),)),
        USE,
    ),
    "a barrier at the end of a tile": kernel(
        replace(unrolled("u", 2), body=(ROWS_SHARED, KEEP, BLOCKS, USE, BLOCKS))
    ),
    "a barrier of the cluster": kernel(ROWS_SHARED, CLUSTER, SPREAD, CLUSTER, USE),
    "a barrier of the grid": kernel(SPILL, GRID, FETCH),
    "a function behind a barrier of the grid": kernel(
        SPILL, GRID, copied("between", "out"), functions=[COPY]
    ),
    "in place by the thread that read": kernel(
        *(ROWS_SHARED, KEEP, BLOCKS),
        own_rows(Store("kept", Integer(ROW), load("kept", ROW))),
    ),
    "warps of a team that goes together": kernel(
        SUM, where(infix("<", infix("/", THREAD, 64), 1), JOIN_TEAM, TEAMS)
    ),
    "threads of whole teams": kernel(where(infix("<", THREAD, 64), TEAMS)),
    "a cluster that goes together": kernel(where(infix("<", infix("/", BLOCK, 4), 2), CLUSTER)),
    "a condition that asks": kernel(
        rows(where(infix("<", Integer(ROW + 1), 64), let("a", load("x", ROW + 1))))
    ),
    "a condition on what a place was computed from": kernel(
        rows(
            let("next", Integer(ROW + 1), INT),
            where(infix("<", Integer(ROW), 63), let("a", load("x", variable("next", 70)))),
        )
    ),
    "what is joined is the same for those who join": kernel(
        JOIN_LANES,
        where(infix("<", Name("sum"), 3), let("b", apply(REDUCE_LANES, X, template=(32, "FsAdd")))),
    ),
    "vectors at multiples": kernel(
        For(
            *(INT, "row", number(0), number(16)),
            body=(
                let("v", LoadVector(FLOAT, 4, X, Integer(variable("row", 16) * 4)), Raw.LOADED),
                Call(ANNOUNCE, (), (pointer_at(X, variable("row", 16)),)),
            ),
        )
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str) -> None:
    planted, what = FAULTS[name]
    with pytest.raises(PassError) as caught:
        verify(planted)
    assert what in str(caught.value)
    assert "Defect in fusionstitch: k breaks a rule" in str(caught.value)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    verify(RIGHT[name])


def test_a_defect_is_not_hidden_by_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that breaks a rule is no reason to schedule the region in another way."""
    seen: list[Lowered] = []

    def broken(lowered: Lowered) -> None:
        seen.append(lowered)
        verify(replace(lowered, body=(*lowered.body, let("a", Name("b")))))

    monkeypatch.setattr(assembly, "verify", broken)
    case = CASES["softmax_split"].case()
    with pytest.raises(PassError, match="b is not known"):
        generate(case.graph, case.device, case.options)
    assert len(seen) == 1


def test_every_barrier_of_the_grid_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[Lowered] = []
    monkeypatch.setattr(assembly, "verify", lowered.append)
    for name in ("softmax_split", "three_phases", "whole_norm"):
        CASES[name].case().kernel()
    found = 0
    for one in lowered:
        for position, statement in enumerate(one.body):
            if statement == GRID:
                with pytest.raises(PassError, match="with no barrier after"):
                    verify(replace(one, body=(*one.body[:position], *one.body[position + 1 :])))
                found += 1
    assert found >= 4
