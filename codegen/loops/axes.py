"""Axis analysis: which dims of the stages of a group are the same axis, and which may be GRID.

Each dim of each stage is a chain of atomic axes, major to minor. A read of one stage by another
makes axes equal; a reshape splits them until the digits agree. An axis can be spread over blocks
if every stage of the group carries it under matching maps and none sums over it.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from fusionstitch.codegen.index_maps.index import Index, Var
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.index_maps.numbers import digits_of
from fusionstitch.codegen.loops.stages import Stage


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

    def copy(self) -> AxisSet:
        other = AxisSet()
        other._extent, other._owners = self._extent.copy(), self._owners.copy()
        other._link, other._digits = self._link.copy(), self._digits.copy()
        return other

    def extent(self, axis: int) -> int:
        return self._extent[axis]

    def leaves(self, axis: int) -> list[int]:
        """The atomic axes of `axis`, major to minor, as class representatives."""
        if self._link[axis] is not None:
            axis = self._class(axis)
        digits = self._digits[axis]
        return [axis] if digits is None else self.leaves(digits[0]) + self.leaves(digits[1])

    def atoms(self, axes: Sequence[int]) -> list[int]:
        """The leaves of several axes, those of extent 1 left out."""
        return [leaf for axis in axes for leaf in self.leaves(axis) if self._extent[leaf] != 1]

    def _class(self, axis: int) -> int:
        """The representative of an axis."""
        first, links = axis, self._link
        while (link := links[axis]) is not None:
            axis = link
        while first != axis:  # the next one finds it at once
            link, links[first] = links[first], axis
            assert link is not None
            first = link
        return axis

    def split(self, leaf: int, minor: int) -> None:
        """Makes a leaf of extent e the digits (e / minor, minor)."""
        owners = self._owners[leaf]
        major = self._extent[leaf] // minor
        self._digits[leaf] = (self.new(major, owners), self.new(minor, owners))

    def range(self, axis: int, divisor: int, extent: int) -> list[int] | None:
        """The leaves that form the digit (axis / divisor) % extent, or None if none do."""
        if divisor == 1 and extent == self._extent[axis]:
            return self.leaves(axis)
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
        a, b = list(left), list(right)
        while a and b:
            x, y = self._next(a), self._next(b)
            if x == y:
                continue
            small, large = self._extent[x], self._extent[y]
            if small > large:
                small, large = large, small
            if small == large:
                if self._owners[x] & self._owners[y]:
                    return False
                self._owners[y] |= self._owners[x]
                self._link[x] = y
            elif large % small:
                return False
            else:
                self.split(x if self._extent[x] == large else y, small)
                a.append(x)
                b.append(y)
        return not a and not b

    def _next(self, chain: list[int]) -> int:
        """Takes the minor-most leaf off a chain of axes."""
        axis = self._class(chain.pop())
        while (digits := self._digits[axis]) is not None:
            chain.append(digits[0])
            axis = self._class(digits[1])
        return axis


class GroupAxes:
    """The axes of a set of stages: `dims[s][d]` and `inner[s][k]` are axes of stage s."""

    def __init__(self, stages: Sequence[Stage]):
        self.set = AxisSet()
        self.stages: tuple[Stage, ...] = ()
        self.dims: dict[int, list[int]] = {}
        self.inner: dict[int, list[int]] = {}
        self._by_var: dict[int, dict[str, int]] = {}
        self._matched: dict[tuple[int, int], list[int]] = {}
        self._partly: list[tuple[int, int]] = []  # reads under which not all axes agree
        self._add(stages)

    def followed_by(self, stages: Sequence[Stage]) -> GroupAxes:
        """The axes of these stages and then `stages`, which none of these reads."""
        longer = self.copied()
        longer._add(stages)
        return longer

    def sharing_inputs(self) -> GroupAxes:
        """These axes, with those of inputs that several stages read, and of values that they
        compute, under like maps as one."""
        shared = self.copied()
        shared._match_inputs()
        return shared

    def part(self, leaf: int, minor: int) -> int:
        """Splits an atomic axis unless `minor` is all of it; the axis of that extent."""
        if self.extent(leaf) == minor:
            return leaf
        self.set.split(leaf, minor)
        self.refresh()
        return self.set.leaves(leaf)[-1]

    def copied(self) -> GroupAxes:
        """The same axes, to be split without those of anybody else."""
        other = copy.copy(self)
        other.set = self.set.copy()
        other.dims, other.inner = self.dims.copy(), self.inner.copy()
        other._by_var, other._matched = self._by_var.copy(), self._matched.copy()
        other._partly = self._partly.copy()
        return other

    def _add(self, stages: Sequence[Stage]) -> None:
        self.stages += tuple(stages)
        for s in stages:  # a loop has each axis once: x + x.T and x @ x.T do not fold onto one
            own = 1 << s.number
            self.dims[s.number] = [self.set.new(e, own) for e in s.op.dims]
            self.inner[s.number] = [self.set.new(e, own) for e in s.inner_extents]
            self._by_var[s.number] = {
                term.name: axis
                for at, axis in zip(
                    (*s.dims, *s.inner),
                    (*self.dims[s.number], *self.inner[s.number]),
                    strict=True,
                )
                for term, _ in at.terms
                if isinstance(term, Var)
            }
        for stage in stages:
            for n, (producer, index) in enumerate(stage.reads):
                if producer.number in self.dims:
                    axes = self.dims[producer.number]
                    edge, dims = (stage.number, n), producer.op.dims
                    matched = self._matched[edge] = self._match(axes, dims, stage, index)
                    if len(matched) + dims.count(1) < len(dims):
                        self._partly.append(edge)
        self.refresh()

    def refresh(self) -> None:
        """Forgets the atomic axes of the stages, which change when axes are split."""
        self._leaves: dict[int, list[int]] = {}
        self._inner_leaves: dict[int, list[int]] = {}
        self._carried: dict[tuple[int, int], set[int]] | None = None
        self._grid: list[int] | None = None

    @property
    def carried(self) -> Mapping[tuple[int, int], set[int]]:
        """(reader, number of the read) -> atomic axes under which both ends agree."""
        if self._carried is None:
            self._carried = {
                edge: {leaf for a in axes for leaf in self.set.leaves(a)}
                for edge, axes in self._matched.items()
            }
        return self._carried

    def _match(
        self, axes: Sequence[int], extents: Sequence[int], reader: Stage, index: Indices
    ) -> list[int]:
        """Unifies the axes of a value with those its reader indexes it by; returns what matched."""
        by_var = self._by_var[reader.number]
        found: list[int] = []
        for axis, extent, i in zip(axes, extents, index, strict=True):
            if extent == 1:
                continue
            chain = self._chain(i, extent, by_var)
            if chain is not None and self.set.unify([axis], chain):
                found.append(axis)
        return found

    def _match_inputs(self) -> None:
        """Stages that read one input, or compute one value, under like maps share its axes; those
        that compute pieces of one output share theirs if the pieces are of one shape."""
        readers = Counter(ident for s in self.stages for ident in {op.id for op, _ in s.common})
        seen: dict[int, list[int]] = {}
        for stage in self.stages:
            first: set[int] = set()
            for op, index in stage.common:
                if op.id in first or readers[op.id] == 1:
                    continue
                first.add(op.id)
                if op.id not in seen:
                    seen[op.id] = [self.set.new(e) for e in op.dims]
                self._match(seen[op.id], op.dims, stage, index)
        pieces: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        for stage in self.stages:
            for output in stage.joins:
                first_dims = pieces.setdefault((output.id, stage.op.dims), self.dims[stage.number])
                for axis, other in zip(self.dims[stage.number], first_dims, strict=True):
                    if axis != other:
                        self.set.unify([axis], [other])
        self.refresh()

    def _chain(self, index: Index, extent: int, by_var: Mapping[str, int]) -> list[int] | None:
        """The axes whose digits, major to minor, make up `index`, if it is such a number."""
        digits, size = digits_of(index)
        chain: list[int] = []
        for name, divisor, count in digits:
            own = by_var.get(name)  # the number of an iteration is no axis
            axes = None if own is None else self.set.range(own, divisor, count)
            if axes is None:
                return None
            chain = axes + chain
        return chain if size == extent else None

    def leaves(self, stage: Stage) -> list[int]:
        """The atomic axes of a stage's dims in memory order, axes of extent 1 left out."""
        found = self._leaves.get(stage.number)
        if found is None:
            found = self._leaves[stage.number] = self.set.atoms(self.dims[stage.number])
        return found

    def inner_leaves(self, stage: Stage) -> list[int]:
        """The atomic axes that a stage sums over, axes of extent 1 left out."""
        found = self._inner_leaves.get(stage.number)
        if found is None:
            found = self._inner_leaves[stage.number] = self.set.atoms(self.inner[stage.number])
        return found

    def extent(self, leaf: int) -> int:
        return self.set.extent(leaf)

    def size(self, leaves: Sequence[int]) -> int:
        return math.prod(map(self.set.extent, leaves))

    def grid(self) -> list[int]:
        """The axes that may be spread over blocks, in the memory order of the last stage."""
        if self._grid is None:
            allowed = set(self.leaves(self.stages[-1]))
            for stage in self.stages if allowed else ():
                allowed.intersection_update(self.leaves(stage))
            for edge in self._partly if allowed else ():
                allowed &= {leaf for axis in self._matched[edge] for leaf in self.set.leaves(axis)}
            self._grid = [leaf for leaf in self.leaves(self.stages[-1]) if leaf in allowed]
        return self._grid
