"""Functions of the device headers that threads call together: who does, and what they do to the
shared memory that values go through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionstitch.codegen.ir.statements import Barrier, Scope

WARP = 32
#: Functions that the lanes of a warp call together; what they exchange stays in registers.
_OF_WARPS = ("fs_reduce_lanes", "fs_scatter_lanes", "__all_sync")
_OF_TENSOR_CORES = "fs_mma"


@dataclass(frozen=True)
class Step:
    """A read or a write of the scratch, or of half of it (`part` 0 or 1), by threads that exchange
    `among` a team, a block or a cluster. `by_warps`: each warp writes to a place of its own, by its
    number in the block."""

    writes: bool
    among: Scope
    part: int | None = None
    by_warps: bool = False


@dataclass(frozen=True)
class Exchange:
    """What a function does to its argument number `scratch`: accesses, and barriers between them.
    The widest of these says who calls it together; without any, each thread by itself does."""

    scratch: int
    steps: tuple[Step | Scope, ...]

    @property
    def meets(self) -> Scope | None:
        """Who calls the function together."""
        scopes = [step for step in self.steps if isinstance(step, Scope)]
        return scopes[-1] if scopes else None


def _within(
    scope: Scope, part: int | None = None, by_warps: bool = False
) -> tuple[Step | Scope, ...]:
    """Values are written, and read behind a barrier."""
    return Step(True, scope, part, by_warps), scope, Step(False, scope, part, by_warps)


EXCHANGES = {
    "fs_reduce_block": Exchange(0, _within(Scope.BLOCK, by_warps=True)),
    "fs_reduce_team": Exchange(0, _within(Scope.TEAM, by_warps=True)),
    "fs_reduce_cluster": Exchange(
        0, (*_within(Scope.BLOCK, 0, by_warps=True), *_within(Scope.CLUSTER, 1))
    ),
    "fs_reduce_strided": Exchange(1, _within(Scope.BLOCK)),
    "fs_reduce_teams": Exchange(1, _within(Scope.BLOCK)),
    "fs_join_parts": Exchange(2, _within(Scope.BLOCK)),
    "fs_store_packed": Exchange(0, (Step(True, Scope.BLOCK),)),
}


def exchange_of(function: str) -> Exchange | None:
    """What a function of the headers does to shared memory; None if it goes through none, or reads
    it alone."""
    return EXCHANGES.get(bare(function))


def whom(function: str) -> Scope | int | None:
    """Who calls a function together: a scope, so many neighbouring threads, or None: nobody need
    wait for others."""
    name = bare(function)
    if name in _OF_WARPS or name.startswith(_OF_TENSOR_CORES):
        return WARP
    found = EXCHANGES.get(name)
    if found is None or found.meets is None:
        return None
    return team_of(function) if found.meets is Scope.TEAM else found.meets


def barrier_in(function: str, scope: Scope) -> Barrier:
    """A barrier of `scope` inside of a function."""
    return Barrier(scope, team_of(function) if scope is Scope.TEAM else 0)


def team_of(function: str) -> int:
    """Threads of the teams that a function is called by."""
    return WARP * first_argument(function)


def room(function: str, sizes: Sequence[int], block: int) -> int:
    """Bytes of scratch that a function takes in a block of so many threads, for values of these
    sizes: those that it exchanges, or the elements of an array."""
    name, numbers = bare(function), template_arguments(function)
    slots = sum(WARP * max(8, size) for size in sizes)
    if name == "fs_reduce_cluster":
        return 2 * slots
    if name == "fs_reduce_strided":
        return block * sizes[0]
    if name == "fs_reduce_teams":
        return block * int(numbers[1]) * sizes[0]
    if name == "fs_join_parts":
        return block * (len(sizes) + int(numbers[2])) * sizes[0]
    return slots


def template_arguments(function: str) -> list[str]:
    """The template arguments of a function, as C spells them."""
    return function.partition("<")[2].removesuffix(">").split(", ")


def bare(function: str) -> str:
    """A function's name without template arguments."""
    return function.partition("<")[0]


def first_argument(function: str) -> int:
    """The first template argument of a function."""
    return int(template_arguments(function)[0])
