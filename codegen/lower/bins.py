"""Bins as statements: what the updates of a tile belong to, joined in the shared memory of warps.

Each warp goes through a stretch of the updates, 32 at a time, a few of these at once: their loads
are under way together. Then the threads of the block join what the warps have, element by element.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import constant, render, variable
from fusionstitch.codegen.ir.expressions import (
    THREAD,
    Element,
    Expr,
    Integer,
    Name,
    Number,
    apply,
    infix,
    number,
)
from fusionstitch.codegen.ir.intrinsic import Template
from fusionstitch.codegen.ir.intrinsics import BINS_JOIN, BINS_START, BINS_TOTAL
from fusionstitch.codegen.ir.statements import Array, Assign, Call, For, If, Let, unrolled
from fusionstitch.codegen.ir.types import INT, computed
from fusionstitch.codegen.loops.stages import Stage, body_reads
from fusionstitch.codegen.lower.access import Access, Site
from fusionstitch.codegen.lower.rows import row_limit
from fusionstitch.codegen.rewrite.monoids import joins
from fusionstitch.codegen.schedule.bins import AT_ONCE, warps_of
from fusionstitch.costmodel.devices import WARP


@dataclass(frozen=True)
class _Bins:
    """The elements that the `warps` of a block have of their own, `size` each, in the shared memory
    `name`: what joins two values, and what changes none."""

    name: str
    size: int
    warps: int
    functor: str
    neutral: Number

    @property
    def template(self) -> Template:
        """What all functions of bins are given."""
        return self.size, self.warps, self.functor


def lower_bins(site: Site) -> None:
    """Writes a nest that sums what the data says of several elements."""
    access = Access(site)
    [stage] = access.nest.stages
    writer, op = access.writer, stage.op
    neutral, functor = joins(op)
    writer.note(access.comment(op), (access.label(op),))
    access.declare_exchanges(computed(op.dtype), "bins")
    size, warps = op.dims[1] * op.dims[2], warps_of(op, site.kernel.plan.block)
    bins = _Bins(access.exchanges[stage], size, warps, functor, Number(neutral))
    rows = access.plan.rows
    row = variable(writer.name("row"), rows)
    loop = For(access.int, render(row), Number("0"), row_limit(access, 1)) if row.terms else None
    with writer.nested(loop, ordered=True) if loop else nullcontext():
        if loop:
            writer.declare(render(row))
        access.bind_rows(row, access.position(row, 1))
        _row(access, stage, bins)


def _row(access: Access, stage: Stage, bins: _Bins) -> None:
    """The bins of one row: emptied, filled by warps, and what all warps have stored."""
    writer, op = access.writer, stage.op
    writer.add(Call(BINS_START, (bins.size, bins.warps), (Name(bins.name), bins.neutral)))
    warp, lane = writer.name("warp"), writer.name("lane")
    writer.let(INT, warp, infix("/", THREAD, WARP))
    writer.let(INT, lane, infix("%", THREAD, WARP))
    threads = access.plan.teams.threads
    mine = If(infix("<", Name(warp), bins.warps)) if bins.warps * WARP < threads else None
    with writer.nested(mine, pinned=True) if mine else nullcontext():
        _updates(access, stage, bins, Name(warp), Name(lane))
    element = writer.name("element")
    loop = For(access.int, element, THREAD, number(bins.size), step=threads)
    with writer.nested(loop, pinned=True):
        writer.declare(element)
        access.digits.bind(access.group.group.in_block(stage), variable(element, bins.size))
        total = apply(BINS_TOTAL, Name(bins.name), Name(element), template=bins.template)
        name = writer.name(access.label(op))
        writer.let(computed(op.dtype), name, total)
        access.store(stage, Name(name), [])


def _updates(access: Access, stage: Stage, bins: _Bins, warp: Expr, lane: Expr) -> None:
    """The loop of a warp over its stretch of the updates."""
    writer, updates = access.writer, access.plan.inner
    steps = -(-updates // (WARP * AT_ONCE * bins.warps))
    step, keys, values, near = map(writer.name, ("round", "numbers", "updates", "v"))
    with writer.nested(For(access.int, step, Number("0"), number(steps))):
        writer.add(Array(INT, keys, AT_ONCE))
        writer.add(Array(computed(stage.op.dtype), values, AT_ONCE))
        with writer.nested(unrolled(near, AT_ONCE)):
            key, value = Element(Name(keys), Name(near)), Element(Name(values), Name(near))
            writer.add(Assign(key, Number("-1")))
            writer.add(Assign(value, bins.neutral))
            first = infix("+", infix("*", warp, steps), Name(step))
            unit = infix("+", infix("*", first, AT_ONCE), Name(near))
            update = writer.name("update")
            own = Let(access.int, update, infix("+", infix("*", unit, WARP), lane))
            with writer.nested(If(infix("<", Name(update), updates), own), pinned=True):
                writer.declare(update)
                access.digits.bind(access.group.group.in_block(stage), constant(0))
                access.digits.bind_column(variable(update, updates))
                for target, found in zip((key, value), _update(access, stage), strict=True):
                    writer.add(Assign(target, found))
        with writer.nested(unrolled(near, AT_ONCE)):
            writer.add(Call(BINS_JOIN, bins.template, (Name(bins.name), key, value)))


def _update(access: Access, stage: Stage) -> tuple[Expr, Expr]:
    """The element that the current update belongs to, none below 0, and what it adds there."""
    width = stage.op.dims[2]
    dims, inner = access.digits.indices(stage)
    key, value = (access.values.value(*read) for read in body_reads(stage.op, dims, inner))
    if width > 1:
        key = infix("+", infix("*", key, width), Integer(dims[2]))
    return key, value
