"""One precision for a product that is computed in several parts of a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fusionstitch.hlo import schema
from fusionstitch.hlo.equal_products import ask_for_all_bits, products
from fusionstitch.hlo.graph import Module, Op, inside
from fusionstitch.hlo.importer import from_message
from fusionstitch.patterns.pattern import Pattern


def agreed(module: Module, patterns: Iterable[Pattern]) -> Module:
    """The module with the same precision for products that XLA and kernels both compute. In a copy
    of its proto, f32 dots left to XLA request full precision if one of `patterns` has an equal dot.

    Kernels keep at least 22 bits of the operands; XLA keeps 11 by default. Later ops may magnify
    the difference: exp((f + g - x @ y.T) / eps), with f and g from a loop that has the product in
    its kernel.
    """
    ours = {dot.origin for pattern in patterns for dot in _dots(pattern.ops)}
    instructions = (i for c in module.proto.computations for i in c.instructions)
    if not ours or all(i.opcode != "dot" or i.id in ours for i in instructions):
        return module  # the common case
    proto = schema.HloModule()
    proto.CopyFrom(module.proto)
    written = from_message(proto)
    found = {op: key for op, key in products(written).items() if _loses_bits(op)}
    shared = {key for op, key in found.items() if op.origin in ours}
    left = {op for op, key in found.items() if key in shared and op.origin not in ours}
    ask_for_all_bits(written, left)
    return replace(module, proto=proto)


def _dots(ops: Iterable[Op]) -> Iterator[Op]:
    """The dots of kernels, including those in loops, that XLA would compute differently."""
    for op in ops:
        yield from filter(_loses_bits, (op, *inside(op)) if op.opcode == "while" else (op,))


def _loses_bits(op: Op) -> bool:
    """Whether XLA may use fewer bits of an op's operands than they have."""
    if op.opcode != "dot" or op.attrs["precision"] != "default":
        return False
    return op.attrs["algorithm"] == "unset" and any(o.dtype == "f32" for o in op.operands)
