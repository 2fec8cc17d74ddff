"""Sums of columns, which threads carry in registers from row to row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from fusionstitch.codegen.index_maps.index import render
from fusionstitch.codegen.ir.expressions import THREAD, Element, Expr, Name, infix
from fusionstitch.codegen.ir.intrinsics import REDUCE_TEAMS
from fusionstitch.codegen.ir.statements import Array, Call, Fill, If, Let
from fusionstitch.codegen.ir.types import INT
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.rows import RowLoop
from fusionstitch.codegen.lower.sums import functor_of, start_of
from fusionstitch.codegen.lower.sweeps import Sweeps


def start_carrying(sweeps: Sweeps, stage: Stage) -> None:
    """A register array for the sums of this thread's columns."""
    name = sweeps.writer.name(f"{sweeps.label(stage.op)}_carried")
    size = sweeps.walk.vectors * sweeps.width
    sweeps.writer.add(Array(sweeps.compute(stage), name, size))
    sweeps.writer.add(Fill(name, size, start_of(stage)))
    sweeps.carried[stage] = name


@contextmanager
def live_columns(sweeps: Sweeps, loop: RowLoop) -> Iterator[None]:
    """Where no thread has several columns, checks whether this one has any. The check is around the
    loop over rows, not in each row, so that loads of several rows can be under way."""
    sweeps.name_unit()
    units, column = sweeps.plan.inner // sweeps.width, render(sweeps.unit)
    sweeps.name_lane(loop.lane)
    if sweeps.walk.vectors > 1 or not sweeps.lane:
        yield
        return
    own = Let(sweeps.int, column, Name(sweeps.lane))
    with sweeps.writer.nested(If(infix("<", Name(column), units), own)):
        sweeps.writer.declare(column)
        sweeps.opened = True
        yield
    sweeps.opened = False


def finish_carrying(sweeps: Sweeps) -> None:
    """Joins the sums of the block's teams; the first team stores them."""
    writer, threads = sweeps.writer, sweeps.plan.teams.threads
    first = None
    if threads < sweeps.block:
        first = infix("<", THREAD, threads)
        size = sweeps.walk.vectors * sweeps.width
        for stage, name in sweeps.carried.items():
            given = threads, size, functor_of(stage)
            writer.add(
                Call(REDUCE_TEAMS, given, (Name(name), Name(sweeps.access.exchanges[stage])))
            )
    with writer.nested(If(first), ordered=True) if first else nullcontext():
        if threads > 1:
            sweeps.lane = writer.name("lane")
            writer.let(INT, sweeps.lane, infix("%", THREAD, threads))
        sweeps.run(lambda step: _store_carried(sweeps, step))


def _store_carried(sweeps: Sweeps, step: Expr | None) -> None:
    """One vector of the sums of a block's columns."""
    with sweeps.access.elements.vector_loop(sweeps.element):
        sweeps.digits.bind_column(sweeps.unit * sweeps.width + sweeps.element)
        for stage, name in sweeps.carried.items():
            total = Element(Name(name), sweeps.register_index(step))
            sweeps.access.store(stage, sweeps.values.finished(stage.op, total), [])
