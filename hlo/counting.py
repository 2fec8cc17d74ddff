"""Rewrites the iteration count of a loop as the largest count of any of its rows, in a module's
proto.

    while any(p(s)) & (i < most): s, i = f(s), i + 1    ->    while ...: s, n = f(s), n + p(s)
    i after the loop                                         first i + max(n)

A joint count of all rows keeps them together, while each row can count its own iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.copying import sort_computations
from fusionstitch.hlo.graph import Graph, Module, Op, Shape
from fusionstitch.hlo.loop_editor import Element, LoopEditor, become, edit_loops
from fusionstitch.hlo.row_counts import COUNT, largest, operand_in_body, spread


@dataclass(frozen=True, eq=False)
class Counted:
    """A loop that runs while any row goes on. A row that stops never goes on again.

    Attributes:
        ends: the id of the condition's instruction that joins a mask over all rows
        done: whether the mask is that of rows that do not go on
        counters: the elements of what the loop carries that are read after it and only count
            iterations, and by how much each
    """

    graph: Graph
    loop: Op
    ends: int
    done: bool
    counters: tuple[tuple[int, int], ...]


def count_by_rows(module: Module, found: Sequence[Counted]) -> bool:
    """Edits the module's proto, which is to be read again where this is true."""
    changed = edit_loops(module, found, _count)
    if changed:
        sort_computations(module.proto)
    return changed


def _count(loop: LoopEditor, found: Counted) -> None:
    inner, outer, source = loop.inner, loop.outer, loop.instruction
    readers = [r for r in outer.computation.instructions if source.id in r.operand_ids]
    going = operand_in_body(loop, found.ends)
    dims = tuple(going.shape.dimensions)
    if found.done:
        going = inner.add("not", Shape("pred", dims), [going.id], source)
    counts = Shape(COUNT, dims)
    one = inner.add("convert", counts, [going.id], source)
    before = loop.read(loop.carried, counts, source)
    after = inner.add("add", counts, [before.id, one.id], source)
    iterations, zeros = loop.carried, spread(outer, outer.zero(COUNT, source), counts)
    loop.widen([Element(counts, zeros.id, after.id)])
    most = largest(outer, loop.result(iterations, counts), counts)
    steps = dict(found.counters)
    for reader in readers:
        if reader.tuple_index in steps:
            _moved(loop, reader, most, steps[reader.tuple_index])


def _moved(loop: LoopEditor, reader: Any, iterations: Any, step: int) -> None:
    """Has an element that the loop gives be what it began with, so many steps on."""
    outer, shape = loop.outer, Shape(COUNT, ())
    by = outer.constant(COUNT, step, reader)
    moved = outer.add("multiply", shape, [iterations.id, by.id], reader)
    first = loop.begin(reader.tuple_index)
    become(reader, "add", [first.id, moved.id])
