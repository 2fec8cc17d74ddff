"""Accesses of statements to memory that several threads use, and the barriers that two of them need
in between.

The threads of a block or a cluster share arrays in shared memory; those of the grid share scratch,
and results that are read again. Which thread accesses which element is not computed. Any read after
a write, and any write after a read, needs a barrier of the sharing threads in between. The
exception is a thread that accesses its own element again: at the same address, which no other
thread has (`ownership.py`). Arrays that overlap count as one. Teams that exchange in the same way
use memory of their own, so a barrier of each team is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fusionstitch.codegen.ir.expressions import (
    Address,
    Apply,
    Expr,
    Load,
    LoadVector,
    Name,
)
from fusionstitch.codegen.ir.intrinsic import Step
from fusionstitch.codegen.ir.ownership import Ownership, Whose
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Array,
    Arrive,
    Barrier,
    Call,
    For,
    Let,
    Shared,
    Statement,
    Store,
    StoreVector,
    Swap,
    Wait,
)
from fusionstitch.codegen.ir.sums import Sum, sum_of
from fusionstitch.codegen.ir.types import PointerTo, Type
from fusionstitch.codegen.ir.walk import every, names, parts

_RANK = {scope: rank for rank, scope in enumerate(Scope)}


@dataclass(frozen=True)
class Area:
    """Bytes of shared memory, or a buffer of global memory, which threads of a scope access."""

    begin: int = 0
    end: int = 0
    buffer: str = ""
    #: who may access it
    among: Scope = Scope.BLOCK
    #: bytes of each element of an array
    item: int = 0

    def overlaps(self, other: Area) -> bool:
        if self.buffer or other.buffer:
            return self.buffer == other.buffer
        return self.begin < other.end and other.begin < self.end

    def part(self, number: int | None) -> Area:
        """One of its halves, or all of it."""
        if number is None:
            return self
        middle = (self.begin + self.end) // 2
        return Area(self.begin, middle) if number == 0 else Area(middle, self.end)


@dataclass(frozen=True, slots=True)
class Own:
    """An address that no two threads have alike, and whose it is."""

    at: Sum
    whose: Whose


@dataclass(frozen=True)
class Access:
    """A read or a write of the element at an address that is the thread's own (None: of any
    element). Shared memory is used `among` the threads of a scope: of a team those are `threads`.
    `types`: each warp writes values of these types to memory of its own, where the warps of its
    team read them."""

    name: str
    area: Area
    address: Own | None = None
    writes: bool = False
    among: Scope = Scope.BLOCK
    threads: int = 0
    types: tuple[Type | None, ...] = ()
    #: the address, if no other thread of the cluster has it
    in_cluster: Own | None = None

    def __hash__(self) -> int:
        return self._number

    @cached_property
    def _number(self) -> int:
        """Computed once: a walk needs it at every statement after the access."""
        mine = self.name, self.area, self.address, self.in_cluster, self.writes
        return hash((*mine, self.among, self.threads, self.types))

    def needs(self, before: Access) -> Barrier | None:
        """The barrier that must lie between this access and one before it."""
        if not (self.writes or before.writes) or not self.area.overlaps(before.area):
            return None
        if self.writes and before.writes and self.area == before.area:
            return None  # what counts is that one of them is read
        if self._is_of_who_did(before):
            return None
        if self.area.buffer:
            return Barrier(self.area.among)
        if self.types and (self.area, self.types) == (before.area, before.types):
            return self._needs_of_warps(before)
        widest = max(self.among, before.among, Scope.BLOCK, key=_RANK.__getitem__)
        return Barrier(widest)

    def _is_of_who_did(self, before: Access) -> bool:
        """Whether the thread comes to its own element again."""
        if (self.area.begin, self.area.item) != (before.area.begin, before.area.item):
            return False
        if Scope.CLUSTER in (self.among, before.among):
            return self.in_cluster is not None and self.in_cluster == before.in_cluster
        return self.address is not None and self.address == before.address

    def _needs_of_warps(self, before: Access) -> Barrier | None:
        """The same where each warp has memory of its own: the team it was in must have read it, or
        the team it is in now must have arrived. Another team reads what warps have written for
        it."""
        if self.writes:
            return Barrier(before.among, before.threads)
        same = (self.among, self.threads) == (before.among, before.threads)
        return Barrier(self.among, self.threads) if same else None


def spans(scope: Scope, other: Scope) -> bool:
    """Whether all that meet in a scope do so in another."""
    return _RANK[scope] >= _RANK[other]


def covers(one: Barrier, other: Barrier) -> bool:
    """Whether a barrier does what another one does."""
    if one.scope is other.scope:
        return one.threads == other.threads
    return _RANK[one.scope] > _RANK[other.scope]


def _team(call: Call | Apply, scope: Scope) -> int:
    """Threads of the teams that call a function, where it is one of teams."""
    return call.intrinsic.team(call.template) if scope is Scope.TEAM else 0


def is_pointer(one: Let) -> bool:
    """Whether a variable is a pointer into one of some arrays."""
    return isinstance(one.type, PointerTo)


class Accesses:
    """The accesses of statements, in the order of the program; what is declared and computed on the
    way decides about them."""

    def __init__(self, areas: dict[str, Area], ownership: Ownership, cluster: int):
        self.areas, self.ownership, self.cluster = areas, ownership, cluster
        #: types of variables and arrays
        self.types: dict[str, Type] = {}
        #: the arrays that pointers may point into
        self.pointers: dict[str, tuple[str, ...]] = {}

    def inside(self, given: Mapping[str, Expr]) -> Accesses:
        """Those of a function that is called with these arguments, by its parameters."""
        areas = {name: area for name, area in self.areas.items() if name not in given}
        for name, argument in given.items():
            if isinstance(argument, Name) and argument.name in self.areas:
                areas[name] = self.areas[argument.name]
        return Accesses(areas, self.ownership.inside(given), self.cluster)

    def loop(self, one: For) -> None:
        """Takes in a loop's variable."""
        self.ownership.begin(one)

    def of(self, one: Statement) -> Iterator[Access | Barrier]:
        """What a statement without others inside of it does."""
        if isinstance(one, Barrier):
            yield one
            return
        if isinstance(one, (Arrive, Wait)):  # at which the threads of the block wait for each other
            yield from self.reads(parts(one))
            yield Barrier(Scope.BLOCK)
            return
        if isinstance(one, Shared):
            self.areas[one.name] = Area(one.offset, one.offset + one.bytes, item=one.type.bytes)
        elif isinstance(one, Call):
            yield from self._call(one)
        else:
            yield from self.reads(parts(one))
        if isinstance(one, (Let, Array)):
            self.types[one.name] = one.type
        if isinstance(one, Let):
            self.ownership.define(one)
            if is_pointer(one):
                self.pointers[one.name] = tuple(dict.fromkeys(self._pointed(one.value)))
        elif isinstance(one, (Store, StoreVector)) and one.buffer in self.areas:
            among = Scope.CLUSTER if one.blocks > 1 else Scope.BLOCK
            yield self._element(one.buffer, one.address, writes=True, among=among)

    def swapped(self, one: Swap, access: Access) -> Access:
        """An access of before two buffers changed names, by the name of now."""
        name = {one.left: one.right, one.right: one.left}.get(access.name)
        return access if name is None else replace(access, name=name, area=self.areas[name])

    def reads(self, exprs: Iterable[Any]) -> Iterator[Access | Barrier]:
        """What expressions read, and what the functions in them do."""
        for part in every(exprs):
            if isinstance(part, (Load, LoadVector, Address)):  # whose address is taken is read
                for name in names(part.buffer):
                    if name in self.areas:
                        yield self._element(name, part.at)
                    for array in self.pointers.get(name, ()):
                        yield Access(array, self.areas[array])
            elif isinstance(part, Apply):
                yield from self._through(part)

    def _call(self, one: Call) -> Iterator[Access | Barrier]:
        through = one.intrinsic.through
        others = [a for number, a in enumerate(one.arguments) if number != through]
        yield from self.reads(others)
        for name in (name for other in others for name in names(other)):
            if name in self.areas:
                yield Access(name, self.areas[name])
        yield from self._through(one)

    def _through(self, call: Call | Apply) -> Iterator[Access | Barrier]:
        """What a function does to the memory that it goes through."""
        intrinsic = call.intrinsic
        if intrinsic.through is None:
            return
        for name in names(call.arguments[intrinsic.through]):
            if name not in self.areas:
                continue
            for step in intrinsic.steps:
                if isinstance(step, Step):
                    yield self._step(name, step, call)
                else:
                    yield Barrier(step, _team(call, step))

    def _step(self, name: str, step: Step, call: Call | Apply) -> Access:
        area, threads = self.areas[name].part(step.part), _team(call, step.among)
        types: tuple[Type | None, ...] = ()
        if step.by_warps:
            exchanged = call.intrinsic.exchanged.of(call.arguments)
            values = [a.name for a in exchanged if isinstance(a, Name)]
            types = tuple(map(self.types.get, values))
        return Access(name, area, None, step.writes, step.among, threads, types)

    def _element(
        self,
        name: str,
        at: Expr,
        writes: bool = False,
        among: Scope = Scope.BLOCK,
    ) -> Access:
        area = self.areas[name]
        blocks = {Scope.GRID: 0, Scope.CLUSTER: self.cluster}
        own = self._own(at, blocks.get(area.among, 1) if area.buffer else 1)
        in_cluster = self._own(at, self.cluster) if self.cluster > 1 else None
        return Access(name, area, own, writes, among, in_cluster=in_cluster)

    def _own(self, at: Expr, blocks: int) -> Own | None:
        """An address and whose it is; None where threads of so many blocks share it."""
        whose = self.ownership.whose(at, blocks)
        return None if whose is None else Own(sum_of(at), whose)

    def _pointed(self, value: Expr) -> Iterator[str]:
        """The arrays that a pointer of this value may point into."""
        for name in names(value):
            yield from (name,) if name in self.areas else self.pointers.get(name, ())
