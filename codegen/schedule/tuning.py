"""What the autotuner may change about a kernel's schedule: one small value."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.errors import CodegenError

#: Teams of several warps in a block: each has a barrier of its own, of which there are 15.
MOST_TEAMS = 8
#: Types a choice may have, by the type of its default.
_KINDS: Mapping[type, tuple[type, ...]] = {
    bool: (bool,),
    float: (int, float),
    type(None): (int, type(None)),
}


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Schedule choices that replace the defaults of `schedule.py`; None keeps a default.

    block          threads per block
    team           threads that share a row
    columns        columns that lie along the lanes where the summed dim is not the minor-most
    tile           factor on the grid points of a tile
    parts          factor on the parts of a split reduction; 0 splits none
    vector_bytes   widest access of a thread
    row_registers  registers per thread that hold a row from sweep to sweep
    blocks_per_sm  blocks that launch bounds, and a cooperative grid, count on per multiprocessor
    persistent     no more blocks than `blocks_per_sm` fill the device with; they loop over tiles
    cluster        blocks that share a row, 1 for none
    merge          False gives every loop a phase of its own instead of merging loops into blocks
    once           True computes once what a loop reads at several places, if that takes less

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
    persistent: bool = False
    cluster: int | None = None
    merge: bool = True
    once: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kinds = _KINDS[type(field.default)]
            if type(value) not in kinds or (value is not None and value < 0):
                raise CodegenError(f"Tuning.{field.name} cannot be {value!r}.")
        if self.block is not None and (self.block < 32 or self.block & (self.block - 1)):
            raise CodegenError(f"Tuning.block is {self.block}: it takes a power of two from 32 on.")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tuning:
        """The inverse of `to_dict`. Raises CodegenError for choices that this version lacks."""
        unknown = sorted(set(data) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise CodegenError(f"There is no schedule choice named {', '.join(unknown)}.")
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """The choices that differ from the defaults."""
        chosen = ((f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self))
        return {name: value for name, value, default in chosen if value != default}

    def __str__(self) -> str:
        return ", ".join(f"{k} {v}" for k, v in self.to_dict().items()) or "default schedule"

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


def team_in(block: int, wanted: int) -> int:
    """Threads of a team of about `wanted`, a power of two, in a block of `block`."""
    if block % wanted:
        return block
    return max(wanted, block // MOST_TEAMS) if wanted > 32 else wanted
