"""Sorted rows as statements: a team has the elements of a row in registers, puts them in order, and
stores them. What is beyond the last element comes after all others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fusionstitch.codegen.index_maps.index import Index, constant, render, variable
from fusionstitch.codegen.ir.expressions import Element, Integer, Name, Number, infix
from fusionstitch.codegen.ir.intrinsics import MERGE_BLOCK, SORT_BLOCK, SORT_LANES
from fusionstitch.codegen.ir.statements import Array, Assign, Call, Group, If, Let, unrolled
from fusionstitch.codegen.ir.types import computed
from fusionstitch.codegen.loops.stages import Stage, body_reads
from fusionstitch.codegen.lower.access import Access, Site
from fusionstitch.codegen.lower.rows import RowLoop, row_limit, row_loop
from fusionstitch.codegen.schedule.sorts import Shape, shape_of
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.hlo.graph import ITEM_BYTES


def lower_sorts(site: Site) -> None:
    """Writes a nest that sorts rows."""
    access = Access(site)
    [stage] = access.nest.stages
    writer, plan, block = access.writer, access.plan, site.kernel.plan.block
    shape = shape_of(stage.op, plan.teams.threads, block)
    writer.note(access.comment(stage.op), (access.label(stage.op),))
    access.declare_exchanges(computed(stage.op.dtype), "sorted")
    row = variable(writer.name("row"), plan.rows)
    limit = row_limit(access, 1)
    together = not shape.by_lanes
    loop = row_loop(render(row), plan.rows, limit, plan.teams, block, access.int, together=together)
    with writer.nested(loop.frame or Group(), ordered=True):
        if loop.row:
            writer.let(access.int, render(row), loop.row)
        if row.terms:
            writer.declare(render(row))
        access.bind_rows(row, access.position(row, 1))
        _row(access, stage, shape, loop)


def _row(access: Access, stage: Stage, shape: Shape, loop: RowLoop) -> None:
    """The elements of a row: computed, put in order, stored."""
    writer, op = access.writer, stage.op
    own = writer.name(access.label(op))
    writer.add(Array(computed(op.dtype), own, shape.each))
    lane = writer.declare(writer.name("lane"))
    assert loop.lane is not None
    writer.let(access.int, lane, loop.lane)
    member = variable(lane, shape.threads)
    number = variable(writer.name("i"), shape.each)
    element = Element(Name(own), Name(render(number)))
    elements, leaves = op.operands[0].dims[1], access.group.group.in_block(stage)
    columns = [leaf for leaf in leaves if leaf not in access.nest.rows]
    with writer.nested(unrolled(render(number), shape.each)):
        writer.declare(render(number))
        if elements < shape.threads * shape.each:
            last = (1 << 8 * ITEM_BYTES[op.dtype]) - 1
            writer.add(Assign(element, Number(literal(last, op.dtype))))
        with _existing(access, number * shape.threads + member, elements) as at:
            access.digits.bind(columns, constant(0))
            access.digits.bind_column(at)
            [read] = body_reads(op, *access.digits.indices(stage))
            writer.add(Assign(element, access.values.value(*read)))
    elements_of = (shape.threads, shape.each)
    if shape.by_lanes:
        writer.add(Call(SORT_LANES, (*elements_of, shape.kept), (Name(own),)))
    else:
        through = Name(own), Name(access.exchanges[stage])
        merged = Call(MERGE_BLOCK, elements_of, through)
        whole = Call(SORT_BLOCK, (*elements_of, shape.kept), through)
        writer.add(merged if "merged" in op.attrs else whole)
    with writer.nested(unrolled(render(number), shape.left)):
        writer.declare(render(number))
        striped = shape.is_whole and not shape.by_lanes
        place = number * shape.threads + member if striped else member * shape.left + number
        with _existing(access, place, op.dims[1]) as at:
            access.digits.bind(columns, at)
            access.store(stage, element, [loop.live])


@contextmanager
def _existing(access: Access, place: Index, size: int) -> Iterator[Index]:
    """`place` as a number below `size`; nothing happens for one that is not."""
    if place.hi < size:
        yield place
        return
    writer = access.writer
    name = writer.name("place")
    inside = If(infix("<", Name(name), size), Let(access.int, name, Integer(place)))
    with writer.nested(inside, pinned=True):
        writer.declare(name)
        yield variable(name, size)
