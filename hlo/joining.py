"""Joining terms of sums in a module's proto: one op that reads what several read, one after the
other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.edit import Editor, FreshNames, forget_order, put, sort_instructions
from fusionstitch.hlo.graph import Graph, Module, Op, Shape


@dataclass(frozen=True, eq=False)
class Joint:
    """`terms` that become one: dots or reductions over joined operands, or pads to neighboring
    positions, in that order. `sides` are the operands to join, each with the dim along which."""

    terms: tuple[Op, ...]
    sides: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Sum:
    """An add and those that only it reads, `adds`: the sum of `rest` and of what is joined."""

    root: Op
    adds: tuple[Op, ...]
    rest: tuple[Op, ...]
    joints: tuple[Joint, ...]


def join(module: Module, graph: Graph, sums: Sequence[Sum]) -> None:
    """Edits the computation of `graph` in the module's proto, which is to be read again."""
    computation = next(c for c in module.proto.computations if c.id == graph.proto_id)
    editor = _Editor(module.proto, computation)
    for one in sums:
        editor.apply(one)
    editor.delete_unread()
    sort_instructions(computation)
    forget_order(module.proto)


class _Editor(Editor):
    def __init__(self, module: Any, computation: Any):
        super().__init__(module, computation, FreshNames(module))
        #: operands and the dim along which they are joined -> the instruction that does
        self.concatenated: dict[tuple[tuple[Op, ...], int], Any] = {}
        #: instructions that may have lost their readers
        self.left: list[int] = []

    def apply(self, one: Sum) -> None:
        """Lets the root add up the joined terms and those that stay; a single term becomes the root
        itself, so that no reader changes."""
        root = self.by_id[one.root.origin]
        terms = [self.term(joint) for joint in one.joints]
        terms += [self.by_id[op.origin] for op in one.rest]
        self.left += [op.origin for joint in one.joints for op in joint.terms if op.origin]
        self.left += [op.origin for op in one.adds if op.origin]
        while len(terms) > 2:
            terms[:2] = [self.copy(root, [term.id for term in terms[:2]])]
        if len(terms) == 2:
            put(root.operand_ids, [term.id for term in terms])
            return
        name, ident = root.name, root.id
        root.CopyFrom(terms[0])
        root.name, root.id = name, ident
        self.left.append(terms[0].id)

    def term(self, joint: Joint) -> Any:
        """The instruction that gives the sum of a joint's terms."""
        first, last = joint.terms[0], joint.terms[-1]
        operands = list(self.by_id[first.origin].operand_ids)
        for side, dim in joint.sides:
            operands[side] = self.concatenate([op.operands[side] for op in joint.terms], dim).id
        if first.opcode != "pad":
            return self.copy(self.by_id[first.origin], operands)
        [(_, dim)] = joint.sides
        low, high = first.attrs["low"][dim], last.attrs["high"][dim]
        if not low and not high:
            return self.by_id[operands[0]]
        made = self.copy(self.by_id[first.origin], operands)
        made.padding_config.dimensions[dim].edge_padding_high = high
        return made

    def concatenate(self, parts: Sequence[Op], dim: int) -> Any:
        key = tuple(parts), dim
        if key not in self.concatenated:
            dims = list(parts[0].dims)
            dims[dim] = sum(part.dims[dim] for part in parts)
            given = [self.by_id[part.origin] for part in parts]
            shape = Shape(parts[0].dtype, tuple(dims))
            made = self.add("concatenate", shape, [one.id for one in given], given[0])
            made.dimensions.append(dim)
            self.concatenated[key] = made
        return self.concatenated[key]

    def delete_unread(self) -> None:
        """Deletes the instructions of `left` that nothing reads."""
        readers: dict[int, int] = {self.computation.root_id: 1}
        for instruction in self.computation.instructions:
            for operand in (*instruction.operand_ids, *instruction.control_predecessor_ids):
                readers[operand] = readers.get(operand, 0) + 1
        gone: set[int] = set()
        waiting = list(self.left)
        while waiting:
            ident = waiting.pop()
            if ident in gone or readers.get(ident):
                continue
            gone.add(ident)
            for operand in self.by_id[ident].operand_ids:
                readers[operand] -= 1
                if operand in self.left:
                    waiting.append(operand)
        for index in reversed(range(len(self.computation.instructions))):
            if self.computation.instructions[index].id in gone:
                del self.computation.instructions[index]
