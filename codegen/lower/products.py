"""Dots whose results are the elements of a tile's rows, added up in registers. Sums of dots that
are alike are loops over their operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from fusionstitch.codegen.ir.expressions import Element, Name, Number
from fusionstitch.codegen.ir.statements import Fill, Group, Table, unrolled
from fusionstitch.codegen.ir.types import PointerTo, Record, Scalar, Type, stored
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.repeats import FEWEST, Repeat, repeats
from fusionstitch.codegen.lower.strategies import Elements
from fusionstitch.codegen.lower.sums import zero_of
from fusionstitch.codegen.lower.tile_parts import Parts
from fusionstitch.codegen.lower.tile_rows import TileRows
from fusionstitch.hlo.graph import Op


def add_products(
    rows: TileRows, elements: Elements, parts: Parts, dots: Sequence[Stage], op: Op
) -> None:
    """Adds up all elements of all rows of `op`, the sum of `dots`, one summed index after another:
    each operand is read once per row, or once per column."""
    writer = rows.writer
    start = elements.start(dots[0]) if len(dots) == 1 else zero_of(op)
    name = rows.array(op, "_tile", rows.tile.rows * rows.tile.steps, start)
    many = len(dots) >= FEWEST
    bodies: list[Group] = []
    for dot in dots:
        rows.digits.bind_column(rows.column if rows.tile.lot == 1 else rows.column_place())
        index = rows.digits.index(dot)
        with writer.nested(Group(), pinned=True) if many else nullcontext():
            elements.add(dot, index, name, start is not None)
        last = writer.block.items[-1]
        bodies += [last] if many and isinstance(last, Group) else []
    if many:
        _as_loop(rows, dots, bodies)
    name, size = parts.join(dots[0], op, name)
    each = Element(Name(name), Name("i"))
    finished = rows.values.finished(dots[0].op, each)
    if finished != each:
        writer.add(Fill(name, size, finished))
    rows.element_arrays[op, index] = name


def _as_loop(rows: TileRows, dots: Sequence[Stage], bodies: Sequence[Group]) -> None:
    """Turns the statements of several dots into a loop over their operands where they differ in
    nothing else."""
    loaded = [op for dot in dots for op, _ in dot.loads]
    computed = [stage.op for dot in dots for stage, _ in dot.reads]
    buffer = rows.access.memory.buffer
    types = {buffer(op): stored(op.dtype) for op in (*loaded, *computed)}
    items = rows.writer.block.items
    if [id(one) for one in items[-len(bodies) :]] != [id(body) for body in bodies]:
        return
    del items[-len(bodies) :]
    for first, end, repeat in repeats(bodies, types):
        if repeat is None:
            items += bodies[first:end]
        else:
            _loop_over(rows, repeat, types, end - first)


def _loop_over(
    rows: TileRows, repeat: Repeat, types: Mapping[str, Scalar | Record], count: int
) -> None:
    """The loop over the buffers of statements that repeat."""
    writer = rows.writer
    term = writer.name("term")
    tables: dict[str, tuple[Type, str]] = {}
    kinds: dict[str, Type] = {
        name: PointerTo(types[name], constant=True) for name in repeat.buffers
    }
    kinds |= dict.fromkeys(repeat.places, rows.int)
    for name, values in (*repeat.buffers.items(), *repeat.places.items()):
        tables[name] = kinds[name], writer.name(f"{name}_terms")
        kind, table = tables[name]
        spelt: type[Name | Number] = Name if name in repeat.buffers else Number
        writer.add(Table(kind, table, tuple(map(spelt, values))))
    with writer.nested(replace(unrolled(term, count), unroll=2), pinned=True):
        for name, (kind, table) in tables.items():
            writer.let(kind, name, Element(Name(table), Name(term)))
        writer.add(repeat.body)
