"""Constants of loops' bodies, in a module's proto: loops carry them instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionstitch.hlo.edit import put
from fusionstitch.hlo.graph import Graph, Module, Op
from fusionstitch.hlo.loop_editor import Element, LoopEditor, edit_loops


@dataclass(frozen=True, eq=False)
class LoopConstants:
    """Constants that the body of a loop has."""

    graph: Graph
    loop: Op
    constants: tuple[Op, ...]


def carry(module: Module, found: Sequence[LoopConstants]) -> bool:
    """Has constants stand before loops in the module's proto, which is to be read again where this
    is true."""
    return edit_loops(module, found, _carry)


def _carry(loop: LoopEditor, found: LoopConstants) -> None:
    elements = []
    for number, op in enumerate(found.constants):
        constant = loop.inner.by_id[op.origin]
        first = loop.outer.bring(constant, ())
        inside = loop.read(loop.carried + number, op.shape, constant)
        elements.append(Element(op.shape, first.id, inside.id))
        for reader in loop.inner.computation.instructions:
            operands = [inside.id if i == constant.id else i for i in reader.operand_ids]
            put(reader.operand_ids, operands)
    loop.widen(elements)
