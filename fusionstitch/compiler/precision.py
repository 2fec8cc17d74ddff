"""One precision for a product that several computations of a program have, such as a loop and what
is before it.

By default XLA's libraries round f32 operands to TF32 on GPUs (`Library.float_bits`), and so do our
kernels, except for loops, whose products keep all bits. Later ops may magnify the difference:
exp((f + g - x @ y.T) / eps), with f and g from a loop that has the product in its kernel.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo import schema
from fusionstitch.hlo.equal_products import REPEATED, ask_for_all_bits, products
from fusionstitch.hlo.graph import Module, Op, inside
from fusionstitch.hlo.importer import from_message
from fusionstitch.patterns.pattern import Pattern


def with_repeated_exact(module: Module, device: Device) -> Module:
    """The module in which products that several computations have are marked, so that no kernel
    rounds them. Its proto stays as it is, and so does what is left to XLA."""
    if not device.rounds_floats or sum(any(map(_loses_bits, g)) for g in module.graphs) < 2:
        return module
    made = from_message(module.proto)
    for op in _repeated(made):
        op.attrs = {**op.attrs, "precision": REPEATED}
    return made


def agreed(module: Module, patterns: Iterable[Pattern]) -> Module:
    """The module in which XLA's part of a repeated product asks for all bits, in a copy of its
    proto, if one of `patterns` has another part."""
    ours = {dot.origin for pattern in patterns for dot in _dots(pattern.ops)}
    instructions = (i for c in module.proto.computations for i in c.instructions)
    if not ours or all(i.opcode != "dot" or i.id in ours for i in instructions):
        return module  # the common case
    written = from_message(_copy(module.proto))
    repeated = _repeated(written)
    shared = {key for op, key in repeated.items() if op.origin in ours}
    left = [op for op, key in repeated.items() if key in shared and op.origin not in ours]
    ask_for_all_bits(written, left)
    return replace(module, proto=written.proto)


def _copy(proto: Any) -> Any:
    made = schema.HloModule()
    made.CopyFrom(proto)
    return made


def _repeated(module: Module) -> Mapping[Op, Hashable]:
    """Dots that may lose bits whose product several computations have, with what they are."""
    found = {op: key for op, key in products(module).items() if _loses_bits(op)}
    graphs: dict[Hashable, set[int]] = {}
    for number, graph in enumerate(module.graphs):
        for op in graph:
            if op in found:
                graphs.setdefault(found[op], set()).add(number)
    return {op: key for op, key in found.items() if len(graphs[key]) > 1}


def _dots(ops: Iterable[Op]) -> Iterator[Op]:
    """The dots of kernels, including those in loops."""
    for op in ops:
        each = (op, *inside(op)) if op.opcode == "while" else (op,)
        yield from (one for one in each if one.opcode == "dot")


def _loses_bits(op: Op) -> bool:
    """Whether XLA may use fewer bits of an op's operands than they have."""
    if op.opcode != "dot" or op.attrs["precision"] != "default":
        return False
    return op.attrs["algorithm"] == "unset" and any(o.dtype == "f32" for o in op.operands)
