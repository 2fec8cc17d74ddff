"""Padded values that most indices have: where they are read without a branch.

    if (0 <= i && i < 100)                      const int inside = fs_clamp<int>(0, i, 99);
      v = sin(x[i]);                            v = 0 <= i && i < 100 ? sin(x[inside]) : 0;
    else
      v = 0;

Loads in branches wait for each other: compilers move none past one. Where there is a branch all the
same, what an index is in it may save divisions:

    if (0 <= i && i < 12)                       if (0 <= i && i < 12) {
      v = x[i / 3 % 4 * 3 + i % 3];               const int inside = i;
                                                  v = x[inside];
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import Index, divisions, variable
from fusionstitch.codegen.index_maps.maps import Indices, Read, is_branching, reads
from fusionstitch.codegen.ir.expressions import Expr, Integer, Name, apply, infix, number
from fusionstitch.codegen.ir.intrinsics import CLAMP
from fusionstitch.codegen.loops.stages import inlined_reads
from fusionstitch.codegen.lower.known import Known, Sources
from fusionstitch.codegen.rewrite.extents import needs_stage
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Share of the elements that come from an operand from which on it is read whether or not an
#: element does.
OFTEN = 0.5
#: Values and the indices they are read at that are looked at for all pads of a kernel.
MOST_READS = 10_000


@dataclass(frozen=True)
class Nearest:
    """Finds the nearest element to one that may lie outside; `named` gives an index with every
    integer it depends on known by name; `found` is kept from pad to pad of a kernel."""

    names: Known
    sources: Sources
    named: Callable[[Indices], Indices]
    found: dict[tuple[int, Indices], int]

    def inside(self, op: Op, read: Read) -> Indices | None:
        """The nearest element that there is to one of a pad's operand that may lie outside, if most
        lie inside. What is but a load is better left out, if it is not one of a vector: compilers
        need no branch for that."""
        if read.share < OFTEN or any(guard.stride != 1 for guard in read.guards):
            return None
        source, ends = op.operands[0], _ends(read)
        if ends is None:
            return None
        nearest = _bounded(read.index, ends)
        if self._address(source, read.index) is not None and not self._in_vector(source, nearest):
            return None
        below, varies = _below(source)
        if any(below >> owned & 1 for owned in self.sources.owned):
            return None  # its owners alone may read what it is computed from
        if varies or any(i.fetched for i in nearest):
            there = self._inlined(source, read.index)
            if there is None:
                return None
            if below & ~there or any(i.fetched for i in nearest):  # it may be more elsewhere
                besides = self._inlined(source, nearest)
                if besides is None or besides & ~there:
                    return None  # nothing else would have what is read
        return tuple(self._clamped(i, *ends[i]) if i in ends else i for i in read.index)

    def known(self, op: Op, read: Read) -> Indices:
        """The index of an element of a pad's operand, in the branch of those that lie inside."""
        if any(guard.stride != 1 for guard in read.guards):
            return read.index
        source, ends = op.operands[0], _ends(read)
        address = self._address(source, read.index)
        if ends is None or address is None:
            return read.index
        bounded = self._address(source, _bounded(read.index, ends))
        named = sum(divisions(i) for i in dict.fromkeys(read.index) if i in ends)
        if bounded is None or divisions(bounded) + named >= divisions(address):
            return read.index
        return tuple(self._inside(i, *ends[i]) if i in ends else i for i in read.index)

    def _inlined(self, op: Op, index: Indices) -> int | None:
        """The ids, as a bitset, of what is read where an op is computed, except what a loop of its
        own gives. None where that is too much to look at: pads of pads, as in scans by halves, are
        read at twice as many indices with each pad."""
        found, seen = self.found, len(self.found)
        waiting: list[tuple[Op, Indices, list[tuple[Op, Indices]] | None]] = [(op, index, None)]
        while waiting:
            one, at, known = waiting.pop()
            if known is not None:  # all that it reads was looked at
                bits = 1 << one.id
                for other, there in known:
                    bits |= found[other.id, there]
                found[one.id, at] = bits
            elif (one.id, at) not in found:
                if seen > MOST_READS:
                    return None
                seen += 1
                ends = one.opcode == "parameter" or needs_stage(one)
                known = [] if ends else inlined_reads(one, at)
                waiting.append((one, at, known))
                waiting += [(other, there, None) for other, there in known]
        return found[op.id, index]

    def _in_vector(self, op: Op, nearest: Indices) -> bool:
        """Whether the nearest elements to those that a loop over a vector reads are one."""
        vector, address = self.sources.vector, self._address(op, nearest)
        return vector is not None and address is not None and vector.base(address) is not None

    def _address(self, op: Op, index: Indices) -> Index | None:
        """Where an element lies in memory, of a value that is but a load."""
        while True:
            if any(not fetched.name for i in index for fetched in i.fetched):
                return None
            if found := self.sources.located(op, index):
                return found.address
            if kind_of(op.opcode) is not Kind.MOVEMENT or is_branching(op):
                return None
            [read] = reads(op, index)
            op, index = op.operands[read.operand], read.index

    def _inside(self, index: Index, low: int, high: int) -> Index:
        """An index that is known to lie between two numbers, by name."""
        index = self.named((index,))[0]
        value: Expr = Integer(index - low)
        key = "inside", index, low, high
        name = self.names.integer(key, "inside", value, self.names.writer.depth)
        return variable(name, high - low + 1) + low

    def _clamped(self, index: Index, low: int, high: int) -> Index:
        index = self.named((index,))[0]
        key = "clamped", index, low, high
        known = self.names.writer.find(key)
        if known is not None:
            assert isinstance(known[0], Name)
            return variable(known[0].name, high - low + 1) + low
        ends = number(low), number(high)
        value: Expr = apply(CLAMP, ends[0], Integer(index), ends[1], template=(self.names.int_,))
        value = infix("-", value, low) if low else value
        name = self.names.integer(key, "inside", value, self.names.depth_of((index,)))
        return variable(name, high - low + 1) + low


def _ends(read: Read) -> dict[Index, tuple[int, int]] | None:
    """Between which numbers the indices lie that guards are about; None if there are none."""
    ends: dict[Index, tuple[int, int]] = {}
    for guard in read.guards:
        low, high = ends.get(guard.index, (guard.index.lo, guard.index.hi))
        ends[guard.index] = max(low, guard.lower), min(high, guard.upper - 1)
    return None if any(low > high for low, high in ends.values()) else ends


def _bounded(index: Indices, ends: dict[Index, tuple[int, int]]) -> Indices:
    """An index as one of variables with these ends."""
    tried = {i: variable(f"inside {i}", high - low + 1) + low for i, (low, high) in ends.items()}
    return tuple(tried.get(i, i) for i in index)


def _below(op: Op) -> tuple[int, bool]:
    """The ids, as a bitset, of all that an op is computed from, wherever it is read; and whether
    the index may decide what of that is."""
    found, todo, varies = 0, [op], False
    while todo:
        one = todo.pop()
        if not found >> one.id & 1:
            found |= 1 << one.id
            if not needs_stage(one):
                varies = varies or is_branching(one)
                todo += one.operands
    return found, varies
