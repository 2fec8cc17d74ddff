"""Walks a kernel with what threads read and wrote since the last barriers.

One walk serves two purposes. The verifier checks whether a barrier is missing anywhere
(`verifier/hazards.py`), and the pass that places barriers finds out where (`passes/barriers.py`). A
loop is walked twice, since an iteration may conflict with the next one. Where blocks wait for each
other by counters, the walk covers the threads of one block; `verifier/counters.py` covers several
blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from fusionstitch.codegen.ir.accesses import (
    Access,
    Accesses,
    Area,
    is_pointer,
)
from fusionstitch.codegen.ir.counters import has_counters
from fusionstitch.codegen.ir.expressions import Address, Expr, Load, LoadVector
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.ownership import Ownership
from fusionstitch.codegen.ir.pending import NOTHING, Past, Pending
from fusionstitch.codegen.ir.readers import read_in
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Barrier,
    Body,
    Branch,
    For,
    Function,
    Group,
    If,
    Invoke,
    Leave,
    Let,
    Shared,
    Skip,
    Statement,
    Swap,
    While,
)
from fusionstitch.codegen.ir.uniformity import SAME, Agreement, Alike
from fusionstitch.codegen.ir.walk import FRAMES, conditions, every, inside, names

_SHARED_BY_THE_GRID = (Memory.OUTPUT, Memory.SCRATCH)


class Missing(Exception):
    """At statement `at`, `barrier` is missing before `access`, which must not come before others
    are done with `before`."""

    def __init__(self, barrier: Barrier, access: Access, before: Access, at: Statement):
        super().__init__(barrier, access, before, at)
        self.barrier, self.access, self.before, self.at = barrier, access, before, at


class Before(NamedTuple):
    """What holds before a statement: accesses under way, and for whom all conditions around it are
    the same."""

    pending: Pending
    here: Alike


class Spot(NamedTuple):
    """A statement of a frame, by its number, and for whom all conditions around it are the same."""

    body: Body
    number: int
    here: Alike


class Placing(Protocol):
    """Who adds barriers while a kernel is walked."""

    @property
    def of_grid(self) -> bool:
        """Whether those of the grid are added, or the others."""

    @property
    def closed(self) -> bool:
        """Whether none is added any more."""

    def added_to(self, body: Body) -> Mapping[int, Barrier]:
        """The barriers that were added to a frame, by the statement that each comes before; at its
        end by their number."""

    def before(self, body: Body, befores: list[Before], missing: Missing) -> int | None:
        """Adds a barrier before one of the statements that were walked through so far, and says
        before which; None if there is none that it may stand before."""

    def after(self, way: tuple[Spot, ...], missing: Missing) -> bool:
        """Adds a barrier after a statement, or after one of those around it: `way` leads there
        from a loop's frame. False if there is none that it may stand after."""


def may_meet(kernel: Lowered, areas: Mapping[str, Area]) -> bool:
    """Whether any thread may read what another one wrote, with these `global_areas`."""
    if kernel.functions and any(b.memory is Memory.SCRATCH for b in kernel.buffers):
        return True
    own = areas.keys()
    for one in every(statement for body in kernel.bodies for statement in body):
        if isinstance(one, Shared):
            return True
        if isinstance(one, (Load, LoadVector, Address)) and not own.isdisjoint(names(one.buffer)):
            return True
        if isinstance(one, Let) and is_pointer(one) and not own.isdisjoint(names(one.value)):
            return True
    return False


class Hazards:
    """A kernel's way, which may be gone several times: what its statements do stays the same."""

    def __init__(self, kernel: Lowered, areas: Mapping[str, Area], placing: Placing | None = None):
        functions = {function.name: function for function in kernel.functions}
        clustered = kernel.cluster > 1

        def way(areas: Mapping[str, Area]) -> _Walk:
            ownership = Ownership(kernel.block, kernel.grid)
            accesses = Accesses(dict(areas), ownership, kernel.cluster)
            return _Walk(functions, accesses, clustered, placing)

        self._ways = [(way(areas), kernel.body)]
        if placing is not None:  # what functions need by themselves comes first
            self._ways[:0] = [(way({}), function.body) for function in kernel.functions]

    def walk(self) -> None:
        """Goes through the kernel. Raises Missing where a barrier is, unless it is added."""
        for way, body in self._ways:
            way.body(body, NOTHING, SAME)

    def begin_again(self) -> None:
        """Has the next walk look at other barriers than the last one (`Placing.of_grid`)."""
        for way, _ in self._ways:
            way.begin_again()

    def changed(self, frame: int) -> None:
        """Makes the next walk revisit a frame in which a barrier was added or removed elsewhere."""
        for way, _ in self._ways:
            way.forget(frame)


def global_areas(kernel: Lowered) -> Mapping[str, Area]:
    """The global memory that threads write and others read, by the names of buffers."""
    counted = has_counters(kernel)
    alone = kernel.grid == 1 and not kernel.cooperative
    among = Scope.BLOCK if alone or counted else Scope.GRID
    read = read_in(kernel)
    buffers = (b.name for b in kernel.buffers if b.memory in _SHARED_BY_THE_GRID)
    found = {name: Area(buffer=name, among=among) for name in buffers if name in read}
    for one in kernel.buffers:
        if one.by is not None:
            own = Scope.BLOCK if counted else one.by.among
            found[one.name] = found[one.by.output] = Area(buffer=one.by.output, among=own)
    return found


@dataclass(eq=False)
class _Known:
    """What statements with others inside left pending, and what threads that leave the loop around
    them did: by what was pending before and for whom the conditions around were the same."""

    ends: dict[int, dict[object, tuple[Pending, Pending]]] = field(default_factory=dict)
    #: the statement around a frame, or around a statement
    around: dict[int, int] = field(default_factory=dict)

    def forget(self, inside: int) -> None:
        """Forgets what is known of the statements around a frame or a statement."""
        at = inside
        while at := self.around.get(at, 0):
            self.ends.pop(at, None)


@dataclass(eq=False)
class _Walk:
    functions: Mapping[str, Function]
    accesses: Accesses
    clustered: bool
    placing: Placing | None
    agreement: Agreement = field(default_factory=Agreement)
    frame: int = 0
    #: what statements do, by them and their frames
    events: dict[tuple[int, int], list[Access | Barrier]] = field(default_factory=dict)
    #: statements that touch no memory that others use
    quiet: set[int] = field(default_factory=set)
    #: where the walk is, from the outermost frame on, the same as frames and numbers, and where
    #: accesses were
    way: tuple[Spot, ...] = ()
    position: tuple[int, ...] = ()
    ways: dict[Access, dict[tuple[int, ...], tuple[Spot, ...]]] = field(default_factory=dict)
    #: what is missing, where a walk goes on as if it were there
    found: list[Missing] | None = None
    #: the ways through functions, by call
    inner: dict[int, _Walk] = field(default_factory=dict)
    #: the innermost statement with others inside of it
    inside: int = 0
    known: _Known = field(default_factory=_Known)
    #: whether barriers are added outside of what is walked through, if at all
    closed: bool = False
    #: what is pending where threads leave the innermost loop
    left: Pending = NOTHING

    def body(self, body: Body, pending: Pending, here: Alike) -> Pending:
        frame, way, position = self.frame, self.way, self.position
        added = self.placing.added_to(body) if self.placing else _NO_BARRIERS
        self.known.around[id(body)] = self.inside
        befores: list[Before] = []
        quiet = self.quiet
        now, number = Before(pending, here), 0
        while number < len(body):
            befores.append(now)
            one = body[number]
            met = now.pending
            if number in added:
                met = met.after(added[number], self.clustered)
            self.frame = id(body)
            if id(one) in quiet or self.is_silent(one, now.here):
                if met is not now.pending:
                    now = Before(met, now.here)
                number += 1
                continue
            if self.placing is not None:
                self.way = (*way, Spot(body, number, now.here))
                self.position = (*position, id(body), number)
            try:
                pending, here = self.statement(one, met, now.here), now.here
            except Missing as missing:
                if self.placing is None or self.closed:
                    raise
                earlier = self.placing.before(body, befores, missing)
                if earlier is None:
                    raise
                self.known.forget(id(body))
                number, now = earlier, befores[earlier]
                del befores[earlier:]
                continue
            if isinstance(one, (Skip, Leave)):  # the rest of the iteration is for the others
                here &= self.agreement.alike(one.condition)
            number, now = number + 1, Before(pending, here)
        self.frame, self.way, self.position = frame, way, position
        if number in added:
            return now.pending.after(added[number], self.clustered)
        return now.pending

    def statement(self, one: Statement, pending: Pending, here: Alike) -> Pending:
        """What is pending after a statement."""
        if not isinstance(one, FRAMES):
            return self.within(one, pending, here)
        before = self.frame, here, pending
        known = self.known.ends.setdefault(id(one), {}).get(before)
        if known is not None:
            found, left = known
            self.left = self.left.or_else(left)
            return found
        outer, others, faults = self.inside, self.left, len(self.found or ())
        self.known.around[id(one)], self.inside, self.left = outer, id(one), NOTHING
        try:
            found = self.within(one, pending, here)
        finally:
            left, self.inside, self.left = self.left, outer, others.or_else(self.left)
        if len(self.found or ()) == faults:
            self.known.ends.setdefault(id(one), {})[before] = found, left
        silent = all(id(inner) in self.quiet for inner in inside(one))
        if silent and not any(map(self._counts, self.accesses.reads(conditions(one)))):
            self.quiet.add(id(one))
        return found

    def begin_again(self) -> None:
        """Forgets all but what statements do."""
        self.quiet, self.ways, self.known = set(), {}, _Known()
        for inner in self.inner.values():
            inner.begin_again()

    def forget(self, frame: int) -> bool:
        """Forgets what is known of the statements around a frame; whether it is on this way."""
        calls = [call for call, inner in self.inner.items() if inner.forget(frame)]
        for position in (frame, *calls):
            self.known.forget(position)
        return bool(calls) or frame in self.known.around

    def within(self, one: Statement, pending: Pending, here: Alike) -> Pending:
        own = _WAYS.get(type(one))
        if own is not None:
            return own(self, one, pending, here)
        if self.is_silent(one, here):
            return pending
        for event in filter(self._counts, self.events[id(one), self.frame]):
            pending = self.event(event, pending, one)
        if isinstance(one, Leave):
            self.left = self.left.or_else(pending)
        return pending

    def is_silent(self, one: Statement, here: Alike) -> bool:
        """Whether a statement has no others inside of it and touches no memory that others use,
        which is then known of it."""
        if type(one) in _WAYS:
            return False
        known = self.events.get((id(one), self.frame))
        if known is None:
            known = self.events[id(one), self.frame] = list(self.accesses.of(one))
            if self.placing is not None:
                self.agreement.note(one, here)
        if isinstance(one, (Skip, Leave)) or any(map(self._counts, known)):
            return False
        self.quiet.add(id(one))
        return True

    def _counts(self, event: Access | Barrier) -> bool:
        """Whether an event is one to look at: of the grid alone where its barriers are added."""
        if self.placing is None or not self.placing.of_grid:
            return True
        scope = event.scope if isinstance(event, Barrier) else event.area.among
        return scope is Scope.GRID

    def swapped(self, one: Swap, pending: Pending) -> Pending:
        """What is pending where two buffers have changed names: it is known by the others now."""

        def renamed(past: Past) -> Past:
            access = self.accesses.swapped(one, past.access)
            if self.placing is not None and access != past.access:
                self.ways.setdefault(access, {}).update(self.ways.get(past.access, {}))
            return replace(past, access=access)

        return pending.changed(renamed)

    def event(self, event: Access | Barrier, pending: Pending, at: Statement) -> Pending:
        if isinstance(event, Barrier):
            return pending.after(event, self.clustered)
        while (found := pending.conflict(event)) is not None:
            if self.found is None:  # no variable holds it, or its traceback would hold itself
                raise Missing(found[0], event, found[1], at)
            self.found.append(Missing(found[0], event, found[1], at))
            pending = pending.after(found[0], self.clustered)
        if self.placing is not None:
            self.note_way(event)
        return pending.and_then(event)

    def note_way(self, access: Access) -> None:
        self.ways.setdefault(access, {})[self.position] = self.way

    def read(self, exprs: list[Expr], pending: Pending, at: Statement) -> Pending:
        for event in filter(self._counts, self.accesses.reads(exprs)):
            pending = self.event(event, pending, at)
        return pending

    def loop(self, one: For | While, pending: Pending, here: Alike) -> Pending:
        """What iterations leave to each other first: a barrier for that stands inside of the loop,
        and may do for what came before."""
        if isinstance(one, For):
            pending = self.read(conditions(one), pending, one)
            self.accesses.loop(one)
        with self.accesses.ownership.turning(one):
            return self.iterations(one, pending, here)

    def iterations(self, one: For | While, pending: Pending, here: Alike) -> Pending:
        closed, outer = self.closed, self.left
        if self.placing is not None:
            here &= self.agreement.iterations(one)
            if not closed:
                self.carried(one.body, here)
        self.closed, self.left = True, NOTHING
        try:
            once = self.body(one.body, pending, here)
            again = once if pending.holds(once) else self.body(one.body, once, here)
            return functools.reduce(Pending.or_else, (pending, once, again, self.left))
        finally:
            self.closed, self.left = closed, outer

    def carried(self, body: Body, here: Alike) -> None:
        """Adds the barriers that one iteration needs, and those between one iteration and the next.
        The latter stand after what the next iteration has to wait for, since it may not reach the
        same statements. Where that is impossible they stand before what has to wait."""
        assert self.placing is not None
        while left := self.body(body, NOTHING, here):
            missing = self.missing(body, left, here)
            if missing and self.placing.closed:
                raise missing[0]
            if not missing:
                return
            added = [self.added_after(body, one) for one in missing]
            if not any(added):
                self.body(body, left, here)

    def missing(self, body: Body, pending: Pending, here: Alike) -> list[Missing]:
        """All barriers that are missing in one iteration after another one."""
        self.closed, self.found = True, []
        try:
            self.body(body, pending, here)
            return self.found
        finally:
            self.closed, self.found = False, None

    def added_after(self, body: Body, missing: Missing) -> bool:
        """Whether a barrier was added after what is to be waited for, in a loop's body."""
        assert self.placing is not None
        for whole in reversed(self.ways[missing.before].values()):
            way = _within(body, whole)
            if self.placing.after(way, missing):
                self.known.forget(id(way[-1].body))
                return True
        return False

    def branches(self, one: If, pending: Pending, here: Alike) -> Pending:
        if one.given:
            pending = self.statement(one.given, pending, here)
        pending = self.read(conditions(one), pending, one)
        ends = []
        passed: list[tuple[Expr, bool]] = []
        for way in (Branch(one.condition, one.body), *one.others):
            if self.placing is not None and way.condition is not None:
                here &= self.agreement.alike(way.condition)
            tested = [] if way.condition is None else [(way.condition, True)]
            with self.accesses.ownership.where([*passed, *tested]):
                ends.append(self.body(way.body, pending, here))
            passed += [(condition, False) for condition, _ in tested]
        if not any(other.condition is None for other in one.others):
            ends.append(pending)
        return functools.reduce(Pending.or_else, ends)

    def invoke(self, one: Invoke, pending: Pending, here: Alike) -> Pending:
        """A function of the kernel's own: barriers inside of it are for all of its calls."""
        function = self.functions[one.function]
        inner = self.inner.get(id(one))
        if inner is None:
            names = (name for _, name in function.parameters)
            accesses = self.accesses.inside(dict(zip(names, one.arguments, strict=True)))
            inner = _Walk(self.functions, accesses, self.clustered, self.placing, closed=True)
            self.inner[id(one)] = inner
        self.known.around[id(one)] = self.inside
        inner.found = self.found
        pending = inner.body(function.body, pending, here)
        for access in inner.ways:
            self.note_way(access)
        return pending


_NO_BARRIERS: Mapping[int, Barrier] = {}
#: What is done at statements that are more than their accesses and barriers, by type.
_WAYS: Mapping[type, Callable[[_Walk, Any, Pending, Alike], Pending]] = {
    Group: lambda walk, one, pending, here: walk.body(one.body, pending, here),
    For: _Walk.loop,
    While: _Walk.loop,
    If: _Walk.branches,
    Swap: lambda walk, one, pending, here: walk.swapped(one, pending),
    Invoke: _Walk.invoke,
}


def _within(body: Body, way: tuple[Spot, ...]) -> tuple[Spot, ...]:
    """The part of a way that leads from a frame on, up to the first loop: what stands in that would
    be done again and again."""
    found: list[Spot] = []
    for spot in way:
        if found or spot.body is body:
            found.append(spot)
            if isinstance(spot.body[spot.number], (For, While)):
                break
    return tuple(found)
