"""The buffers that values of a region lie in."""

from __future__ import annotations

from fusionstitch.codegen.ir.kernel import Buffer
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.types import computed, stored
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.literals import only_element

#: Types of positions.
_INDICES = frozenset({"s32", "s64", "u8", "u16", "u32"})


def buffer_of(op: Op, name: str, memory: Memory, overwritten: bool = False) -> Buffer:
    """The buffer that holds a value in memory."""
    # a table holds what is computed with
    element = computed(op.dtype) if memory is Memory.CONSTANT else stored(op.dtype)
    integers: tuple[int, ...] = ()
    if memory is Memory.CONSTANT and op.dtype in _INDICES:
        integers = tuple(op.attrs["value"].ravel().tolist())
    return Buffer(name, element, op.shape.size, memory, overwritten, integers=integers)


def is_table(op: Op) -> bool:
    """A constant whose elements differ, if only in a zero's sign: it becomes an array of the
    translation unit."""
    return op.opcode == "constant" and op.shape.size > 1 and only_element(op.attrs["value"]) is None


def is_wide(graph: Graph) -> bool:
    """Whether an index may pass 2^31."""
    return any(op.shape.size >= 1 << 31 for op in graph.ops[:-1])
