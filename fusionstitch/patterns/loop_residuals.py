"""What the loop of a gradient computes again, instead of reading what the loop before it stacked.

    for t: s = f(h); cs[t] = cos(s); ds[t] = s * 2     ->    for t: s = f(h); ss[t] = s
    for t backwards: g *= cs[t] + ds[t]                      g *= cos(ss[t]) + ss[t] * 2

Of the values of an iteration, those that are to be stacked are a minimum cut (networkx) between
what an iteration begins with and what the gradient reads: the fewest bytes from which elementwise
ops give the rest. What the loop stacks for others costs nothing, nor do its inputs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Module, Op
from fusionstitch.hlo.residuals import Again, Residual
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of
from fusionstitch.hlo.stacking import StackWrite
from fusionstitch.hlo.trips import carried
from fusionstitch.hlo.tuples import resolved, unhindered
from fusionstitch.patterns.loop_costs import moved_s
from fusionstitch.patterns.open_loops import OpenLoop, open_loops

#: Ops that only move elements, to places that the program says.
_MOVES = frozenset(
    {"broadcast", "reshape", "transpose", "slice", "reverse", "concatenate", "pad", "copy"}
)
#: Ops that need no other ones.
_SOURCES = frozenset({"constant", "iota"})
#: The ends of the flow network.
_BEGIN, _END = "begin", "end"


def loop_residuals(module: Module, device: Device) -> list[Again]:
    """The residuals worth it, each loop once."""
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
    """A loop, and another one that may read what it stacks."""

    loop: OpenLoop
    reader: OpenLoop

    def again(self, device: Device) -> Again | None:
        residuals = self.residuals
        if not residuals:
            return None
        for special in (True, False):
            kept, computed = self.cut(special)
            now = {unhindered(one.op): one for one in residuals}
            saved = sum(op.shape.bytes for op in now) - sum(op.shape.bytes for op in kept)
            work = sum(map(_work, computed)) / (device.fp32_flops / 2)
            if saved > 0 and moved_s(saved, device) > work:
                return self._found([one for op, one in now.items() if op not in kept], kept)
        return None

    def _found(self, gone: list[Residual], kept: Collection[Op]) -> Again:
        loop = self.loop
        away = {one.index for one in gone}
        stacks = {unhindered(w.op).id: w.index for w in self.writes if w.index not in away}
        new = tuple(op for op in kept if op.id not in stacks)
        stacks |= {op.id: len(loop.results) + number for number, op in enumerate(new)}
        stacks |= {i: read.index for i, read in loop.reads.items() if self.is_here(read.place)}
        same = {i: op.attrs["index"] for i, op in self.inputs.items()}
        feeds = {index: inside for inside, index in self.feeds.items() if index not in away}
        return Again(
            *(loop.graph, loop.op, self.reader.op, loop.trips, tuple(gone), new),
            *(self.writes[0].place, stacks, same, feeds),
        )

    @cached_property
    def writes(self) -> list[StackWrite]:
        """What the loop stacks, in one order."""
        found = [w for i in range(len(self.loop.results)) if (w := self.loop.write(i)) is not None]
        return [w for w in found if self._order(w.place) == self._order(found[0].place)]

    def _order(self, place: Op) -> list[int] | None:
        numbers = self.loop.evaluated(place)
        return None if numbers is None else np.asarray(numbers).tolist()

    def is_here(self, place: Op) -> bool:
        """Whether an iteration that reads at a place stacks at the same one."""
        return self._order(place) == self._order(self.writes[0].place)

    @cached_property
    def feeds(self) -> dict[int, int]:
        """The elements of the reader that are what elements of the loop became, or that are inputs
        of both, by these of the reader: the loop's."""
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
        """What the reader alone reads of the loop."""
        found = []
        written = {w.index: w for w in self.writes}
        for inside, index in self.feeds.items():
            users = self._users(index)
            reads = tuple(read for read in self.reader.reads.values() if read.index == inside)
            alone = users == [self.reader.op.operands[0]] and inside not in self.reader.asked
            if index in written and alone and self._reads(inside):
                found.append(Residual(unhindered(written[index].op), index, inside, reads))
        return found

    def _users(self, index: int) -> list[Op]:
        """Who reads element `index` of what the loop becomes."""
        graph = self.loop.graph
        parts = [u for u in graph.users[self.loop.op.id] if u.attrs.get("index") == index]
        return [user for part in parts for user in graph.users[part.id]]

    def _reads(self, inside: int) -> bool:
        """Whether the reader reads nothing but parts of a stack."""
        reader, body = self.reader, self.reader.body
        pieces = [u for u in body.users[reader.inside[inside].id] if u is not body.root]
        parts = [user for piece in pieces for user in body.users[piece.id]]
        once = self.reader.op.operands[0].operands
        [op] = [resolved(once[inside])]
        alone = [resolved(other) for other in once].count(op) == 1
        return alone and bool(parts) and all(part.id in reader.reads for part in parts)

    @cached_property
    def inputs(self) -> dict[int, Op]:
        """The ops of the loop's body that are elements which it hands on."""
        return {op.id: op for op in self.loop.body if self.loop.is_handed_on(op)}

    def cut(self, special: bool) -> tuple[list[Op], list[Op]]:
        """The values that are to be stacked, so that what the reader reads follows from them, and
        the ops that are computed again; those of `special` functions only if that is said."""
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
            size = 0 if given else op.shape.bytes
            network.add_edge((op.id, False), (op.id, True), capacity=size)
            if given or not _is_elementwise(op, special):
                network.add_edge(_BEGIN, (op.id, False))
                continue
            for operand in map(unhindered, op.operands):
                network.add_edge((operand.id, True), (op.id, False))
                wanted.append(operand)
        _, (begun, ended) = nx.minimum_cut(network, _BEGIN, _END)
        every = [ops[i] for i in sorted(ops)]
        kept = [op for op in every if (op.id, False) in begun and (op.id, True) in ended]
        kept = [op for op in kept if op.id not in self.given and op.opcode not in _SOURCES]
        return kept, [op for op in every if (op.id, False) in ended]

    @cached_property
    def given(self) -> set[int]:
        """The ops of the loop's body that the reader may have for nothing."""
        gone = {one.index for one in self.residuals}
        free = {unhindered(w.op).id for w in self.writes if w.index not in gone}
        here = (i for i, read in self.loop.reads.items() if self.is_here(read.place))
        return {*free, *self.inputs, *here}


def _is_elementwise(op: Op, special: bool) -> bool:
    if op.opcode in _MOVES:
        return True
    if kind_of(op.opcode) is not Kind.ELEMENTWISE or carried(op) is not None:
        return False
    return special or not spec_of(op.opcode).special


def _work(op: Op) -> int:
    """Instructions that an op takes, about."""
    if op.opcode in _MOVES or op.opcode in _SOURCES:
        return 0
    spec = spec_of(op.opcode)
    return op.shape.size * max(1, spec.flops + 8 * spec.special)
