"""Loads that are on their way while blocks meet, and stores that wait until they have."""

from __future__ import annotations

from itertools import count

from fusionstitch.codegen.index_maps.index import constant, variable
from fusionstitch.codegen.ir.expressions import THREAD, Integer, Name, infix, number
from fusionstitch.codegen.ir.passes.overlap import load_ahead, stored_late
from fusionstitch.codegen.ir.printer import text
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import Barrier, For, Group, If, Let, Statement, Store
from fusionstitch.codegen.ir.types import FLOAT, INT
from tests.codegen.test_hoisted_loads import load, used

TURN, ROW = variable("turn", 5), variable("row", 8)
OWN_ROW = Let(INT, "row", infix("/", THREAD, 4))
CLUSTER = Barrier(Scope.CLUSTER)


def turns(*body: Statement) -> For:
    return For(INT, "turn", number(0), number(5), body=body)


def ahead(loop: For, after_barrier: bool = False) -> tuple[list[str], list[str]]:
    """What comes before a loop whose loads of "w" are on their way, and the loop."""
    names = (f"n{number}" for number in count())
    before, made = load_ahead(loop, {"w": FLOAT}, (32, 1), lambda _: next(names), after_barrier)
    return text(before).splitlines(), text([made]).splitlines()


def test_where_barriers_are_placed_later_all_is_loaded_by_the_step_before() -> None:
    loop = turns(Let(FLOAT, "y", Name("x")), used(load(TURN * 8)))
    before, made = ahead(loop, after_barrier=True)
    assert before == ["// w: on its way since the step before", "float n4;", "n4 = w[0];"]
    assert made[1:] == [
        "  const float n2 = n4;",
        "  const int n3 = fs_min<int>(turn + 1, 5 - 1);",
        "  n4 = w[n3 * 8];",
        "  const float y = x;",
        "  sum += n2;",
        "}",
    ]
    assert ahead(loop)[1] == text([loop]).splitlines()


def test_steps_load_for_themselves_what_not_all_of_them_read() -> None:
    loop = turns(If(infix("<", Name("turn"), 3), None, (used(load(TURN * 8)),)))
    before, made = ahead(loop, after_barrier=True)
    assert not before
    assert made[1:4] == [
        "  // w: on its way while threads meet",
        "  float n2;",
        "  if (turn < 3) {",
    ]


def test_what_a_step_reads_behind_a_barrier_is_loaded_where_the_step_begins() -> None:
    """But what depends on what the step computes, and what is not known to stay as it is."""
    before, made = ahead(
        turns(
            CLUSTER,
            OWN_ROW,
            If(infix("<", Name("row"), 8), None, (used(load(TURN * 8 + ROW)),)),
            Let(INT, "found", load(TURN, "places")),
            used(load(variable("found", 8))),
            used(load(TURN, "state")),
        )
    )
    assert before == ["const int n0 = threadIdx.x;"]
    assert made[1:] == [
        "  // w: on its way while threads meet",
        "  float n2;",
        "  if ((n0 / 4) < 8) {",
        "    n2 = w[turn * 8 + (n0 / 4)];",
        "  }",
        "  fs_cluster_barrier();",
        "  const int row = threadIdx.x / 4;",
        "  if (row < 8) {",
        "    sum += n2;",
        "  }",
        "  const int found = places[turn];",
        "  sum += w[found];",
        "  sum += state[turn];",
        "}",
    ]


def test_what_a_step_reads_first_is_loaded_by_the_step_before() -> None:
    before, made = ahead(turns(used(load(TURN * 8)), Group((CLUSTER,)), used(load(constant(3)))))
    assert before == ["// w: on its way since the step before", "float n4;", "n4 = w[0];"]
    assert made[1:] == [
        "  sum += n4;",
        "  fs_cluster_barrier();",
        "  if (turn + 1 < 5) {",
        "    n4 = w[turn * 8 + 8];",
        "  }",
        "  sum += w[3];",
        "}",
    ]


def test_what_some_steps_do_not_come_to_is_not_loaded_by_the_step_before() -> None:
    """Its index before the first one may be out of bounds."""
    late = If(infix("<=", 2, Name("turn")), None, (used(load(TURN * 8 + constant(-16))),))
    loop = turns(late, Group((CLUSTER,)))
    assert ahead(loop) == ([], text([loop]).splitlines())


def test_without_a_barrier_that_all_steps_come_to_nothing_is_loaded_early() -> None:
    loop = turns(used(load(TURN * 8)), If(Name("sure"), None, (CLUSTER,)))
    assert ahead(loop) == ([], text([loop]).splitlines())


def test_what_a_step_stores_for_nobody_waits_behind_its_last_barrier() -> None:
    """What is read in the loop, or stored twice, stays where it is."""
    here = Integer(TURN * 8 + ROW)
    loop = turns(
        OWN_ROW,
        If(
            infix("<", Name("row"), 8),
            None,
            (Store("out", here, Name("y")), Store("other", here, Name("z"))),
        ),
        Store("read", here, Name("y")),
        used(load(TURN * 8, "read")),
        Store("twice", here, Name("y")),
        Store("twice", here, Name("y")),
        CLUSTER,
        Store("late", here, Name("y")),
    )
    names = (f"n{number}" for number in count())
    kinds = dict.fromkeys(("out", "other", "read", "twice", "late"), FLOAT)
    before, made = stored_late(loop, kinds, (32, 1), lambda _: next(names))
    assert text(before) == "const int n0 = threadIdx.x;"
    assert text([made]).splitlines() == [
        "for (int turn = 0; turn < 5; ++turn) {",
        "  float n2;",
        "  float n3;",
        "  const int row = threadIdx.x / 4;",
        "  if (row < 8) {",
        "    n2 = y;",
        "    n3 = z;",
        "  }",
        "  read[turn * 8 + row] = y;",
        "  sum += read[turn * 8];",
        "  twice[turn * 8 + row] = y;",
        "  twice[turn * 8 + row] = y;",
        "  fs_cluster_barrier();",
        "  if ((n0 / 4) < 8) {",
        "    out[turn * 8 + (n0 / 4)] = n2;",
        "    other[turn * 8 + (n0 / 4)] = n3;",
        "  }",
        "  late[turn * 8 + row] = y;",
        "}",
    ]


def test_without_a_barrier_stores_stay() -> None:
    loop = turns(OWN_ROW, Store("out", Integer(TURN * 8 + ROW), Name("y")))
    assert stored_late(loop, {"out": FLOAT}, (32, 1), str) == ([], loop)
