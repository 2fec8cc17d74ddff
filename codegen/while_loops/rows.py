"""Which axes survive a loop: rows that never meet are dealt to threads, each of which runs all
iterations of its own (the design's loop scope, form "independent").

Every dim of every op belongs to an axis. Dims are of one axis where elements of one follow elements
of the other. That includes the back edge, since the next value has the axes of the present one. An
axis along which any op mixes or picks elements does not survive. What is computed before all loops
may mix them: each thread can have any element of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import Fetched, Index, Var, variable
from fusionstitch.codegen.index_maps.maps import is_branching, reads
from fusionstitch.codegen.loops.stages import body_reads
from fusionstitch.codegen.rewrite.extents import OWN_LOOP, inner_extents
from fusionstitch.codegen.while_loops.flat import Flat
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of

Dim = tuple[int, int]

#: Axes that are tried as rows at most: of more, the longest.
MOST_AXES = 4


@dataclass(frozen=True, eq=False)
class Rows:
    """How rows are dealt: `axes` names the axis of each dim by (op id, dim); `chosen` are those
    that threads share out, the slowest first, each with its extent."""

    axes: Mapping[Dim, Dim]
    chosen: tuple[tuple[Dim, int], ...]
    #: ops that come before all loops, of which threads take what they need
    before: Set[int] = frozenset()

    @property
    def count(self) -> int:
        """Rows, of a thread each."""
        return math.prod(extent for _, extent in self.chosen)

    def dealt(self, op: Op) -> tuple[bool, ...]:
        """By dim of `op`, whether threads share it out."""
        names = {axis for axis, _ in self.chosen}
        return tuple(self.axes[op.id, d] in names for d in range(op.shape.rank))

    def own(self, op: Op) -> tuple[int, ...]:
        """The dims of what one thread has of `op`: 1 where threads share a dim out."""
        return tuple(1 if d else n for n, d in zip(op.dims, self.dealt(op), strict=True))

    def work(self, op: Op) -> int:
        """Instructions that one thread spends on `op`, about."""
        return _work(op, 1 if op.id in self.before else math.prod(self.own(op)))

    def total(self, flat: Flat) -> int:
        """Instructions that one thread spends on all ops, about, each loop taken once."""
        return sum(map(self.work, flat.graph.ops[:-1]))


def find_rows(flat: Flat, device: Device) -> Rows:
    """The rows that make an iteration of all threads take least: few threads wait for every
    instruction of theirs, many share the lanes."""
    axes = Axes(flat)
    best = Rows(axes.named, (), axes.before)
    for some in _subsets(axes.surviving(flat)):
        rows = Rows(axes.named, some, axes.before)
        if _cost(flat, rows, device) < _cost(flat, best, device):
            best = rows
    return best


def _subsets(axes: list[tuple[Dim, int]]) -> Iterator[tuple[tuple[Dim, int], ...]]:
    for size in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, size)


def _cost(flat: Flat, rows: Rows, device: Device) -> float:
    least = device.instructions.operation_cycles / 2
    return rows.total(flat) * max(least, rows.count / (device.sm_count * device.lanes))


def _work(op: Op, elements: int) -> int:
    kind = kind_of(op.opcode)
    if kind in (Kind.REDUCTION, Kind.DOT):
        return elements * math.prod(inner_extents(op))
    if kind is not Kind.ELEMENTWISE:
        return 0
    return elements * spec_of(op.opcode).instructions


class Axes:
    """A union of dims that follow each other, and which of these unions are `mixed`."""

    def __init__(self, flat: Flat):
        ops = flat.graph.ops[:-1]
        self.before = _before_loops(flat)
        #: those of them whose rows are made of others
        self.cut: set[int] = set()
        self.extents = {(op.id, d): n for op in ops for d, n in enumerate(op.dims)}
        self.parent = {dim: dim for dim in self.extents}
        #: dims along which ops mix elements, with these ops
        self._mixed: dict[Dim, list[Op]] = {}
        for op in ops:
            if op.opcode != "parameter":
                self._follow(op)
        for loop in flat.every:
            for c in loop.carried:
                inside = flat.parameter(c.inside)
                for other in (flat.parameter(c.after), flat.root(c.first), flat.root(c.next)):
                    for d in range(inside.shape.rank):
                        self._join((inside.id, d), (other.id, d))
        for op in ops:
            own = [self.find((op.id, d)) for d, n in enumerate(op.dims) if n > 1]
            for axis in own:
                if own.count(axis) > 1:
                    self._mix(op, axis)
        self.mixed = {self.find(dim) for dim in self._mixed}

    @property
    def named(self) -> dict[Dim, Dim]:
        """The axis of each dim."""
        return {dim: self.find(dim) for dim in self.extents}

    def find(self, dim: Dim) -> Dim:
        while self.parent[dim] != dim:
            self.parent[dim] = self.parent[self.parent[dim]]
            dim = self.parent[dim]
        return dim

    def surviving(self, flat: Flat) -> list[tuple[Dim, int]]:
        """The axes of carried values that survive, the longest `MOST_AXES`, in the order in which
        they stand in the largest value."""
        found: dict[Dim, int] = {}
        carried = [flat.parameter(c.inside) for loop in flat.every for c in loop.carried]
        for op in sorted(carried, key=lambda op: (-op.shape.size, op.id)):
            for d, n in enumerate(op.dims):
                axis = self.find((op.id, d))
                if n > 1 and axis not in self.mixed:
                    found.setdefault(axis, n)
        chosen = sorted(found, key=lambda axis: -found[axis])[:MOST_AXES]
        return [(axis, n) for axis, n in found.items() if axis in chosen]

    def mixers(self, axis: Dim) -> list[Op]:
        """The ops that keep an axis from surviving."""
        return [op for dim, ops in self._mixed.items() if self.find(dim) == axis for op in ops]

    def _mix(self, op: Op, *dims: Dim) -> None:
        for dim in dims:
            self._mixed.setdefault(dim, []).append(op)

    def _join(self, a: Dim, b: Dim) -> None:
        self.parent[self.find(a)] = self.find(b)

    def _follow(self, op: Op) -> None:
        """Takes in how elements of `op` follow those of what it reads."""
        dims = tuple(variable(f"d{d}", n) for d, n in enumerate(op.dims))
        inner = tuple(variable(f"k{k}", n) for k, n in enumerate(inner_extents(op)))
        own = {Var(f"d{d}", n): d for d, n in enumerate(op.dims)}
        for operand, index in body_reads(op, dims, inner):
            for d, (at, extent) in enumerate(zip(index, operand.dims, strict=True)):
                if extent == 1:
                    continue
                follows = _variable(at)
                if follows in own and op.dims[own[follows]] == extent:
                    self._join((operand.id, d), (op.id, own[follows]))
                    continue
                if op.id in self.before:
                    self.cut.add(op.id)
                    continue
                self._mix(op, (operand.id, d), *((op.id, own[v]) for v in _along(at) if v in own))
        if op.opcode in OWN_LOOP:  # any element of a row may be made of any
            self._mix(op, *((op.id, d) for d in range(1, op.shape.rank)))
        if op.opcode == "dynamic-update-slice":  # it has the dims of what it replaces all of, too
            for d in range(op.shape.rank):
                self._join((op.operands[0].id, d), (op.id, d))
        if op.opcode == "gather":  # indices that are all alike are read as one
            indices = op.operands[1]
            rows = [d for d in range(indices.shape.rank) if d != op.attrs["index_vector_dim"]]
            own_rows = [d for d in range(op.shape.rank) if d not in op.attrs["offset_dims"]]
            for d, row in zip(own_rows, rows, strict=True):
                self._join((indices.id, row), (op.id, d))
        if is_branching(op):
            found = [g.index.variables for read in reads(op, dims) for g in read.guards]
            cut = [(op.id, own[v]) for variables in found for v in variables if v in own]
            if op.id not in self.before:
                self._mix(op, *cut)
            elif any(cut):  # from where on another operand is read: no block's own rows say that
                self.cut.add(op.id)


def _before_loops(flat: Flat) -> frozenset[int]:
    """The ops that are made of inputs and constants alone."""
    found: set[int] = set()
    for op in flat.graph.ops[:-1]:
        if op.opcode == "parameter":
            known = op.attrs["index"] < flat.inputs
        else:
            known = all(operand.id in found for operand in op.operands)
        if known:
            found.add(op.id)
    return frozenset(found)


def _along(index: Index) -> set[Var]:
    """The variables that an index depends on. Those that only select an integer of an array do not
    count, since a row may have its own index into what each thread has as a whole."""
    found: set[Var] = set()
    for term, _ in index.terms:
        if isinstance(term, Var):
            found.add(term)
        elif not isinstance(term, Fetched):
            found |= _along(term.base)
    return found


def _variable(index: Index) -> Var | None:
    """The variable that an index is, if it is nothing else."""
    if index.const == 0 and len(index.terms) == 1:
        term, coefficient = index.terms[0]
        if coefficient == 1 and isinstance(term, Var):
            return term
    return None
