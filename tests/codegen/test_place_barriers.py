"""The pass that places barriers: where they are needed, for as few threads as will do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fusionstitch.codegen import assembly
from fusionstitch.codegen.index_maps.index import constant, variable
from fusionstitch.codegen.ir.expressions import BLOCK, THREAD, Integer, Load, Name, Number, infix
from fusionstitch.codegen.ir.intrinsics import REDUCE_BLOCK, REDUCE_CLUSTER, REDUCE_TEAM
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.passes.barriers import place_barriers
from fusionstitch.codegen.ir.printer import text
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Barrier,
    Branch,
    Call,
    For,
    Function,
    Group,
    If,
    Invoke,
    Leave,
    Let,
    Shared,
    Skip,
    Statement,
    Store,
    While,
)
from fusionstitch.codegen.ir.types import FLOAT, INT, PointerTo, Raw
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.hlo.errors import PassError
from tests.codegen.cases import CASES
from tests.codegen.test_whole_table import PLANTED

ROW, COLUMN = variable("row", 64), variable("column", 64)
BUFFERS = (Buffer("x", FLOAT, 64, Memory.INPUT), Buffer("out", FLOAT, 64, Memory.OUTPUT))
KEPT = Shared(FLOAT, "kept", 0, 64)
EXCHANGE = Shared(Raw.BYTE, "exchange", 256, 256)
SUM = Let(FLOAT, "sum", Number("0.0f"), changes=True)
JOIN_BLOCK = Call(REDUCE_BLOCK, (4, "FsAdd"), (Name("exchange"), Name("sum")))
JOIN_TEAM = Call(REDUCE_TEAM, (2, "FsAdd"), (Name("exchange"), Name("sum")))


def over(variable: str, *body: Statement) -> For:
    return For(INT, variable, Number("0"), Number("64"), body=body)


def load(buffer: str, at: Integer) -> Load:
    return Load(Name(buffer), at)


KEEP = over("row", Store("kept", Integer(ROW), load("x", Integer(ROW))))
USE = over("column", Store("out", Integer(COLUMN), load("kept", Integer(COLUMN))))


def placed(*body: Statement, functions: tuple[Function, ...] = (), cluster: int = 1) -> str:
    """The text of a kernel with its barriers in place, each as it is printed, without reasons."""
    kernel = Lowered("k", BUFFERS, functions, body, 128, cluster, 16, 4096)
    found = place_barriers(kernel)
    verify(found)
    said = text((*(s for f in found.functions for s in f.body), *found.body))
    return "\n".join(line.split("  //")[0] for line in said.splitlines())


def outline(said: str) -> list[str]:
    """Barriers, and what begins or ends a frame or joins values."""
    marks = {
        "__syncthreads": "block",
        "fs_team_barrier": "team",
        "fs_cluster_barrier": "cluster",
        "for (": "for",
        "if (": "if",
        "}": "end",
        "fs_reduce": "join",
        "f(": "call",
    }
    lines = (line.strip() for line in said.splitlines())
    return [word for line in lines for mark, word in marks.items() if line.startswith(mark)]


def test_a_value_is_waited_for_right_before_the_loop_that_reads_it() -> None:
    between = Let(INT, "beside", Number("3"))
    said = outline(placed(KEPT, KEEP, between, USE))
    assert said == ["for", "end", "block", "for", "end"]


def test_the_next_iteration_waits_behind_the_last_read_of_this_one() -> None:
    said = outline(placed(over("tile", KEPT, KEEP, USE)))
    assert said == ["for", "for", "end", "block", "for", "end", "block", "end"]


def test_what_those_read_who_leave_a_loop_is_waited_for() -> None:
    """The loop's own last barrier is not after it: they leave at its beginning."""
    other = Shared(FLOAT, "other", 512, 64)
    requested = Leave(infix(">", load("kept", Integer(constant(0))), Number("1.0f")))
    fill = over("row", Store("other", Integer(ROW), load("x", Integer(ROW))))
    use = over("column", Store("out", Integer(COLUMN), load("other", Integer(COLUMN))))
    said = outline(placed(KEPT, other, over("tile", KEEP, While((requested, fill, use)))))
    assert said[-2:] == ["block", "end"]


def test_values_of_one_thread_need_no_barrier() -> None:
    own = Store("kept", Integer(ROW), load("kept", Integer(ROW)))
    keep = Store("kept", Integer(ROW), load("x", Integer(ROW)))
    rows = For(INT, "row", THREAD, Number("64"), step=128, body=(keep, own))
    assert "syncthreads" not in placed(KEPT, rows)


def test_what_threads_share_waits_for_all_of_them() -> None:
    """All threads of a row read its value, and one of them writes it, iteration by iteration."""
    row = Let(INT, "row", infix("/", THREAD, 16))
    lane = Let(INT, "lane", infix("%", THREAD, 16))
    read = Let(FLOAT, "value", load("kept", Integer(ROW)))
    write = If(infix("==", Name("lane"), 0), None, (Store("kept", Integer(ROW), Name("value")),))
    said = outline(placed(KEPT, row, lane, over("column", read, write)))
    assert said == ["for", "block", "if", "end", "block", "end"]


def test_one_join_needs_none_and_one_in_a_loop_needs_one() -> None:
    assert outline(placed(EXCHANGE, SUM, JOIN_BLOCK)) == ["join"]
    said = outline(placed(EXCHANGE, over("row", SUM, JOIN_BLOCK)))
    assert said == ["for", "join", "block", "end"]


def test_two_joins_with_places_of_their_own_wait_for_each_other() -> None:
    other = Shared(Raw.BYTE, "other", 512, 256)
    again = replace(JOIN_BLOCK, arguments=(Name("other"), Name("sum")))
    said = outline(placed(EXCHANGE, other, over("row", SUM, JOIN_BLOCK, again)))
    assert said == ["for", "join", "join", "end"]


def test_a_team_waits_for_its_own_threads() -> None:
    rows = For(INT, "row", infix("/", THREAD, 64), Number("9"), step=2, body=(SUM, JOIN_TEAM))
    assert outline(placed(EXCHANGE, rows)) == ["for", "join", "team", "end"]


def test_the_block_waits_where_warps_of_a_team_leave_their_places() -> None:
    retained = replace(KEPT, offset=256)
    first = If(infix("<", THREAD, 64), None, (SUM, JOIN_TEAM))
    said = outline(placed(EXCHANGE, retained, first, KEEP))
    assert said == ["if", "join", "end", "block", "for", "end"]


def test_a_cluster_waits_for_its_blocks() -> None:
    exchange = replace(EXCHANGE, size=512)
    join = Call(REDUCE_CLUSTER, (4, 2, "FsAdd"), (Name("exchange"), Name("sum")))
    said = outline(placed(exchange, over("row", SUM, join), cluster=2))
    assert said == ["for", "join", "cluster", "end"]


def test_what_conditions_on_threads_surround_is_waited_for_outside() -> None:
    alone = If(infix("<", THREAD, 3), None, (USE,))
    assert outline(placed(KEPT, KEEP, alone)) == ["for", "end", "block", "if", "for", "end", "end"]


def test_only_the_way_that_reads_waits() -> None:
    ways = If(infix("<", Name("work"), 3), None, (USE,), (Branch(None, (SUM,)),))
    work = Let(INT, "work", Number("2"))
    said = placed(work, KEPT, KEEP, ways)
    assert said.index("if (work") < said.index("__syncthreads") < said.index("else")


def test_some_who_skip_the_rest_wait_before() -> None:
    skip = Skip(infix("<", infix("/", THREAD, 32), 2))
    write = over("row", Store("kept", Integer(ROW), load("x", Integer(ROW))))
    said = outline(placed(KEPT, over("block", write, skip, USE)))
    assert said == ["for", "block", "for", "end", "block", "if", "for", "end", "end"]


def test_barriers_stand_in_functions_and_between_their_calls() -> None:
    function = Function("f", ((PointerTo(Raw.BYTE), "shared_memory"),), (KEPT, KEEP, USE))
    call = Invoke("f", (Name("shared_memory"),))
    said = outline(placed(call, Group((call,)), functions=(function,)))
    assert said == ["for", "end", "block", "for", "end", "call", "block", "call"]


def test_a_wait_in_the_midst_of_threads_that_part_is_refused() -> None:
    parted = If(infix("<", THREAD, 3), None, (KEEP, USE))
    with pytest.raises(PassError, match=r"no barrier can stand before .*of the threads of a block"):
        placed(KEPT, parted)


BETWEEN = (*BUFFERS, Buffer("between", FLOAT, 64, Memory.SCRATCH))
SPILL = over("row", Store("between", Integer(ROW), load("x", Integer(ROW))))
FETCH = over("row", Store("out", Integer(ROW), load("between", Integer(ROW + constant(0)))))
GRID = Barrier(Scope.GRID)


def of_grid(*body: Statement) -> Lowered:
    return Lowered("k", BETWEEN, (), body, 128, 1, 16, 1024, cooperative=True)


def test_what_other_blocks_wrote_needs_a_barrier_of_the_grid() -> None:
    found = place_barriers(of_grid(SPILL, FETCH))
    assert found.body == (SPILL, GRID, FETCH)
    verify(found)


def test_blocks_that_need_not_run_at_once_wait_for_none() -> None:
    with pytest.raises(PassError, match="one of all blocks"):
        place_barriers(replace(of_grid(SPILL, FETCH), cooperative=False))


def test_a_barrier_of_the_grid_stands_before_what_is_computed_for_what_waits() -> None:
    tile = Let(INT, "tile", BLOCK)
    some = If(infix("<", BLOCK, 3), None, (Let(INT, "own", BLOCK), Group((FETCH,))))
    assert place_barriers(of_grid(SPILL, tile, some)).body == (SPILL, GRID, tile, some)
    again = over("column", SPILL)
    found = place_barriers(of_grid(SPILL, tile, FETCH, again))
    assert found.body == (SPILL, GRID, tile, FETCH, GRID, again)


def test_a_barrier_of_the_grid_does_for_those_of_blocks() -> None:
    """Shared memory is used on both sides of it."""
    found = place_barriers(of_grid(KEPT, KEEP, SPILL, USE, FETCH, KEEP))
    words = [one.scope for one in found.body if isinstance(one, Barrier)]
    assert words == [Scope.BLOCK, Scope.GRID]
    found = place_barriers(of_grid(KEPT, KEEP, SPILL, USE, KEEP, FETCH))
    words = [one.scope for one in found.body if isinstance(one, Barrier)]
    assert words == [Scope.BLOCK, Scope.BLOCK, Scope.GRID]


def test_barriers_of_the_grid_stand_between_calls_of_functions() -> None:
    parameters = (PointerTo(FLOAT, constant=True), "in_0"), (PointerTo(FLOAT), "out_0")
    copy = over("row", Store("out_0", Integer(ROW), load("in_0", Integer(ROW))))
    function = Function("f", parameters, (copy,))
    calls = [Invoke("f", (Name(a), Name(b))) for a, b in (("x", "between"), ("between", "out"))]
    kernel = replace(of_grid(*calls), functions=(function,))
    assert place_barriers(kernel).body == (calls[0], GRID, calls[1])


@pytest.mark.parametrize("name", PLANTED)
def test_every_barrier_of_a_kernel_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[Lowered] = []
    monkeypatch.setattr(assembly, "verify", lowered.append)
    CASES[name].case().kernel()
    [kernel] = lowered
    verify(kernel)
    for less in one_less(kernel.body):
        with pytest.raises(PassError, match=r"with no barrier after|part them|another array"):
            verify(replace(kernel, body=less))


def one_less(body: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """A kernel's statements without one of the barriers that are placed by what is accessed."""
    for number, one in enumerate(body):
        before, after = body[:number], body[number + 1 :]
        if isinstance(one, Barrier) and one.scope is not Scope.GRID and one is not body[0]:
            yield (*before, *after)
        elif isinstance(one, (Group, For)):
            yield from ((*before, replace(one, body=b), *after) for b in one_less(one.body))
        elif isinstance(one, If):
            yield from ((*before, replace(one, body=b), *after) for b in one_less(one.body))
            for n, other in enumerate(one.others):
                for b in one_less(other.body):
                    others = [*one.others[:n], replace(other, body=b), *one.others[n + 1 :]]
                    yield (*before, replace(one, others=tuple(others)), *after)
