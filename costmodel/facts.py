"""What code generation tells the planner about the kernel it would make of a pattern."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusionstitch.costmodel.account import Account
from fusionstitch.costmodel.work import Work
from fusionstitch.hlo.brief import brief, count

#: What the intermediates of a kernel may cross, the narrowest first.
SCOPES = ("thread", "warp", "block", "cluster", "grid", "loop")


@dataclass(frozen=True)
class Walk:
    """How blocks go through one loop over rows: what the amounts of work do not show.

    Each of `tiles` takes `turns` rows of a team of threads, one after the other. A row is `rounds`
    of loads that wait for each other, `flight` of a thread's under way together, and `joins`
    exchanges between `warps` warps. With `carries` a tile ends with one more, of what its threads
    sum from row to row. `busy` is the share of a block's threads that have work. Later sweeps
    along a row read `again` bytes once more, of which a block works on `rows_bytes` at a time;
    `spilled` bytes are written and read where registers are too few. One that `follows` the loop
    before it is done by the same blocks, behind it.
    """

    tiles: int
    turns: int = 1
    rounds: int = 1
    flight: int = 1
    joins: int = 0
    carries: bool = False
    warps: int = 1
    busy: float = 1.0
    again: int = 0
    rows_bytes: int = 0
    spilled: int = 0
    follows: bool = False


@dataclass(frozen=True)
class KernelFacts:
    """A kernel before it is emitted.

    `work` is the whole of it, `phases` the work between two grid barriers each (empty: one
    phase), `alone` what in a phase is done by blocks of its own (empty: all by all), `walks` the
    loops of each phase. `threads` and `shared_bytes` are per block, `registers` per thread, an
    estimate; `scope` is the widest of `SCOPES` an intermediate crosses;
    `facts` are whatever the report should show.
    """

    work: Work
    threads: int = 256
    shared_bytes: int = 0
    registers: int = 32
    scope: str = ""
    phases: tuple[Work, ...] = ()
    alone: tuple[tuple[Work, ...], ...] = ()
    walks: tuple[tuple[Walk, ...], ...] = ()
    facts: tuple[tuple[str, object], ...] = ()
    #: what its statements do, once it was chosen and they were counted
    account: Account | None = None
    #: what a kernel with loops takes, whose time does not follow from one account of its work
    loop_us: float | None = None

    def __repr__(self) -> str:
        return brief(
            f"KernelFacts: {self.scope} scope, {count(self.threads, 'thread')} a block, "
            f"{count(self.shared_bytes, 'byte')} shared, {count(self.registers, 'register')}, "
            f"{count(self.phases or (self.work,), 'phase')}"
        )

    def warmed(self, read: int, written: int, unread: int = 0) -> KernelFacts:
        """The same kernel where `read` bytes of its inputs and `written` of its outputs stay in L2,
        being values between kernels, and `unread` of its inputs are none that it needs: code
        generation counts all of them as DRAM traffic."""
        phases, alone = [], []
        for number, phase in enumerate(self.phases or (self.work,)):
            left_out = min(unread, phase.bytes_read)
            alone.append(_without(self.alone[number], left_out) if self.alone else ())
            in_l2 = min(read, phase.bytes_read - left_out), min(written, phase.bytes_written)
            read, written, unread = read - in_l2[0], written - in_l2[1], unread - left_out
            phases.append(
                replace(
                    phase,
                    bytes_read=phase.bytes_read - left_out - in_l2[0],
                    bytes_written=phase.bytes_written - in_l2[1],
                    l2_bytes=phase.l2_bytes + sum(in_l2),
                )
            )
        if self.phases:
            return replace(self, phases=tuple(phases), alone=tuple(alone) if self.alone else ())
        return replace(self, work=phases[0])


def _without(parts: tuple[Work, ...], unread: int) -> tuple[Work, ...]:
    """The parts of a phase without `unread` bytes, of which those that read most leave out most."""
    found = list(parts)
    for number in sorted(range(len(parts)), key=lambda n: -parts[n].bytes_read):
        less = min(unread, parts[number].bytes_read)
        found[number] = replace(parts[number], bytes_read=parts[number].bytes_read - less)
        unread -= less
    return tuple(found)
