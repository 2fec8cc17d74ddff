"""Single defaults of a kernel's schedule that are replaced: one small value.

Loops ask so for the blocks of their iterations, and the search for other registers and accesses
(`codegen/search/neighbours.py`); a schedule that was found is stored as its template.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusionstitch.hlo.errors import CodegenError

#: Teams of several warps in a block: each has a barrier of its own, of which there are 15.
MOST_TEAMS = 8
#: Rows of pairs that a team goes through at once, at most.
PAIRED_ROWS = 8


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Schedule choices that replace the defaults of `schedule.py`; None keeps a default.

    block threads per block team threads that share a row columns columns that lie along the lanes
    where the summed dim is not the minor-most tile factor on the grid points of a tile parts factor
    on the parts of a split reduction; 0 splits none vector_bytes widest access of a thread
    row_registers registers per thread that hold a row from sweep to sweep blocks_per_sm blocks that
    launch bounds, and a cooperative grid, count on per multiprocessor cluster blocks that share a
    row, 1 for none merge False gives every loop a phase of its own instead of merging loops into
    blocks halo elements of a tile with a halo along each stencil axis; none for no such tiles once
    True computes once what a loop reads at several indices, if that takes less

    A choice that does not fit a loop (a team longer than the block, say) leaves that loop as it is.
    """

    block: int | None = None
    team: int | None = None
    columns: int | None = None
    tile: float = 1.0
    parts: float = 1.0
    vector_bytes: int | None = None
    row_registers: int | None = None
    blocks_per_sm: int | None = None
    cluster: int | None = None
    merge: bool = True
    halo: tuple[int, ...] = ()
    once: bool = False

    def __post_init__(self) -> None:
        if self.block is not None and (self.block < 32 or self.block & (self.block - 1)):
            raise CodegenError(f"Tuning.block is {self.block}: it takes a power of two from 32 on.")

    def points(self, default: int) -> int:
        """Grid points of a tile."""
        return max(1, int(default * self.tile))

    def threads(self, default: int, block: int) -> int:
        """Threads that share a row, where `default` would; one thread per row stays so."""
        if self.team is None or default == 1:
            return default
        return team_in(block, self.team)


DEFAULT = Tuning()


def power_of_two(x: int) -> int:
    """The smallest power of two that is at least x."""
    return 1 << max(0, math.ceil(math.log2(max(1, x))))


def team_in(block: int, threads: int) -> int:
    """Threads of a team of about `threads`, a power of two, in a block of `block`."""
    if block % threads:
        return block
    return max(threads, block // MOST_TEAMS) if threads > 32 else threads
