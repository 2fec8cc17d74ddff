"""Where each schedule's result lies in shared memory (the paper's Algorithm 4, SharedPlanning).

A buffer has one owner at a time, the op whose result it holds, and is as large as the largest of
its owners. A schedule may take it over once the owner is dead: every schedule that reads the owner
comes earlier, or is this very schedule and reads in place. Dominance implies that: if every path
from the owner to the outputs passes the taker, every reader of the owner is an ancestor of the
taker, because only inlined ops lie between an owner and its reader. All of this holds only for
schedules emitted in the planned order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.verdict import Verdict, forbid

#: `dominates(a, b)`: whether every path from b to the outputs of the pattern passes a.
Dominates = Callable[[Hashable, Hashable], bool]


@dataclass(frozen=True)
class SharedRequest:
    """One schedule. Sizes are bytes.

    `bytes` is what its result needs in shared memory (0: it writes outputs only), `scratch` what it
    needs only while it runs (partials of a block reduction). `reads` are the ops whose shared
    results it reads; of those in `in_place` each thread reads only the element that it itself then
    writes, so a result of the same size may overwrite them. Schedules of one `nest` run
    interleaved, row by row: among them a buffer gets a new owner only in place.
    """

    op: Hashable
    bytes: int = 0
    reads: frozenset[Hashable] = frozenset()
    in_place: frozenset[Hashable] = frozenset()
    scratch: int = 0
    align: int = 16
    nest: Hashable = None


@dataclass(frozen=True)
class Allocation:
    """The shared memory of one result or scratch: `offset` from the start and size, both in bytes,
    and the number of its buffer. It is live from the `first` to the `last` schedule, by their
    positions. Comparisons ignore these two."""

    offset: int
    bytes: int
    buffer: int
    first: int = field(compare=False)
    last: int = field(compare=False)


@dataclass(frozen=True)
class SharedPlan:
    """Allocations of results and scratches by op, the bytes with and without sharing, and counts.

    `buffers` is the number of buffers, `shares` that of results that took over a dead operand's
    buffer, `reclaims` that of buffers that went to the free list. Where a buffer gets a new owner,
    barriers follow from the accesses (codegen/ir/passes/barriers.py).
    """

    results: Mapping[Hashable, Allocation]
    scratch: Mapping[Hashable, Allocation]
    total: int
    unshared: int
    requests: int
    buffers: int
    shares: int
    reclaims: int


def plan_shared(
    schedules: Sequence[SharedRequest],
    dominates: Dominates,
    limit: int,
    sharing: bool = True,
) -> SharedPlan | Verdict:
    """Plans shared memory of at most `limit` bytes, or forbids with the volume (paper 5.3).

    `schedules` stand in emitted order, one per op. Without `sharing` every result and scratch has
    its own buffer. Where dominance alone leaves too much alive (packed patterns without a common
    user), a buffer is free after its owner's last reader, wherever the taker stands.

    Raises VerifyError when a schedule reads what no earlier one writes.
    """
    readers = _readers(schedules)
    if not sharing:
        return _within(_Planner(schedules, readers, None).plan(), limit)
    plan = _Planner(schedules, readers, dominates).plan()
    if plan.total > limit:
        plan = _Planner(schedules, readers, lambda taker, owner: True).plan()
    return _within(plan, limit)


def _within(plan: SharedPlan, limit: int) -> SharedPlan | Verdict:
    if plan.total <= limit:
        return plan
    return forbid(
        "The intermediate results of one block do not fit into shared memory.",
        shared_bytes=plan.total,
        limit=limit,
        unshared_bytes=plan.unshared,
    )


def _readers(schedules: Sequence[SharedRequest]) -> dict[Hashable, list[int]]:
    """By op that writes shared memory, the positions of the schedules that read it, ascending."""
    readers: dict[Hashable, list[int]] = {}
    for position, schedule in enumerate(schedules):
        for op in sorted(schedule.reads, key=repr):
            if op not in readers:
                raise VerifyError(
                    f"Schedule {schedule.op} reads {op} from shared memory, but no earlier "
                    "schedule writes it there."
                )
            readers[op].append(position)
        if schedule.op in readers:
            raise VerifyError(f"Two schedules write the shared result of {schedule.op}.")
        if schedule.bytes:
            readers[schedule.op] = []
    return readers


@dataclass(eq=False)
class _Buffer:
    """Space, its owner (None: it is on the free list) and who touched its content."""

    number: int
    bytes: int
    align: int
    owner: SharedRequest | None
    writer: int
    readers: Sequence[int]


@dataclass
class _Planner:
    """One walk over the schedules. `may_take` None gives every request a buffer of its own."""

    schedules: Sequence[SharedRequest]
    readers: Mapping[Hashable, Sequence[int]]
    may_take: Dominates | None
    buffers: list[_Buffer] = field(default_factory=list)
    shares: int = 0
    reclaims: int = 0

    def plan(self) -> SharedPlan:
        results: dict[Hashable, _Buffer] = {}
        scratches: dict[Hashable, _Buffer] = {}
        for position, schedule in enumerate(self.schedules):
            dead = self._dead(position)
            if schedule.bytes:
                heirlooms = [b for b in dead if self._may_overwrite(position, b)]
                buffer = self._take(position, schedule.bytes, heirlooms)
                buffer.readers = self.readers[schedule.op]
                results[schedule.op] = buffer
                self.shares += buffer in heirlooms
                dead = [b for b in dead if b is not buffer]
            read_here = [b for b in dead if position in b.readers]
            self._reclaim(b for b in dead if b not in read_here)
            if schedule.scratch:
                scratches[schedule.op] = self._take(position, schedule.scratch)
                read_here.append(scratches[schedule.op])
            self._reclaim(read_here)
        return self._laid_out(results, scratches)

    def _dead(self, position: int) -> list[_Buffer]:
        """The owned buffers that no schedule after `position` reads and this one may take."""
        if self.may_take is None:
            return []
        op = self.schedules[position].op
        return [
            buffer
            for buffer in self.buffers
            if buffer.owner is not None
            and max(buffer.readers, default=position) <= position
            and self.may_take(op, buffer.owner.op)
        ]

    def _take(self, position: int, size: int, heirlooms: Sequence[_Buffer] = ()) -> _Buffer:
        """A buffer for `size` bytes: a dead operand's, one from the free list, or a new one."""
        schedule = self.schedules[position]
        pool = heirlooms or [
            b for b in self.buffers if b.owner is None and not self._touched_in_nest(position, b)
        ]
        if not pool:
            new = _Buffer(len(self.buffers), size, schedule.align, schedule, position, ())
            self.buffers.append(new)
            return new
        # The tightest fit: first the least growth, then the least waste.
        buffer = min(pool, key=lambda b: (max(size - b.bytes, 0), b.bytes, b.number))
        buffer.bytes = max(buffer.bytes, size)
        buffer.align = max(buffer.align, schedule.align)
        buffer.owner, buffer.writer, buffer.readers = schedule, position, ()
        return buffer

    def _may_overwrite(self, position: int, buffer: _Buffer) -> bool:
        """Whether the schedule at `position` may write over a dead owner while it runs.

        Reading in place keeps threads apart only if both results have the same number of bytes:
        then element i of the one lies exactly on element i of the other.
        """
        schedule, owner = self.schedules[position], buffer.owner
        if owner is None or position not in buffer.readers:
            return not self._touched_in_nest(position, buffer)
        beside = [p for p in buffer.readers if self._interleaved(p, position)]
        in_place = all(owner.op in self.schedules[p].in_place for p in (position, *beside))
        return in_place and owner.bytes == schedule.bytes

    def _touched_in_nest(self, position: int, buffer: _Buffer) -> bool:
        return any(self._interleaved(p, position) for p in (buffer.writer, *buffer.readers))

    def _interleaved(self, a: int, b: int) -> bool:
        """Whether the schedules at two positions belong to one nest."""
        nest = self.schedules[a].nest
        return nest is not None and nest == self.schedules[b].nest

    def _reclaim(self, buffers: Iterable[_Buffer]) -> None:
        if self.may_take is None:
            return
        for buffer in buffers:
            buffer.owner = None
            self.reclaims += 1

    def _laid_out(
        self, results: Mapping[Hashable, _Buffer], scratches: Mapping[Hashable, _Buffer]
    ) -> SharedPlan:
        offsets, total = _pack([(b.bytes, b.align) for b in self.buffers])
        requests = [
            (size, s.align) for s in self.schedules for size in (s.bytes, s.scratch) if size
        ]
        positions = {s.op: position for position, s in enumerate(self.schedules)}

        def allocation(op: Hashable, size: int, buffer: _Buffer, last: int) -> Allocation:
            return Allocation(offsets[buffer.number], size, buffer.number, positions[op], last)

        sizes = {s.op: s for s in self.schedules}
        return SharedPlan(
            results={
                op: allocation(op, sizes[op].bytes, b, max(self.readers[op], default=positions[op]))
                for op, b in results.items()
            },
            scratch={
                op: allocation(op, sizes[op].scratch, b, positions[op])
                for op, b in scratches.items()
            },
            total=total,
            unshared=_pack(requests)[1],
            requests=len(requests),
            buffers=len(self.buffers),
            shares=self.shares,
            reclaims=self.reclaims,
        )


def _pack(blocks: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """Offsets of blocks of (bytes, align), strictest alignment first, and where the last ends."""
    offsets = [0] * len(blocks)
    end = 0
    for i in sorted(range(len(blocks)), key=lambda i: -blocks[i][1]):
        size, align = blocks[i]
        offsets[i] = -(-end // align) * align
        end = offsets[i] + size
    return offsets, end
