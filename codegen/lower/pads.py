"""Padded values that most indices have: where they are read without a branch.

    if (0 <= i && i < 100)                      const int inside = fs_clamp<int>(0, i, 99);
      v = sin(x[i]);                            v = 0 <= i && i < 100 ? sin(x[inside]) : 0;
    else
      v = 0;

Loads in branches wait for each other: compilers move none past one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import Index, variable
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

    known: Known
    sources: Sources
    named: Callable[[Indices], Indices]
    found: dict[tuple[int, Indices], int]

    def inside(self, op: Op, read: Read) -> Indices | None:
        """The nearest element that there is to one of a pad's operand that may lie outside, if most
        lie inside. What is but a load is better left out: compilers need no branch for that."""
        if read.share < OFTEN or any(guard.stride != 1 for guard in read.guards):
            return None
        source = op.operands[0]
        if self._is_loaded(source, read.index):
            return None
        below = _below(source)
        if any(below >> owned & 1 for owned in self.sources.owned):
            return None  # its owners alone may read what it is computed from
        ends: dict[Index, tuple[int, int]] = {}
        for guard in read.guards:
            low, high = ends.get(guard.index, (guard.index.lo, guard.index.hi))
            ends[guard.index] = max(low, guard.lower), min(high, guard.upper - 1)
        if any(low > high for low, high in ends.values()):
            return None
        tried = {
            i: variable(f"inside {i}", high - low + 1) + low for i, (low, high) in ends.items()
        }
        nearest = tuple(tried.get(i, i) for i in read.index)
        there = self._inlined(source, read.index)
        if there is None:
            return None
        if below & ~there or any(i.fetched for i in nearest):  # it may be more elsewhere
            besides = self._inlined(source, nearest)
            if besides is None or besides & ~there:
                return None  # nothing else would have what is read
        return tuple(self._clamped(i, *ends[i]) if i in ends else i for i in read.index)

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

    def _is_loaded(self, op: Op, index: Indices) -> bool:
        while True:
            if any(not fetched.name for i in index for fetched in i.fetched):
                return False
            if self.sources.located(op, index):
                return True
            if kind_of(op.opcode) is not Kind.MOVEMENT or is_branching(op):
                return False
            [read] = reads(op, index)
            op, index = op.operands[read.operand], read.index

    def _clamped(self, index: Index, low: int, high: int) -> Index:
        index = self.named((index,))[0]
        key = "clamped", index, low, high
        known = self.known.writer.find(key)
        if known is not None:
            assert isinstance(known[0], Name)
            return variable(known[0].name, high - low + 1) + low
        ends = number(low), number(high)
        value: Expr = apply(CLAMP, ends[0], Integer(index), ends[1], template=(self.known.int_,))
        value = infix("-", value, low) if low else value
        name = self.known.integer(key, "inside", value, self.known.depth_of((index,)))
        return variable(name, high - low + 1) + low


def _below(op: Op) -> int:
    """The ids, as a bitset, of all that an op is computed from, wherever it is read."""
    found, todo = 0, [op]
    while todo:
        one = todo.pop()
        if not found >> one.id & 1:
            found |= 1 << one.id
            todo += () if needs_stage(one) else one.operands
    return found
