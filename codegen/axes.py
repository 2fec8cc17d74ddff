"""Axis analysis: which dims of the stages of a group are the same axis, and which may be GRID.

Each dim of each stage is a chain of atomic axes, major to minor. A read of one stage by another
makes axes equal; a reshape splits them until the digits agree. An axis can be spread over blocks
if every stage of the group carries it under matching maps and none sums over it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from codegen.index import Index, Quotient, Remainder, Term, Var
from codegen.maps import Indices
from codegen.stages import Stage


class AxisSet:
    """A union-find of axes whose classes can be split into digits.

    `owners` is a bitset: two axes with an owner in common never become the same.
    """

    def __init__(self) -> None:
        self._extent: list[int] = []
        self._owners: list[int] = []
        self._link: list[int | None] = []
        self._digits: list[tuple[int, int] | None] = []

    def new(self, extent: int, owners: int = 0) -> int:
        self._extent.append(extent)
        self._owners.append(owners)
        self._link.append(None)
        self._digits.append(None)
        return len(self._extent) - 1

    def extent(self, axis: int) -> int:
        return self._extent[axis]

    def leaves(self, axis: int) -> list[int]:
        """The atomic axes of `axis`, major to minor, as class representatives."""
        while (link := self._link[axis]) is not None:
            axis = link
        digits = self._digits[axis]
        if digits is None:
            return [axis]
        return self.leaves(digits[0]) + self.leaves(digits[1])

    def split(self, leaf: int, minor: int) -> None:
        """Makes a leaf of extent e the digits (e / minor, minor)."""
        owners = self._owners[leaf]
        major = self._extent[leaf] // minor
        self._digits[leaf] = (self.new(major, owners), self.new(minor, owners))

    def range(self, axis: int, divisor: int, extent: int) -> list[int] | None:
        """The leaves that form the digit (axis / divisor) % extent, or None if none do."""
        if not (self._cut(axis, divisor) and self._cut(axis, divisor * extent)):
            return None
        found: list[int] = []
        position = 1
        for leaf in reversed(self.leaves(axis)):
            if divisor <= position < divisor * extent:
                found.append(leaf)
            position *= self._extent[leaf]
        return found[::-1]

    def _cut(self, axis: int, position: int) -> bool:
        """Splits leaves so that a digit boundary lies at `position`, from the minor end."""
        below = 1
        for leaf in reversed(self.leaves(axis)):
            if below == position:
                return True
            extent = self._extent[leaf]
            if below * extent > position:
                if position % below or extent % (position // below):
                    return False
                self.split(leaf, position // below)
                return True
            below *= extent
        return below == position

    def unify(self, left: Sequence[int], right: Sequence[int]) -> bool:
        """Makes two chains of axes of equal extent the same.

        False if their digits do not align, or if an owner would have one axis twice.
        """
        while True:
            a = [leaf for axis in left for leaf in self.leaves(axis)]
            b = [leaf for axis in right for leaf in self.leaves(axis)]
            for x, y in zip(reversed(a), reversed(b), strict=False):
                if x == y:
                    continue
                small, large = sorted((self._extent[x], self._extent[y]))
                if small == large:
                    if self._owners[x] & self._owners[y]:
                        return False
                    self._owners[y] |= self._owners[x]
                    self._link[x] = y
                elif large % small:
                    return False
                else:
                    self.split(x if self._extent[x] == large else y, small)
                break
            else:
                return len(a) == len(b)


class GroupAxes:
    """The axes of a set of stages: `dims[s][d]` and `inner[s][k]` are axes of stage s."""

    def __init__(self, stages: Sequence[Stage], share_inputs: bool = False):
        self.set = AxisSet()
        self.stages = tuple(stages)
        self.dims: dict[int, list[int]] = {}
        self.inner: dict[int, list[int]] = {}
        for s in stages:  # a loop has each axis once: x + x.T and x @ x.T do not fold onto one
            own = 1 << s.number
            self.dims[s.number] = [self.set.new(e, own) for e in s.op.dims]
            self.inner[s.number] = [self.set.new(e, own) for e in s.inner_extents]
        self._by_var: dict[str, int] = {}
        for s in stages:
            for at, axis in zip(
                (*s.dims, *s.inner),
                (*self.dims[s.number], *self.inner[s.number]),
                strict=True,
            ):
                for term, _ in at.terms:
                    if isinstance(term, Var):
                        self._by_var[term.name] = axis
        matched: dict[tuple[int, int], list[int]] = {}
        for stage in stages:
            for n, (producer, index) in enumerate(stage.reads):
                if producer.number in self.dims:
                    axes = self.dims[producer.number]
                    matched[stage.number, n] = self._match(axes, producer.op.dims, index)
        if share_inputs:
            self._match_inputs()
        #: (reader, number of the read) -> atomic axes under which both ends agree
        self.carried = {
            edge: {leaf for a in axes for leaf in self.set.leaves(a)}
            for edge, axes in matched.items()
        }
        self.refresh()

    def refresh(self) -> None:
        """Works out the atomic axes of every stage again, after axes were split."""
        self._leaves = {s.number: self._atoms(self.dims[s.number]) for s in self.stages}
        self._inner_leaves = {s.number: self._atoms(self.inner[s.number]) for s in self.stages}
        self.carried = {
            edge: {leaf for a in carried for leaf in self.set.leaves(a)}
            for edge, carried in self.carried.items()
        }

    def _match(self, axes: Sequence[int], extents: Sequence[int], index: Indices) -> list[int]:
        """Unifies the axes of a value with those its reader indexes it by; returns what matched."""
        found: list[int] = []
        for axis, extent, i in zip(axes, extents, index, strict=True):
            if extent == 1:
                continue
            chain = self._chain(i, extent)
            if chain is not None and self.set.unify([axis], chain):
                found.append(axis)
        return found

    def _match_inputs(self) -> None:
        """Stages that read one input under like maps share its axes."""
        seen: dict[int, list[int]] = {}
        for stage in self.stages:
            first: set[int] = set()
            for op, index in stage.loads:
                if op.id in first:
                    continue
                first.add(op.id)
                if op.id not in seen:
                    seen[op.id] = [self.set.new(e) for e in op.dims]
                self._match(seen[op.id], op.dims, index)

    def _chain(self, index: Index, extent: int) -> list[int] | None:
        """The axes whose digits, major to minor, make up `index`, if it is such a number."""
        if index.const:
            return None
        chain: list[int] = []
        place = 1
        for term, coefficient in sorted(index.terms, key=lambda tc: tc[1]):
            if coefficient != place:
                return None
            digit = self._digit(term)
            if digit is None:
                return None
            axes, size = digit
            chain = axes + chain
            place *= size
        return chain if place == extent else None

    def _digit(self, term: Term) -> tuple[list[int], int] | None:
        divisor, extent = 1, None
        if isinstance(term, Remainder):
            extent = term.divisor
            inner = term.base.terms
            if term.base.const or len(inner) != 1 or inner[0][1] != 1:
                return None
            term = inner[0][0]
        if isinstance(term, Quotient):
            divisor = term.divisor
            inner = term.base.terms
            if term.base.const or len(inner) != 1 or inner[0][1] != 1:
                return None
            term = inner[0][0]
        if not isinstance(term, Var) or term.name not in self._by_var:
            return None
        if extent is None:
            if term.extent % divisor:
                return None
            extent = term.extent // divisor
        axes = self.set.range(self._by_var[term.name], divisor, extent)
        return None if axes is None else (axes, extent)

    def leaves(self, stage: Stage) -> list[int]:
        """The atomic axes of a stage's dims in memory order, axes of extent 1 left out."""
        return self._leaves[stage.number]

    def inner_leaves(self, stage: Stage) -> list[int]:
        return self._inner_leaves[stage.number]

    def _atoms(self, axes: Sequence[int]) -> list[int]:
        found = [leaf for axis in axes for leaf in self.set.leaves(axis)]
        return [leaf for leaf in found if self.set.extent(leaf) != 1]

    def extent(self, leaf: int) -> int:
        return self.set.extent(leaf)

    def size(self, leaves: Sequence[int]) -> int:
        return math.prod(map(self.set.extent, leaves))

    def grid(self) -> list[int]:
        """The axes that may be spread over blocks, in the memory order of the last stage."""
        allowed: set[int] | None = None
        for stage in self.stages:
            own = set(self.leaves(stage))
            allowed = own if allowed is None else allowed & own
        for carried in self.carried.values():
            allowed = (allowed or set()) & carried
        return [leaf for leaf in self.leaves(self.stages[-1]) if leaf in (allowed or set())]
