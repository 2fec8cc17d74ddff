"""Operands that a kernel should and may overwrite: its call's output_operand_aliasing."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.memory.inplace import one_to_one
from fusionstitch.hlo.graph import Graph, Module, Op
from fusionstitch.patterns.convex import ancestors
from fusionstitch.patterns.pattern import Pattern

#: Ops whose result shares the buffer of its operand.
_VIEWS = frozenset({"reshape", "bitcast"})
_SAME_BUFFER = _VIEWS | {"get-tuple-element"}

#: The index of a parameter, and of its element if it is a tuple.
ParameterIndex = tuple[int, int | None]


def in_place(module: Module, pattern: Pattern, kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """The kernel's (output, input) pairs whose input is dead after the pattern: besides the
    pattern, only ops that it waits for read it.

    If a result must end up in the buffer of a donated parameter or of an element of a loop's carry,
    it overwrites nothing else, and nothing else overwrites that buffer: XLA would insert a copy. A
    parameter of the entry counts as dead only if it is donated.
    """
    required = _required_buffers(module, pattern.graph)
    reserved = set(required.values())
    before = _before(pattern)
    donated = {entry.parameter_number for entry in _donated(module)}
    if pattern.graph.proto_id != module.entry.proto_id:
        donated = set(range(len(pattern.graph.parameters)))
    pairs = []
    for output, operand in kernel.in_place:
        value = pattern.inputs[operand]
        parameter, wanted = _parameter_of(value), required.get(_buffer(pattern.outputs[output]).id)
        fits = parameter == wanted if wanted or parameter in reserved else True
        if fits and _dies(pattern.graph, value, before, donated):
            pairs.append((output, operand))
    return one_to_one(pairs)


def overwrites(module: Module, pattern: Pattern) -> tuple[tuple[int, int], ...]:
    """The pattern's (output, input) pairs that must share a buffer (see `in_place`) and whose input
    is read more than once, so that the time of writing the output matters."""
    required = _required_buffers(module, pattern.graph)
    taken = {
        parameter: i
        for i, op in enumerate(pattern.inputs)
        if (parameter := _parameter_of(op)) is not None
    }
    users = pattern.graph.users
    return tuple(
        (number, taken[wanted])
        for number, op in enumerate(pattern.outputs)
        if (wanted := required.get(_buffer(op).id)) in taken
        and sum(pattern.bits >> u.id & 1 for u in users[pattern.inputs[taken[wanted]].id]) > 1
    )


def _before(pattern: Pattern) -> int:
    """Bitset of the ops of a pattern and of everything it waits for."""
    graph = pattern.graph
    inside = pattern.bits | sum(1 << op.id for op in pattern.ops)
    return inside | ancestors(graph, sum(1 << op.id for op in pattern.inputs))


def _dies(graph: Graph, value: Op, before: int, donated: Container[int]) -> bool:
    """Whether only the ops `before` read the buffer of a value. Constants never die, and parameters
    only if they are `donated`."""
    if value is graph.root or any(not before >> u.id & 1 for u in graph.users[value.id]):
        return False
    while value.opcode in _SAME_BUFFER:
        value, reader = value.operands[0], value
        # elements of a tuple have buffers of their own, whatever else reads the tuple
        if reader.opcode != "get-tuple-element" and len(graph.users[value.id]) > 1:
            return False
    if value.opcode in ("constant", "opaque-constant"):
        return False
    return value.opcode != "parameter" or value.attrs["index"] in donated


def _required_buffers(module: Module, graph: Graph) -> dict[int, ParameterIndex]:
    """Required buffers: by the id of the op that owns the buffer, the parameter whose buffer it
    is."""
    whole = graph.root.opcode != "tuple"
    results = (graph.root,) if whole else graph.root.operands
    buffers: dict[int, ParameterIndex] = {}
    if graph.proto_id == module.entry.proto_id:
        for entry in _donated(module):
            number = 0 if whole else entry.output_shape_index[0]
            buffers[number] = (entry.parameter_number, None)
    elif graph.proto_id in module.loop_bodies:
        buffers = {number: (0, None if whole else number) for number in range(len(results))}
    return {_buffer(results[number]).id: parameter for number, parameter in buffers.items()}


def _donated(module: Module) -> list[Any]:
    """Aliases between results and parameters of the entry."""
    return list(module.proto.input_output_alias.entries)


def _buffer(op: Op) -> Op:
    while op.opcode in _VIEWS:
        op = op.operands[0]
    return op


def _parameter_of(value: Op) -> ParameterIndex | None:
    """The parameter whose buffer holds `value`, or None."""
    value, element = _buffer(value), None
    if value.opcode == "get-tuple-element":
        element, value = value.attrs["index"], _buffer(value.operands[0])
    return (value.attrs["index"], element) if value.opcode == "parameter" else None
