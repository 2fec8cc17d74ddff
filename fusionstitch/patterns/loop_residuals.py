"""Values that a gradient's loop recomputes instead of reading them from the forward loop's stacks.

    for t: s = f(h); cs[t] = cos(s); ds[t] = s * 2     ->    for t: s = f(h); ss[t] = s
    for t backwards: g *= cs[t] + ds[t]                      g *= cos(ss[t]) + ss[t] * 2

A minimum cut (networkx) decides which values of an iteration are stacked, and which are recomputed
from these. It separates what an iteration starts from and what the gradient reads. A value's weight
is the time to stack it, or to compute it. What the loop stacks for others is free, and so are its
inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.deciding import chosen_by, picked
from fusionstitch.hlo.graph import Module, Op
from fusionstitch.hlo.residuals import Again, Residual
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of
from fusionstitch.hlo.stacking import StackWrite
from fusionstitch.hlo.trips import carried
from fusionstitch.hlo.tuples import resolved, unhindered
from fusionstitch.patterns.loop_costs import moved_s
from fusionstitch.patterns.open_loops import OpenLoop, open_loops

#: Ops that only move elements, to static positions.
_MOVES = frozenset(
    {"broadcast", "reshape", "transpose", "slice", "reverse", "concatenate", "pad", "copy"}
)
#: Ops without operands.
_SOURCES = frozenset({"constant", "iota"})
#: The ends of the flow network.
_BEGIN, _END = "begin", "end"
_Node = str | tuple[int, bool]


def loop_residuals(module: Module, device: Device) -> list[Again]:
    """The residuals worth recomputing, each loop once."""
    loops, found, taken = list(open_loops(module)), list[Again](), set[Op]()
    for loop in loops:
        for reader in loops:
            if loop is reader or loop.graph is not reader.graph or loop.trips != reader.trips:
                continue
            if not taken & {loop.op, reader.op}:
                again = _Pair(loop, reader).again(device)
                if again is not None:
                    found.append(again)
                    taken |= {loop.op, reader.op}
    return found


@dataclass(frozen=True, eq=False)
class _Pair:
    """A loop, and another loop that may read its stacks."""

    loop: OpenLoop
    reader: OpenLoop

    def again(self, device: Device) -> Again | None:
        now = {unhindered(one.op): one for one in self.residuals}
        stacked = self.stacked(device) if now else []
        gone = [one for op, one in now.items() if op not in stacked]
        return self._found(gone, stacked) if gone else None

    def _found(self, gone: list[Residual], stacked: Collection[Op]) -> Again:
        loop = self.loop
        away = {one.index for one in gone}
        stacks = {unhindered(w.op).id: w.index for w in self.writes if w.index not in away}
        new = tuple(op for op in stacked if op.id not in stacks)
        stacks |= {op.id: len(loop.results) + number for number, op in enumerate(new)}
        stacks |= {i: part.index for i, part in loop.parts.items() if self.is_here(part.position)}
        same = {i: op.attrs["index"] for i, op in self.inputs.items()}
        feeds = {index: inside for inside, index in self.feeds.items() if index not in away}
        return Again(
            *(loop.graph, loop.op, self.reader.op, loop.trips, tuple(gone), new),
            *(self.writes[0].position, stacks, same, feeds),
        )

    @cached_property
    def writes(self) -> list[StackWrite]:
        """The stacks that the loop writes in one order."""
        loop = self.loop
        rows = (loop.write(i) or loop.row(i) for i in range(len(loop.results)))
        found = [row for row in rows if row is not None]
        return [w for w in found if self._are_one(w.position, found[0].position)]

    def _are_one(self, position: Op, other: Op) -> bool:
        """Whether two positions are equal in each iteration."""
        one, another = map(self.loop.evaluated, (position, other))
        if one is None or another is None:
            return position is other
        return np.array_equal(one, another)

    def is_here(self, position: Op) -> bool:
        """Whether an iteration that reads at a position also stacks there."""
        return self._are_one(position, self.writes[0].position)

    @cached_property
    def feeds(self) -> dict[int, int]:
        """The elements of the reader that are results of the loop's elements, or inputs of both
        loops: the reader's index to the loop's."""
        loop, reader = self.loop, self.reader
        begun = {resolved(op): i for i, op in enumerate(loop.op.operands[0].operands)}
        found = {}
        for inside, op in enumerate(map(resolved, reader.op.operands[0].operands)):
            if inside not in reader.inside or not reader.is_handed_on(reader.inside[inside]):
                continue
            if op.opcode == "get-tuple-element" and op.operands[0] is loop.op:
                found[inside] = op.attrs["index"]
            elif (index := begun.get(op)) is not None and self._is_input(index):
                found[inside] = index
        return found

    def _is_input(self, index: int) -> bool:
        inside = self.loop.inside.get(index)
        return inside is not None and self.loop.is_handed_on(inside)

    @cached_property
    def residuals(self) -> list[Residual]:
        """The results of the loop that only the reader reads."""
        found = []
        alone = {i: n for i, n in self.feeds.items() if self._is_for_reader(n) and self._reads(i)}
        written = {w.index: w for w in self.writes} if alone else {}
        for inside, index in alone.items():
            reads = tuple(part for part in self.reader.parts.values() if part.index == inside)
            if index in written:
                found.append(Residual(unhindered(written[index].op), index, inside, reads))
        return found

    def _is_for_reader(self, index: int) -> bool:
        """Whether element `index` of the loop's result is passed to the reader exactly once, and
        used nowhere else."""
        graph, begun = self.loop.graph, self.reader.op.operands[0]
        parts = [u for u in graph.users[self.loop.op.id] if u.attrs.get("index") == index]
        once = sum(resolved(op) in parts for op in begun.operands) == 1
        return once and all(graph.users[p.id] == (begun,) and p is not graph.root for p in parts)

    def _reads(self, inside: int) -> bool:
        """Whether the reader reads only parts of a stack."""
        reader, body = self.reader, self.reader.body
        parts = [u for u in body.users[reader.inside[inside].id] if u is not body.root]
        every = bool(parts) and all(part.id in reader.parts for part in parts)
        return every and inside not in reader.asked

    @cached_property
    def inputs(self) -> dict[int, Op]:
        """The ops of the loop's body that are loop-invariant elements."""
        return {op.id: op for op in self.loop.body if self.loop.is_handed_on(op)}

    def stacked(self, device: Device) -> list[Op]:
        """The values to stack, so that what the reader reads can be computed from them.

        An op has two nodes. If the minimum cut goes through the op, it is stacked. If the cut is
        before the op, it is recomputed.
        """
        import networkx as nx  # on first use: loading takes a while

        network, ops = nx.DiGraph(), dict[int, Op]()
        wanted = [unhindered(one.op) for one in self.residuals]
        for op in wanted:
            network.add_edge((op.id, True), _END)
        while wanted:
            op = wanted.pop()
            if op.id in ops:
                continue
            ops[op.id] = op
            given = op.id in self.given or op.opcode in _SOURCES
            stacked = 0 if given else _stacked(op, device)
            network.add_edge((op.id, False), (op.id, True), capacity=stacked)
            if given or not _is_elementwise(op):
                network.add_edge(_BEGIN, (op.id, False))
                continue
            network.add_edge(_BEGIN, (op.id, False), capacity=_computed(op, device))
            for operand in map(unhindered, op.operands):
                network.add_edge((operand.id, True), (op.id, False))
                wanted.append(operand)
        network.add_edges_from(self._alike(ops))
        _, (begun, ended) = nx.minimum_cut(network, _BEGIN, _END)
        through = (i for i in sorted(ops) if (i, False) in begun and (i, True) in ended)
        return [ops[i] for i in through if not (i in self.given or ops[i].opcode in _SOURCES)]

    def _alike(self, ops: Mapping[int, Op]) -> Iterator[tuple[_Node, _Node]]:
        """Edges that prevent recomputing a number, with possibly different rounding, if a value
        selected among such numbers is not recomputed: comparisons would reveal which one it was."""
        free = [op for op in self.loop.body if op.id in self.given]
        for op in {**ops, **{one.id: one for one in free}}.values():
            numbers, passed = picked(op)
            for number in numbers if chosen_by(passed) else ():
                if number.id in ops:
                    yield (op.id, False) if op.id in ops else _BEGIN, (number.id, False)

    @cached_property
    def given(self) -> set[int]:
        """The ops of the loop's body that the reader gets for free."""
        gone = {one.index for one in self.residuals}
        free = {unhindered(w.op).id for w in self.writes if w.index not in gone}
        here = (i for i, part in self.loop.parts.items() if self.is_here(part.position))
        return {*free, *self.inputs, *here}


def _is_elementwise(op: Op) -> bool:
    return op.opcode in _MOVES or (kind_of(op.opcode) is Kind.ELEMENTWISE and carried(op) is None)


def _stacked(op: Op, device: Device) -> int:
    """Picoseconds that an iteration takes to stack a value, and one of the reader to read it."""
    moved = moved_s(op.shape.bytes, device) * 1e12
    return round(moved + _issued(op, device.stack_instructions, device))


def _computed(op: Op, device: Device) -> int:
    """Picoseconds that an iteration takes to compute an op."""
    if op.opcode in _MOVES:
        return 0
    return round(_issued(op, spec_of(op.opcode).instructions, device))


def _issued(op: Op, instructions: int, device: Device) -> float:
    """Picoseconds to issue this many instructions for each element: few elements are bound by
    latency, many by the number of lanes."""
    waves = op.shape.size / (device.sm_count * device.lanes)
    each = max(device.instructions.operation_cycles, waves)
    return instructions * each / device.cycles_per_us * 1e6
