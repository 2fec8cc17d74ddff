"""Sorted rows: how many threads have the elements of a row, and how many each has."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.schedule.tuning import power_of_two
from fusionstitch.codegen.text.types import compute_bytes
from fusionstitch.costmodel.devices import WARP
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Op

#: Elements of a thread: fewer leave more to be exchanged with others, more take more registers. A
#: thread of a warp has more where that spares a block.
FEWEST, USUAL, MOST = 8, 16, 32
#: Threads of a block in which warps, or parts of them, have rows of their own.
BLOCK = 256


@dataclass(frozen=True)
class Shape:
    """`threads` have the elements of a row, `each` so many: lanes of a warp, or a block. `kept` are
    put in order: all of them, or the first."""

    threads: int
    each: int
    kept: int

    @property
    def is_whole(self) -> bool:
        """Whether all are put in order."""
        return self.kept == self.threads * self.each

    @property
    def left(self) -> int:
        """Elements that a thread has in the end."""
        return min(self.each, self.kept)

    @property
    def by_lanes(self) -> bool:
        """Whether a row lies in lanes of one warp."""
        return self.threads <= WARP

    @property
    def shared(self) -> int:
        """Elements that the threads of a block exchange through shared memory."""
        if self.by_lanes:
            return 0
        return self.threads * (self.each + 1 if self.is_whole else self.left)


def block_of(op: Op) -> int:
    """Threads of a block that has nothing else to do."""
    size = _padded(op)
    return BLOCK if size <= WARP * MOST else size // USUAL


def team_of(op: Op, block: int) -> int:
    """Threads that share a row in a block of so many."""
    size = _padded(op)
    if size > WARP * MOST:
        return block
    return min(WARP, size // min(USUAL, max(FEWEST, size // WARP)))


def shape_of(op: Op, threads: int, block: int) -> Shape:
    """How the rows of a sort lie in teams of so many threads. Raises CodegenError for others than
    lanes of a warp or whole blocks, and where a thread would have too many elements."""
    each = _padded(op) // threads
    whole = 1 < threads <= WARP or threads == block
    if not whole or threads & (threads - 1) or not 2 <= each <= MOST:
        usual = block_of(op)
        raise CodegenError(
            f"{op.name}: {threads} of {block} threads cannot sort rows of "
            f"{op.operands[0].dims[1]} elements. Give {team_of(op, usual)} of {usual} a row."
        )
    kept = max(2, power_of_two(op.dims[1])) if "first" in op.attrs else _padded(op)
    return Shape(threads, each, kept)


def shared_bytes(op: Op, threads: int, block: int) -> int:
    """Bytes of shared memory through which a block sorts a row."""
    return shape_of(op, threads, block).shared * compute_bytes(op.dtype)


def _padded(op: Op) -> int:
    """The elements of a row, and as many more as a power of two needs."""
    return power_of_two(op.operands[0].dims[1])
