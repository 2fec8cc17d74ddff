"""One nest as statements: a loop over rows, and at each row the sweeps of every level."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from fusionstitch.codegen.index_maps.index import Index, linearize, renamed, render, variable
from fusionstitch.codegen.index_maps.maps import in_range
from fusionstitch.codegen.ir.expressions import Expr, Integer, infix
from fusionstitch.codegen.ir.statements import For, Group, If
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import closure
from fusionstitch.codegen.lower.access import Access, Site
from fusionstitch.codegen.lower.carried import finish_carrying, live_columns, start_carrying
from fusionstitch.codegen.lower.paired import sum_pairs
from fusionstitch.codegen.lower.row_registers import hold_inputs, next_row
from fusionstitch.codegen.lower.rows import point_limit, row_limit, row_loop
from fusionstitch.codegen.lower.sweeps import Sweeps
from fusionstitch.codegen.schedule.walk import ELEMENT, ROW


def lower_rows(site: Site) -> None:
    """Writes a nest whose threads take its rows one by one, or elements where these are rows."""
    sweeps = Sweeps(site)
    access, writer, plan, walk = sweeps.access, sweeps.writer, sweeps.plan, sweeps.walk
    for stage in sweeps.nest.stages:
        writer.note(access.comment(stage.op), (access.label(stage.op),))
    access.declare_exchanges()
    width = walk.width
    if width > 1:
        sweeps.element = variable(writer.name("v"), width)
    rows = plan.rows // (width if plan.flat else 1) // walk.run.length
    limit = row_limit(access, (width if plan.flat else 1) * walk.run.length)
    points = point_limit(access)
    row = variable(writer.name("row"), rows)
    access.names |= {ROW: render(row), ELEMENT: render(sweeps.element)}
    loop = row_loop(render(row), rows, limit, plan.teams, sweeps.block, access.int)
    for stage in sweeps.nest.with_role(Role.CARRY):
        start_carrying(sweeps, stage)
    if walk.row_inputs:
        sweeps.name_lane(loop.lane)
        hold_inputs(sweeps, row, loop)
    frame = loop.frame
    with ExitStack() as opened:
        if walk.rows:
            if walk.rows > 1 and isinstance(frame, For):
                frame = replace(frame, unroll=walk.rows)
            opened.enter_context(live_columns(sweeps, loop))
        # without a loop, what all rows have in common need not precede the loads of one
        if frame or not plan.flat:
            # threads without the only row must not read what its own overwrites in one
            alone = frame is not None and rows == 1
            opened.enter_context(writer.nested(frame or Group(), pinned=alone, ordered=True))
        if loop.row:
            writer.let(access.int, render(row), loop.row)
        if row.terms:
            writer.declare(render(row))
        if points:
            there = infix("<", Integer(access.digits.point_of(row)), points)
            opened.enter_context(writer.nested(If(there), pinned=True))
        sweeps.live = loop.live
        sweeps.name_lane(loop.lane)
        if plan.flat and width > 1:
            _flat_vectors(sweeps, row)
        elif walk.run.length > 1 and plan.flat:
            _run(sweeps, row)
        elif walk.run.length > 1:
            sum_pairs(sweeps, row)
        else:
            _row(sweeps, row)
    if sweeps.carried:
        finish_carrying(sweeps)


def _row(sweeps: Sweeps, row: Index) -> None:
    """The values of one row, level by level."""
    sweeps.access.bind_rows(row, sweeps.access.position(row, 1))
    if sweeps.row_inputs:
        next_row(sweeps, row)
    sweeps.name_unit()
    sweeps.declare_live()
    for op, at in sweeps.walk.picked:
        sweeps.values.value(op, tuple(renamed(i, sweeps.names) for i in at))
    for level in range(sweeps.nest.levels):
        sweeps.level(level)


def _run(sweeps: Sweeps, row: Index) -> None:
    """Rows of one element each, several at a time: what is loaded for one is known to the others,
    and all are computed before any is stored."""
    access, run = sweeps.access, sweeps.walk.run
    rows = [run.row_of(row, number) for number in range(run.length)]
    for level in range(sweeps.nest.levels):
        stages = sweeps.nest.at(level)
        values: list[Expr] = []
        for one in rows:
            access.bind_rows(one, access.position(one, 1))
            values += [access.value_of(stage) for stage in stages]
        rest = iter(values)
        for one in rows:
            access.bind_rows(one, access.position(one, 1))
            for stage in stages:
                access.store(stage, next(rest), [sweeps.live])


def _flat_vectors(sweeps: Sweeps, row: Index) -> None:
    """Rows of one element each: a thread takes as many neighbours as a vector has."""
    access, width, element = sweeps.access, sweeps.width, sweeps.element
    unit = access.position(row, width)
    points = access.plan.has_points(access.group)
    with access.elements.vector_loop(element):
        access.bind_rows(row * width + element, unit * width + element if points else unit)
        _load_vectors(access)
        for level in range(sweeps.nest.levels):
            sweeps.step(sweeps.nest.at(level), {})


def _load_vectors(access: Access) -> None:
    """Loads the vectors of all inputs before anything is computed, so that none waits for what the
    rows have in common: the powers of an optimizer's step, say."""
    assert access.elements.vector is not None
    for stage in access.nest.stages:
        leaves, _ = closure(stage.op, *access.digits.indices(stage), access.whole)
        for op, at in leaves:
            base = access.elements.vector.base(linearize(at, op.dims))
            if op.opcode == "parameter" and base is not None and in_range(op, at):
                access.values.value(op, at)
