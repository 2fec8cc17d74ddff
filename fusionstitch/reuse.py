"""Which dead operands a kernel may overwrite (output_operand_aliasing of its custom call)."""

from __future__ import annotations

from codegen.kernel import Kernel
from fusionstitch.patterns.pattern import Pattern
from hlo.graph import Graph, Module, Op

#: Ops whose result shares its operand's buffer.
_SAME_BUFFER = frozenset({"reshape", "bitcast", "get-tuple-element"})


def in_place(module: Module, pattern: Pattern, kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """The kernel's (output, input) pairs whose input nothing reads once the pattern runs.

    An entry parameter counts as dead only when it is donated: XLA would copy any other one.
    """
    return tuple(
        (output, operand)
        for output, operand in kernel.in_place
        if _dies(module, pattern, pattern.inputs[operand])
    )


def _dies(module: Module, pattern: Pattern, value: Op) -> bool:
    graph = pattern.graph
    inside = pattern.bits | sum(1 << op.id for op in pattern.ops)
    before = 0
    for op in pattern.inputs:
        before |= graph.reach[op.id]
    if not _read_only_by(graph, value, inside, before):
        return False
    while value.opcode in _SAME_BUFFER:
        value, reader = value.operands[0], value
        # the parts of a tuple are buffers of their own, whatever else reads the tuple
        if reader.opcode != "get-tuple-element" and len(graph.users[value.id]) > 1:
            return False
    if value.opcode == "constant":
        return False
    if value.opcode != "parameter" or graph is not module.entry:
        return True
    return value.attrs["index"] in _donated(module)


def _read_only_by(graph: Graph, value: Op, inside: int, before: int) -> bool:
    """Whether every reader of `value` is in the pattern, or must have run before it starts."""
    if value is graph.root:
        return False
    for user in graph.users[value.id]:
        if inside >> user.id & 1:
            continue
        if user.opcode in _SAME_BUFFER:
            if not _read_only_by(graph, user, inside, before):
                return False
        elif not before >> user.id & 1 or user.opcode in ("tuple", "while", "conditional"):
            return False  # a tuple or a loop may hand the buffer on
    return True


def _donated(module: Module) -> frozenset[int]:
    return frozenset(entry.parameter_number for entry in module.proto.input_output_alias.entries)
