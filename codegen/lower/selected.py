"""Values joined from parts that lie in buffers: the address of one load is selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import (
    Fetched,
    Index,
    bounded_variables,
    narrowed,
    variable,
)
from fusionstitch.codegen.index_maps.maps import Guard, Indices, in_range, is_branching, reads
from fusionstitch.codegen.ir.expressions import Address, Choice, Expr, Integer, Name, infix
from fusionstitch.codegen.ir.types import PointerTo, stored
from fusionstitch.codegen.lower.guards import holds
from fusionstitch.codegen.lower.known import AtDepth, Known, Located, Sources
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: An op at an index, with the guards known so far and those of the last step.
_Piece = tuple[Op, Indices, tuple[Guard, ...], tuple[Guard, ...]]
#: Pieces among which an address is selected, and among which one that lies elsewhere in each; of
#: more, branches find the right one sooner.
MOST_SELECTED, MOST_ADDRESSES = 8, 2
#: Elements of the longest vector: parts that start at multiples of it can be read by vectors.
MOST_ALIGNED = 16


@dataclass(frozen=True)
class Selection:
    """Finds the parts of a value; `named` gives an index with every integer it depends on known
    by name."""

    known: Known
    sources: Sources
    named: Callable[[Indices], Indices]

    def selected(self, op: Op, index: Indices) -> AtDepth | None:
        """One load from the part that holds the element, if all parts lie in buffers: loads
        in branches would wait for each other. Pieces alike in their strides differ in where
        they start alone, which fewer variables decide than the element."""
        parts = list(self._parts(op, index, (), narrow=False))
        found = [part for _, part in parts if part is not None]
        if len(found) < len(parts) or len(parts) > MOST_SELECTED:
            return None
        conditions = [guards for guards, _ in parts]
        address = found[-1].address
        apart = [part.address - address for part in found]
        depth = self.known.depth_of(tuple(g.index for guards in conditions for g in guards))
        depth = max(depth, self.known.writer.ordered_depth)
        alike = all(not difference.terms for difference in apart)
        if alike:
            starts = [_moved(p.buffer, d.const) for p, d in zip(found, apart, strict=True)]
        elif len(parts) <= MOST_ADDRESSES:
            narrow = self._parts(op, index, (), narrow=True)
            found = [part for _, part in narrow if part is not None]
            if len(found) < len(parts):
                return None
            addresses, address = self.sources.bases([part.address for part in found])
            depth = max(depth, self.known.depth_of(tuple(addresses)))
            starts = [Address(p.buffer, Integer(a)) for p, a in zip(found, addresses, strict=True)]
        else:
            return None
        start = self._choice(op, conditions, starts, depth)
        vector = not alike or all(d.const % MOST_ALIGNED == 0 for d in apart)
        value = self.sources.loaded_from(op, start, depth, address, vector)
        return self.known.define(op, index, value, max(depth, self.known.depth_of((address,))))

    def _choice(
        self, op: Op, guards: Sequence[tuple[Guard, ...]], starts: Sequence[Expr], depth: int
    ) -> str:
        """The pointer of the first part whose guards hold."""
        cases = [(holds(g), start) for g, start in zip(guards, starts, strict=True)]
        choice = Choice(tuple(cases[:-1]), starts[-1])
        known = self.known.writer.find(choice)
        if known is not None:
            assert isinstance(known[0], Name)
            return known[0].name
        name = self.known.writer.name(f"{self.known.label(op)}_from")
        self.known.writer.let(PointerTo(stored(op.dtype), constant=True), name, choice, depth)
        self.known.writer.chain[depth].memo[choice] = Name(name)
        return name

    def _parts(
        self, op: Op, index: Indices, guards: tuple[Guard, ...], narrow: bool
    ) -> Iterator[tuple[tuple[Guard, ...], Located | None]]:
        """The elements that `op` at `index` may be, each with what holds if it is, the last with
        nothing but `guards`; None for one that lies in no buffer. With `narrow` their addresses
        are those where that holds."""
        stack: list[_Piece] = [(op, index, guards, ())]
        while stack:
            op, index, guards, new = stack.pop()
            if not all(self._there(i, narrow) for i in index):
                yield (*guards, *new), None  # an integer that only its branch may read
                continue
            index = self.named(self._where(new, index) if narrow else index)
            guards = (*guards, *new)
            known = self.known.writer.find((op.id, index))
            located = self.sources.located(op, index) if known is None else None
            moves = kind_of(op.opcode) is Kind.MOVEMENT and not is_branching(op)
            if located is None and known is None and (moves or op.opcode == "concatenate"):
                for read in reversed(reads(op, index)):
                    stack.append((op.operands[read.operand], read.index, guards, read.guards))
            else:
                yield guards, located

    def _there(self, index: Index, narrow: bool) -> bool:
        """Whether the integers that an index depends on can be read unconditionally. None can where
        indices are narrowed."""

        def one(fetched: Fetched) -> bool:
            if fetched.name:
                return True
            inside = not narrow and in_range(fetched.op, fetched.at)
            return inside and all(self._there(i, narrow) for i in fetched.at)

        return all(map(one, index.fetched))

    def _where(self, guards: Sequence[Guard], index: Indices) -> Indices:
        """`index` as it is where `guards` hold: narrower ranges make addresses simpler."""
        for guard in guards:
            bounds = bounded_variables(guard.index, guard.upper)
            if bounds:
                index = tuple(narrowed(i, bounds) for i in index)
            elif guard.index.hi >= guard.upper and guard.lower == 0 and guard.index in index:
                named = self._named(guard.index, guard.upper)
                index = tuple(named if i == guard.index else i for i in index)
        return index

    def _named(self, index: Index, extent: int) -> Index:
        """A variable of `extent` with the value of `index`."""
        known = self.known.writer.find(("named", index, extent))
        if known is not None:
            assert isinstance(known[0], Name)
            return variable(known[0].name, extent)
        depth = self.known.depth_of((index,))
        key = "named", index, extent
        return variable(self.known.integer(key, "place", Integer(index), depth), extent)


def _moved(buffer: Expr, by: int) -> Expr:
    """A pointer from which an element lies where it lies `by` further in `buffer`."""
    return infix("-" if by < 0 else "+", buffer, abs(by)) if by else buffer
