"""Loops that end by what their data says, ended by a count instead, in a module's proto.

    while p(s): s = f(s)    ->    n = 0; while n < turns: s, n = f(s), n + 1

For measuring alone: on data drawn at random such a loop ends at once, or never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.copying import sort_computations
from fusionstitch.hlo.edit import (
    Editor,
    FreshNames,
    forget_order,
    shape_proto,
    sort_instructions,
)
from fusionstitch.hlo.graph import Graph, Module, Op, Shape
from fusionstitch.hlo.importer import from_message
from fusionstitch.hlo.loop_editor import Element, LoopEditor, become, edit_loops
from fusionstitch.hlo.trips import counted

COUNT = "s32"
#: Which of the computations that a `while` calls is its body.
BODY = 0


@dataclass(frozen=True, eq=False)
class Uncounted:
    """A loop that the data ends, in a graph."""

    graph: Graph
    loop: Op


def uncounted(graph: Graph) -> list[Uncounted]:
    """The loops that the data ends, of a graph and of all that it calls."""
    found: list[Uncounted] = []
    for op in graph:
        if op.opcode == "while" and counted(op) is None:
            found.append(Uncounted(graph, op))
        found += [one for called in op.called for one in uncounted(called)]
    return found


def with_fixed_turns(module: Module, turns: int) -> Module:
    """The module, whose proto is edited, with each loop that the data ends turning `turns` times,
    unless it has a sharding. Loops must not share bodies."""
    if not uncounted(module.entry):
        return module
    _carry_tuples(module.proto)
    module = from_message(module.proto)

    def fix(loop: LoopEditor, _: Uncounted) -> None:
        source, scalar = loop.instruction, Shape(COUNT)
        inner, asking = loop.inner, loop.asking
        before, one = loop.read(loop.carried, scalar, source), inner.constant(COUNT, 1, source)
        after = inner.add("add", scalar, [before.id, one.id], source)
        turn = asking.add("get-tuple-element", scalar, [loop.parameters[1].id], source)
        turn.tuple_index = loop.carried
        end = asking.constant(COUNT, turns, source)
        goes_on = asking.add("compare", Shape("pred"), [turn.id, end.id], source)
        goes_on.comparison_direction = "LT"
        asking.computation.root_id = goes_on.id
        loop.widen([Element(scalar, loop.outer.zero(COUNT, source).id, after.id)])

    edit_loops(module, uncounted(module.entry), fix)
    sort_computations(module.proto)
    return from_message(module.proto)


def _carry_tuples(proto: Any) -> None:
    """Has loops that carry one array carry a tuple of it. What was the array's instruction reads it
    from the tuple, so that ids stay."""
    names = FreshNames(proto)
    computations = {c.id: c for c in proto.computations}
    for computation in proto.computations:
        alone = [
            one
            for one in computation.instructions
            if one.opcode == "while" and not one.shape.tuple_shapes and not one.HasField("sharding")
        ]
        for one in alone:
            outer = Editor(proto, computation, names)
            carried = shape_proto(Shape("tuple"))
            carried.tuple_shapes.add().CopyFrom(one.shape)
            given = outer.add("tuple", carried, one.operand_ids, one)
            for number, called in enumerate(computations[i] for i in one.called_computation_ids):
                inner = outer.beside(called)
                [parameter] = (i for i in called.instructions if i.opcode == "parameter")
                _read_from(inner, parameter, (), carried)
                called.program_shape.parameters[0].CopyFrom(carried)
                if number == BODY:
                    called.root_id = inner.add("tuple", carried, [called.root_id], one).id
                    called.program_shape.result.CopyFrom(carried)
                sort_instructions(called)
            _read_from(outer, one, [given.id], carried)
            sort_instructions(computation)
    forget_order(proto)


def _read_from(editor: Editor, array: Any, operands: Sequence[int], carried: Any) -> None:
    """Has an instruction give a tuple, and read its array from it."""
    whole = editor.copy(array, operands)
    whole.shape.CopyFrom(carried)
    del array.called_computation_ids[:]
    array.ClearField("parameter_number")
    become(array, "get-tuple-element", [whole.id])
