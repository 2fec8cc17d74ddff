"""What each block does one after the other where blocks wait for each other: its phases, and at
which counters it arrives and waits in between.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusionstitch.codegen.ir.blocks import Position, Unknown, Walk
from fusionstitch.codegen.ir.counters import may_count
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.program import Program
from fusionstitch.codegen.ir.reach import Counter
from fusionstitch.costmodel.kernel_cost import Arrival, Await, Step


def followed(lowered: Lowered) -> Program:
    """A kernel whose blocks are followed for their counters alone."""
    return Program(lowered, {b.name: b.name for b in lowered.buffers if may_count(b)})


def block_steps(program: Program, phases: Mapping[Position, int]) -> tuple[tuple[Step, ...], ...]:
    """The steps of each block; `phases` has the positions at which phases end. Empty where it is
    unknown at which counters blocks arrive and wait, which no verified kernel has."""
    numbers: dict[Counter, int] = {}
    found = []
    for block in range(program.kernel.grid):
        walk = _Phases(program, block, phases)
        try:
            walk.body(program.kernel.body)
        except Unknown:
            return ()
        found.append(walk.steps(numbers))
    return tuple(found)


class _Phases(Walk):
    """Notes which phases a block goes through, each with how many syncs come before its end."""

    def __init__(self, program: Program, block: int, phases: Mapping[Position, int]):
        super().__init__(program, block)
        self.phases = phases
        self.gone: list[tuple[int, int]] = []

    def until(self) -> None:
        phase = self.phases.get(self.position)
        if phase is not None:
            self.gone.append((len(self.syncs), phase))

    def steps(self, numbers: dict[Counter, int]) -> tuple[Step, ...]:
        """Phases and syncs in their order, counters by their `numbers`."""
        found: list[Step] = []
        done = 0
        for before, phase in (*self.gone, (len(self.syncs), None)):
            for sync in self.syncs[done:before]:
                counter = numbers.setdefault(sync.counter, len(numbers))
                found.append(Arrival(counter) if sync.value is None else Await(counter, sync.value))
            done = before
            if phase is not None:
                found.append(phase)
        return tuple(found)
