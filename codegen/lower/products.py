"""Dots whose results are the elements of a tile's rows, added up in registers. Of many dots that
are alike a pass makes a loop over their operands (`ir/passes/rolling.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from fusionstitch.codegen.ir.expressions import Element, Name
from fusionstitch.codegen.ir.passes.rolling import FEWEST
from fusionstitch.codegen.ir.statements import FILLED, Fill, Group
from fusionstitch.codegen.loops.stages import Stage
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
    several = len(dots) >= FEWEST
    for dot in dots:
        rows.digits.bind_column(rows.column if rows.tile.lot == 1 else rows.column_index())
        index = rows.digits.index(dot)
        with writer.nested(Group(term=True), pinned=True) if several else nullcontext():
            elements.add(dot, index, name, start is not None)
    name, size = parts.join(dots[0], op, name)
    each = Element(Name(name), Name(FILLED))
    finished = rows.values.finished(dots[0].op, each)
    if finished != each:
        writer.add(Fill(name, size, finished))
    rows.element_arrays[op, index] = name
