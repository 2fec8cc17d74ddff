"""Between a write and another thread's access to the same array lies a barrier.

Arrays in shared memory are for the threads of a block, scratch and results that are read again for
those of the grid. Which thread accesses what is not computed: any read behind a write, and any
write behind a read, has a barrier of those threads in between, but for a thread that comes to its
own element again: at the same address, which depends on the thread or stands in the same frame.
Arrays that overlap are one. A loop is walked twice, for what an iteration leaves to the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fusionstitch.codegen.ir.expressions import THREAD, Expr, Load, LoadVector, Name
from fusionstitch.codegen.ir.kernel import Lowered, Space
from fusionstitch.codegen.ir.spelling import spell
from fusionstitch.codegen.ir.statements import (
    Barrier,
    Call,
    For,
    Function,
    Group,
    If,
    Let,
    Scope,
    Shared,
    Statement,
    Store,
    StoreVector,
)
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.walk import every, names, parts

#: Functions of the headers that write to what their first argument points at.
_WRITERS = ("fs_store_packed",)


@dataclass(frozen=True)
class Area:
    """Bytes of shared memory, or a buffer of global memory."""

    begin: int = 0
    end: int = 0
    buffer: str = ""

    def overlaps(self, other: Area) -> bool:
        if self.buffer or other.buffer:
            return self.buffer == other.buffer
        return self.begin < other.end and other.begin < self.end


@dataclass(frozen=True)
class Access:
    """A read or a write of the element at an address, given as C text ('': of a whole array), in a
    frame (0: in any, since the address depends on the thread)."""

    area: Area
    frame: int
    address: str

    def is_other(self, before: Access) -> bool:
        """Whether another thread may have made the access before this one to the same place."""
        own = self.address and (self.frame, self.address) == (before.frame, before.address)
        return not own and self.area.overlaps(before.area)


@dataclass(frozen=True)
class Pending:
    """What was read and written since the last barrier of those who share it."""

    read: frozenset[Access] = frozenset()
    written: frozenset[Access] = frozenset()

    def __or__(self, other: Pending) -> Pending:
        return Pending(self.read | other.read, self.written | other.written)

    def behind(self, scope: Scope) -> Pending:
        """What is still pending behind a barrier."""
        if scope is Scope.TEAM:
            return self
        if scope is Scope.GRID:
            return Pending()
        both = (frozenset(a for a in s if a.area.buffer) for s in (self.read, self.written))
        return Pending(*both)


def check(kernel: Lowered) -> None:
    """Raises Fault for accesses to one array without a barrier between them."""
    own = {b.name: Area(buffer=b.name) for b in kernel.buffers if b.space in _SHARED_BY_THE_GRID}
    if not kernel.functions and not _may_meet(kernel, own):
        return
    functions = {function.name: function for function in kernel.functions}
    _Walk(functions, own).body(kernel.body, Pending())


def _may_meet(kernel: Lowered, own: Mapping[str, Area]) -> bool:
    """Whether any thread reads what another one may have written."""
    for one in every(kernel.body):
        if isinstance(one, Shared):
            return True
        if isinstance(one, (Load, LoadVector)) and not own.keys().isdisjoint(names(one.buffer)):
            return True
    return False


_SHARED_BY_THE_GRID = (Space.OUTPUT, Space.SCRATCH)


@dataclass(eq=False)
class _Walk:
    functions: Mapping[str, Function]
    areas: dict[str, Area] = field(default_factory=dict)
    #: variables that depend on the thread
    own: set[str] = field(default_factory=lambda: {THREAD.name})
    frame: int = 0

    def body(self, body: tuple[Statement, ...], pending: Pending) -> Pending:
        outer, self.frame = self.frame, id(body)
        for one in body:
            pending = self.statement(one, pending)
        self.frame = outer
        return pending

    def statement(self, one: Statement, pending: Pending) -> Pending:
        if isinstance(one, Group):
            return self.body(one.body, pending)
        if isinstance(one, Barrier):
            return pending.behind(one.scope)
        if isinstance(one, For):
            pending = self.accesses(one, (one.start, one.stop), pending)
            self.defined(one.variable, one.start)
            for _ in range(2):
                pending |= self.body(one.body, pending)
            return pending
        if isinstance(one, If):
            if one.given:
                pending = self.statement(one.given, pending)
            conditions = [one.condition, *(o.condition for o in one.others if o.condition)]
            pending = self.accesses(one, conditions, pending)
            ways = [one.body, *(other.body for other in one.others)]
            ends = [self.body(way, pending) for way in ways]
            if not any(other.condition is None for other in one.others):
                ends.append(pending)
            joined = ends[0]
            for end in ends[1:]:
                joined |= end
            return joined
        if isinstance(one, Shared):
            self.areas[one.name] = Area(one.offset, one.offset + one.size * one.item)
            return pending
        return self.simple(one, pending)

    def simple(self, one: Statement, pending: Pending) -> Pending:
        if isinstance(one, Call) and one.function in self.functions:
            function = self.functions[one.function]
            inner = dict(self.areas)
            for (_, name), argument in zip(function.parameters, one.arguments, strict=True):
                inner.pop(name, None)
                if isinstance(argument, Name) and argument.name in self.areas:
                    inner[name] = self.areas[argument.name]
            return _Walk(self.functions, inner).body(function.body, pending)
        if isinstance(one, Call):
            found = [self.areas[n] for n in names(one) if n in self.areas]
            whole = [Access(area, self.frame, "") for area in found]
            if one.function.startswith(_WRITERS):
                return self.written(one, pending, whole)
            return self.read(one, pending, whole)
        pending = self.accesses(one, parts(one), pending)
        if isinstance(one, Let):
            self.defined(one.name, one.value)
        if isinstance(one, (Store, StoreVector)) and one.buffer in self.areas:
            return self.written(one, pending, [self.access(one.buffer, one.address)])
        return pending

    def accesses(self, at: Statement, exprs: Iterable[Any], pending: Pending) -> Pending:
        """Takes in what expressions read."""
        found = [
            self.access(name, part.at)
            for part in every(exprs)
            if isinstance(part, (Load, LoadVector))
            for name in names(part.buffer)
            if name in self.areas
        ]
        return self.read(at, pending, found)

    def access(self, name: str, at: Expr) -> Access:
        frame = self.frame if self.own.isdisjoint(names(at)) else 0
        return Access(self.areas[name], frame, spell(at))

    def defined(self, variable: str, value: Expr) -> None:
        """Notes a variable that depends on the thread."""
        if not self.own.isdisjoint(names(value)):
            self.own.add(variable)

    def read(self, at: Statement, pending: Pending, found: list[Access]) -> Pending:
        for one in found:
            if any(map(one.is_other, pending.written)):
                raise Fault(f"{self.named(one.area)} is read with no barrier behind a write", at)
        return Pending(pending.read.union(found), pending.written)

    def written(self, at: Statement, pending: Pending, found: list[Access]) -> Pending:
        for one in found:
            if any(map(one.is_other, pending.read)):
                raise Fault(f"{self.named(one.area)} is written with no barrier behind a read", at)
            others = (other.area for other in pending.written if other.area != one.area)
            if any(map(one.area.overlaps, others)):
                raise Fault(f"{self.named(one.area)} is written where another array lies", at)
        return Pending(pending.read, pending.written.union(found))

    def named(self, area: Area) -> str:
        """The name of an array."""
        return next(name for name, one in self.areas.items() if one == area)
