"""Loops that end by what their data says, ended by a count instead, in a module's proto.

    while p(s): s = f(s)    ->    n = 0; while n < turns: s, n = f(s), n + 1

For measuring alone: on data drawn at random such a loop ends at once, or never.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.hlo.copying import sort_computations
from fusionstitch.hlo.graph import Graph, Module, Op, Shape
from fusionstitch.hlo.importer import from_message
from fusionstitch.hlo.loop_editor import Element, LoopEditor, edit_loops
from fusionstitch.hlo.trips import counted

COUNT = "s32"


@dataclass(frozen=True, eq=False)
class Uncounted:
    """A loop that the data ends, in a graph; it carries a tuple."""

    graph: Graph
    loop: Op


def uncounted(graph: Graph) -> list[Uncounted]:
    """The loops that the data ends, of a graph and of all that it calls."""
    found: list[Uncounted] = []
    for op in graph:
        if op.opcode == "while" and op.shape.is_tuple and counted(op) is None:
            found.append(Uncounted(graph, op))
        found += [one for called in op.called for one in uncounted(called)]
    return found


def with_fixed_turns(module: Module, turns: int) -> Module:
    """The module, whose proto is edited, with each loop that the data ends turning `turns` times.
    Loops must not share bodies."""

    def fix(loop: LoopEditor, _: Uncounted) -> None:
        source, scalar = loop.instruction, Shape(COUNT)
        inner, asking = loop.inner, loop.asking
        after = inner.add(
            "add",
            scalar,
            [loop.read(loop.carried, scalar, source).id, inner.constant(COUNT, 1, source).id],
            source,
        )
        turn = asking.add("get-tuple-element", scalar, [loop.parameters[1].id], source)
        turn.tuple_index = loop.carried
        end = asking.constant(COUNT, turns, source)
        goes_on = asking.add("compare", Shape("pred"), [turn.id, end.id], source)
        goes_on.comparison_direction = "LT"
        asking.computation.root_id = goes_on.id
        loop.widen([Element(scalar, loop.outer.zero(COUNT, source).id, after.id)])

    if not edit_loops(module, uncounted(module.entry), fix):
        return module
    sort_computations(module.proto)
    return from_message(module.proto)
