"""What a kernel does, in the amounts that its price is made of (`kernel_time.py`)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fusionstitch.costmodel.work import Work
from fusionstitch.hlo.brief import brief, count


@dataclass(eq=False, repr=False)
class Path:
    """The longest path of one thread: what it does, one after the other.

    `rounds` of loads from global memory wait for the one before; `far` of them leave the
    multiprocessor. `accesses` are those of global memory, `near` those of shared memory and tables.
    `ops` are elementwise, in the FLOPs and integer operations of `Work`; `records` counts fields
    that are joined. Then come `special` functions, `divisions` of indices, `shuffles`, `barriers`
    of a block or less, those of a cluster (`meetings`), and `products` on tensor cores. `chain` are
    cycles of the longest chain of operations, and elements of the thread's own arrays are read or
    written `kept` times.
    """

    rounds: float = 0
    far: float = 0
    accesses: float = 0
    near: float = 0
    ops: float = 0
    records: float = 0
    special: float = 0
    divisions: float = 0
    shuffles: float = 0
    barriers: float = 0
    meetings: float = 0
    products: float = 0
    chain: float = 0
    kept: float = 0

    def __repr__(self) -> str:
        known = ((step, getattr(self, step)) for step in STEPS)
        return brief(f"Path: {', '.join(f'{step} {number:g}' for step, number in known if number)}")

    def then(self, other: Path, times: float = 1) -> None:
        """Goes on with another way, so many times."""
        for name in STEPS:
            setattr(self, name, getattr(self, name) + times * getattr(other, name))


#: What a way is made of.
STEPS = tuple(field.name for field in fields(Path))
#: Of that, what takes as long wherever it is done.
PRICED = tuple(step for step in STEPS if step != "kept")
#: Of that, what waits for nothing that comes after it in the text of the thread.
ISSUED = ("accesses", "near", "ops", "records", "special", "divisions", "products")


@dataclass(frozen=True)
class Again:
    """What blocks read or write again: `bytes`, of all blocks. Between two visits each goes through
    `block` bytes; all through the same if `common`."""

    block: int
    bytes: int
    common: bool = False


@dataclass(frozen=True, repr=False)
class PhaseCost:
    """All threads between two grid barriers, `iterations` times where these are in a loop: all of
    its iterations together, but for the `path`; `grid_barriers` end them. Bytes: `outside` is what
    is read and written of inputs and outputs, each byte once and by the first phase that does.
    `moved` goes between L2 and the multiprocessors, and so does `again` where caches are too small.
    Accesses of threads: `accesses` of global memory, in `sectors`, and those `near`. Warps touch
    `lines` by loads and `lines_stored` by stores that the hardware does not join. The other
    amounts are those of `Path`, of all threads together; `flops64` and `tensor_flops` are in FLOPs.
    `blocks` is how many blocks go through it, 0 for all."""

    path: Path
    outside: int = 0
    moved: int = 0
    again: tuple[Again, ...] = ()
    accesses: int = 0
    sectors: int = 0
    lines: int = 0
    lines_stored: int = 0
    near: int = 0
    ops: int = 0
    records: int = 0
    special: int = 0
    divisions: int = 0
    shuffles: int = 0
    kept: int = 0
    flops64: int = 0
    tensor_flops: int = 0
    products: int = 0
    iterations: int = 1
    grid_barriers: int = 0
    blocks: int = 0

    def __repr__(self) -> str:
        return brief(
            f"PhaseCost: {count(self.iterations, 'iteration')}, "
            f"{count(self.outside, 'byte')} outside, {count(self.moved, 'byte')} moved"
        )


@dataclass(frozen=True)
class Arrival:
    """A block arrives at a counter, by its number."""

    counter: int


@dataclass(frozen=True)
class Await:
    """A block waits until so many have arrived at a counter. A barrier of the grid is an arrival of
    each block, and a wait for all of them."""

    counter: int
    arrivals: int


#: What a block does: a phase, by its number, or what it does at a counter.
Step = int | Arrival | Await


@dataclass(frozen=True, repr=False)
class KernelCost:
    """A kernel of `blocks` of `threads`; `registers` are per thread, `shared_bytes` per block, and
    `footprint` are the bytes of global memory that it touches at all. Of a thread's own arrays the
    share `spilled`, so many bytes, has no registers. `steps` are those of each block, one after the
    other; without them all blocks go through all phases."""

    phases: tuple[PhaseCost, ...]
    blocks: int
    threads: int
    registers: int
    shared_bytes: int
    footprint: int
    spilled: float = 0.0
    spilled_bytes: int = 0
    steps: tuple[tuple[Step, ...], ...] = ()

    @property
    def outside(self) -> int:
        """Bytes of inputs and outputs, each once."""
        return sum(phase.outside for phase in self.phases)

    @property
    def work(self) -> Work:
        """The same in the amounts that XLA's kernels are counted in."""
        moved = sum(phase.moved for phase in self.phases)
        return Work(
            bytes_read=self.outside,
            l2_bytes=max(0, moved - self.outside),
            flops=sum(phase.ops for phase in self.phases),
            flops64=sum(phase.flops64 for phase in self.phases),
            special=sum(phase.special for phase in self.phases),
            tensor_flops=sum(phase.tensor_flops for phase in self.phases),
            blocks=self.blocks,
        )

    def __repr__(self) -> str:
        return brief(
            f"KernelCost: {count(self.phases, 'phase')}, {count(self.blocks, 'block')} of "
            f"{count(self.threads, 'thread')}, {count(self.registers, 'register')}, "
            f"{count(self.shared_bytes, 'byte')} shared, {count(self.footprint, 'byte')} touched"
        )
