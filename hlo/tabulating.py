"""Tables of what the iterations of a loop make of their numbers, in a module's proto: computed
before the loop, of which each iteration reads its part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.graph import Graph, Module, Op
from fusionstitch.hlo.lifting import Cone, Lifter
from fusionstitch.hlo.loop_editor import Element, LoopEditor, edit_loops, read_part
from fusionstitch.hlo.trips import Counted


@dataclass(frozen=True, eq=False)
class Table:
    """The values of `ops` in all iterations, stacked. An iteration's part is at `position`; None
    where the first iteration's part comes first."""

    ops: tuple[Op, ...]
    position: Op | None
    cone: Cone


@dataclass(frozen=True, eq=False)
class LoopTables:
    """The tables that a loop is to read, whose iterations `count` counts."""

    graph: Graph
    loop: Op
    count: Counted
    tables: tuple[Table, ...]


def tabulate(module: Module, found: Sequence[LoopTables]) -> None:
    """Edits the module's proto, which is to be read again."""
    edit_loops(module, found, _tabulate)


def _tabulate(loop: LoopEditor, found: LoopTables) -> None:
    inner, elements = loop.inner, list[Element]()
    for table in found.tables:
        lifter = Lifter(loop, found.count.trips, loop.begin)
        lifter.lift(table.cone)
        if table.position is None:
            dtype, position = _number(loop, found)
        else:
            dtype, position = table.position.dtype, inner.by_id[table.position.origin]
        for op in table.ops:
            shape, source = lifter.shape(op), inner.by_id[op.origin]
            whole = lifter[op].instruction
            inside = loop.read(loop.carried + len(elements), shape, source)
            elements.append(Element(shape, whole.id, inside.id))
            inner.replace({source.id}, read_part(inner, inside, op, position, dtype))
    loop.widen(elements)


def _number(loop: LoopEditor, found: LoopTables) -> tuple[str, Any]:
    """The number of an iteration, 0 in the first, and its type."""
    inner, count = loop.inner, found.count
    scalar, source = found.loop.shape.elements[count.index], loop.instruction
    made = loop.read(count.index, scalar, source)
    for opcode, value, nothing in (("subtract", count.start, 0), ("divide", count.step, 1)):
        if value != nothing:
            operands = [made.id, inner.constant(scalar.dtype, value, source).id]
            made = inner.add(opcode, scalar, operands, source)
    return scalar.dtype, made
