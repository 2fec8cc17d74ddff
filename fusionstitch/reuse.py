"""Which dead operands a kernel may overwrite (output_operand_aliasing of its custom call)."""

from __future__ import annotations

from codegen.kernel import Kernel
from fusionstitch.patterns.pattern import Pattern
from hlo.graph import Module, Op

#: Ops whose result shares its operand's buffer.
_SAME_BUFFER = frozenset({"reshape", "bitcast", "get-tuple-element"})


def in_place(module: Module, pattern: Pattern, kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """The kernel's (output, input) pairs whose input nothing reads after the pattern.

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
    if value is graph.root or any(not inside >> u.id & 1 for u in graph.users[value.id]):
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


def _donated(module: Module) -> frozenset[int]:
    return frozenset(entry.parameter_number for entry in module.proto.input_output_alias.entries)
