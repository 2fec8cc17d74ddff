"""Operands of dots as vectors: a lane takes a `run` of neighbouring summed elements of each of its
rows and columns at once, and of a lone dot a `lot` of neighbouring columns. Whichever of these lie
together in memory are one load: the load pipe serves a line of memory at a time, however little a
lane takes from it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack

from fusionstitch.codegen.index_maps.index import Index, render, variable
from fusionstitch.codegen.index_maps.vectors import Vector
from fusionstitch.codegen.ir.expressions import Integer, Name, Number, element, infix, least
from fusionstitch.codegen.ir.statements import Assign
from fusionstitch.codegen.ir.types import INT
from fusionstitch.codegen.loops.stages import Stage, body_reads
from fusionstitch.codegen.lower.sweeps import Key
from fusionstitch.codegen.lower.tile_rows import TileRows

#: What stands for elements that are not there.
NONE = Number("0.0f")


def read(rows: TileRows, dot: Stage, side: int) -> Key:
    """What a dot reads of an operand (0 or 1) where the loops are."""
    return body_reads(dot.op, *rows.digits.indices(dot))[side]


def bind_summed(rows: TileRows, dot: Stage, summed: Index) -> None:
    """Binds the axes that a dot sums over to its summed element `summed`."""
    rows.digits.bind(rows.axes.inner_leaves(dot), summed)


def bind_read_column(rows: TileRows, index: Index) -> None:
    """Binds the column whose operand a lane reads: beyond the last, the last."""
    if index.hi < rows.plan.inner:
        rows.digits.bind_column(index)
        return
    column = variable(rows.writer.name("column"), rows.plan.inner)
    name = rows.writer.declare(render(column))
    rows.writer.let(INT, name, least(INT, Integer(index), rows.plan.inner - 1))
    rows.digits.bind_column(column)


def part_index(rows: TileRows, other: Index) -> Index:
    """The index of the current summed element of a row or column in an operand's part."""
    if other == rows.row:
        return rows.near * rows.tile.rows + rows.row
    return other * rows.tile.run + rows.near


def operand(rows: TileRows, dot: Stage, side: int, other: Index, summed: Index, depth: int) -> str:
    """Loads a lane's part of an operand: of each of `other`, its rows or columns, the summed
    elements `summed`, nothing beyond `depth`."""
    tile, access = rows.tile, rows.access
    op = dot.op.operands[side]
    beyond = depth % (tile.together * tile.shares) != 0
    together = depth % tile.run == 0  # all of a run are there, or none
    size = tile.run * (other.hi + 1)
    name = rows.array(op, "_part", size, NONE if beyond else None)
    with ExitStack() as opened:
        if beyond and together:
            summed = _run_below(rows, summed, depth, opened)
        bind_summed(rows, dot, summed)
        outer, inner = other, rows.near
        if other.terms and other.variables <= read(rows, dot, side)[1][-1].variables:
            outer, inner = rows.near, other
        opened.enter_context(_each(rows, outer))
        count = inner.hi + 1
        for lane in inner.variables if count & (count - 1) == 0 else ():
            access.elements.vector = Vector(count, lane, rows.writer.depth)
        with _each(rows, inner), rows.existing(summed, depth) as existing:
            bind_summed(rows, dot, existing)
            source, at = read(rows, dot, side)
            value = rows.values.value(source, at)
            rows.writer.add(Assign(element(name, part_index(rows, other)), value))
        access.elements.vector = None
    return name


def _each(rows: TileRows, index: Index) -> AbstractContextManager[None]:
    """The loop over rows, or over what else `index` runs through."""
    return rows.rows() if index.terms and index == rows.row else rows.loop(index)


def _run_below(rows: TileRows, summed: Index, depth: int, guarded: ExitStack) -> Index:
    """`summed`, one of a run, below `depth`; what is beyond is left out."""
    run, near = rows.tile.run, rows.near
    name = rows.writer.declare(rows.writer.name("depth"))
    rows.writer.let(INT, name, Integer((summed - near) // run))
    guarded.enter_context(rows.guarded(infix("<", Name(name), depth // run)))
    return variable(name, depth // run) * run + near
