"""What a kernel does, as far as its statements say: the one that is priced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.costmodel.kernel_cost import Again, Path, Step


@dataclass(frozen=True)
class Traffic:
    """Accesses of threads, and the sectors and lines of memory that the warps they are part of
    touch by them; of shared memory and tables none are counted."""

    accesses: int = 0
    sectors: int = 0
    lines: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.accesses + other.accesses,
            self.sectors + other.sectors,
            self.lines + other.lines,
        )


#: Accesses by where they go and how many bytes each takes.
Accesses = Mapping[tuple[Memory, int], Traffic]


@dataclass(frozen=True)
class Instructions:
    """What units of a multiprocessor do, in the amounts of `costmodel/work.py`: every visit of an
    op counts, by every thread that computes it; operators of conditions are integer operations.
    `records` are fields of records that are joined, `divisions` quotients and remainders in
    addresses, `products` instructions of tensor cores, which stand for `tensor_flops`."""

    flops: int = 0
    flops64: int = 0
    special: int = 0
    int_ops: int = 0
    tensor_flops: int = 0
    products: int = 0
    records: int = 0
    divisions: int = 0


@dataclass(frozen=True)
class Footprint:
    """Bytes of a buffer that are read or written, however often; those that go to and fro between
    L2 and the multiprocessors at least; and those that do so `again` where they are not kept."""

    bytes: int
    moved: int
    again: tuple[Again, ...] = ()


@dataclass(frozen=True)
class Phase:
    """What all threads of all blocks do between two grid barriers. In a loop it covers all
    `iterations` together, except for `path`, which is the longest path of one thread in one
    iteration. `barriers` has the number of barriers by scope: each team, each block, each cluster,
    the grid. `read` and `written` are the buffers of global memory by name."""

    loads: Accesses = field(default_factory=dict)
    stores: Accesses = field(default_factory=dict)
    instructions: Instructions = Instructions()
    barriers: Mapping[Scope, int] = field(default_factory=dict)
    shuffles: int = 0
    kept: int = 0
    path: Path = field(default_factory=Path)
    read: Mapping[str, Footprint] = field(default_factory=dict)
    written: Mapping[str, Footprint] = field(default_factory=dict)
    iterations: int = 1


@dataclass(frozen=True)
class Tally:
    """A kernel, phase by phase. `in_flight` is the most loads of one thread that are under way at
    once, `registers` an estimate per thread. `spilled` is the share of its arrays that has no
    registers, followed by its bytes; `shared` has the bytes of a block. `steps` are those of each
    block, where blocks wait for each other by counters.

    It is exact unless `upper` or `sampled`. `upper`: conditions on data were taken to hold, so
    these are upper bounds. `sampled`: some conditions were evaluated for a part of the executions
    only, or by what is likely.
    """

    phases: tuple[Phase, ...]
    in_flight: int
    registers: int
    spilled: float
    spilled_bytes: int
    shared: int
    upper: bool
    sampled: bool
    steps: tuple[tuple[Step, ...], ...] = ()

    @property
    def loads(self) -> Accesses:
        return _together([phase.loads for phase in self.phases])

    @property
    def stores(self) -> Accesses:
        return _together([phase.stores for phase in self.phases])

    @property
    def barriers(self) -> Mapping[Scope, int]:
        met: dict[Scope, int] = {}
        for phase in self.phases:
            for scope, times in phase.barriers.items():
                met[scope] = met.get(scope, 0) + times
        return met

    @property
    def shuffles(self) -> int:
        return sum(phase.shuffles for phase in self.phases)


def _together(each: list[Accesses]) -> Accesses:
    found: dict[tuple[Memory, int], Traffic] = {}
    for accesses in each:
        for key, traffic in accesses.items():
            found[key] = found.get(key, Traffic()) + traffic
    return found
