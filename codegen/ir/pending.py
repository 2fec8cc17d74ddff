"""What threads read and wrote since the last barriers, for which later accesses may have to wait.

Pasts are grouped by buffer, with all of shared memory as one. The kernel of an optimizer has
hundreds of buffers with a few pasts each, and an access conflicts only with those of its own
buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from fusionstitch.codegen.ir.accesses import Access, covers, spans
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import Barrier


@dataclass(frozen=True)
class Past:
    """An access, and the widest barrier since then of those that do not settle it for good."""

    access: Access
    since: Barrier | None = None

    def __hash__(self) -> int:
        return self._number

    @cached_property
    def _number(self) -> int:
        return hash((self.access, self.since))

    def settles(self, needed: Barrier) -> bool:
        """Whether the barrier that must lie after it is there."""
        return self.since is not None and covers(self.since, needed)

    def met(self, barrier: Barrier) -> Past | None:
        """The same after a barrier; None if nothing can come too early any more."""
        shared = not self.access.area.buffer
        among = Scope.CLUSTER if shared else self.access.area.among
        if spans(barrier.scope, among):
            return None
        if not shared or (self.since is not None and covers(self.since, barrier)):
            return self
        if barrier.scope is Scope.TEAM and barrier.threads != self.access.threads:
            return self  # others than those that it is for
        return Past(self.access, barrier)


#: The pasts of one buffer in the order of the program: no text may depend on hashes.
Pasts = Mapping[Past, None]


@dataclass(frozen=True)
class Pending:
    """Pasts by buffer, '' for shared memory; buffers without pasts are absent. Equality and hash
    are those of all pasts in order. The hash is computed once: a walk needs it at every statement
    that has others inside."""

    of: Mapping[str, Pasts]

    def __bool__(self) -> bool:
        return bool(self.of)

    def __iter__(self) -> Iterator[Past]:
        return (past for pasts in self.of.values() for past in pasts)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Pending) and self._key == other._key)

    @cached_property
    def _number(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[tuple[str, tuple[Past, ...]], ...]:
        return tuple((buffer, tuple(pasts)) for buffer, pasts in self.of.items())

    def and_then(self, access: Access) -> Pending:
        """What is pending after an access."""
        past, buffer = Past(access), access.area.buffer
        pasts = self.of.get(buffer, {})
        return self if past in pasts else Pending({**self.of, buffer: {**pasts, past: None}})

    def or_else(self, other: Pending) -> Pending:
        """What is pending after either of two ways."""
        if self is other or not other:
            return self
        of = dict(self.of)
        for buffer, pasts in other.of.items():
            of[buffer] = {**of.get(buffer, {}), **pasts}
        return Pending(of)

    def holds(self, other: Pending) -> bool:
        """Whether all that is pending in another is so here."""
        nothing: Pasts = {}
        return self is other or all(
            pasts.keys() <= self.of.get(buffer, nothing).keys()
            for buffer, pasts in other.of.items()
        )

    def changed(self, new: Callable[[Past], Past | None]) -> Pending:
        """With other pasts instead of the present ones, or with none."""
        of: dict[str, dict[Past, None]] = {}
        for past in self:
            if (found := new(past)) is not None:
                of.setdefault(found.access.area.buffer, {})[found] = None
        return Pending(of)

    def after(self, barrier: Barrier, clustered: bool) -> Pending:
        """What is pending after a barrier. Only in a kernel of clusters can an access to shared
        memory still be of interest that all threads of the block are done with."""
        if barrier.scope is Scope.GRID:
            return NOTHING
        done = barrier.scope is Scope.BLOCK and not clustered
        return self.changed(
            lambda past: None if done and not past.access.area.buffer else past.met(barrier)
        )

    def conflict(self, access: Access) -> tuple[Barrier, Access] | None:
        """The widest barrier that is missing before an access, and what it waits for first."""
        found: tuple[Barrier, Access] | None = None
        writes = access.writes
        for past in self.of.get(access.area.buffer, ()):
            before = past.access
            if not (writes or before.writes):
                continue
            barrier = access.needs(before)
            if barrier is None or past.settles(barrier):
                continue
            if found is None or (covers(barrier, found[0]) and barrier != found[0]):
                found = barrier, before
        return found


NOTHING = Pending({})
