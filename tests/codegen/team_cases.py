"""Teams of different sizes in one phase of a kernel: its blocks go from rows of one length to rows
of another while some of their warps are still at the first. Enters `CASES`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from tests.codegen.kernel_cases import (
    BF16,
    BLOCK,
    F16,
    GRID,
    LANES,
    TEAM,
    add,
    normal,
)
from tests.codegen.regions import H200

#: Few enough blocks that each goes through tiles of every kind, and many enough that rows of one
#: kind are not all in one tile.
TWO_BLOCKS = replace(H200, cooperative_limit=2)
#: Teams of two, four and eight warps.
PAIRS, FOURS, EIGHTS, SIXTEENS = (f"{TEAM}{warps}," for warps in (2, 4, 8, 16))


def shares(*arrays):
    """What the rows of each array sum up to, as shares of all."""
    rows = [jnp.exp(x.astype(np.float32)).sum(-1) for x in arrays]
    total = sum(r.sum() for r in rows)
    return tuple(r / total for r in rows)


def teams(name: str, fun: Any, *args: Any, shows: Any = (), **fields: Any) -> None:
    add(f"teams_{name}", fun, *args, shows=(GRID, *shows), **{"device": H200, **fields})


teams("of_4_and_8", shares, normal(6, 8192), normal(9, 512), normal(3, 4096), shows=(FOURS, EIGHTS))
teams(
    "of_4_8_and_16",
    shares,
    *(normal(3, 16384), normal(5, 4096), normal(3, 8192), normal(9, 700), normal(1, 600)),
    shows=(FOURS, EIGHTS, SIXTEENS, f"{BLOCK}32,"),
    device=TWO_BLOCKS,
)
teams(
    "and_lanes",
    shares,
    *(normal(6, 8192), normal(50, 100), normal(9, 4096), normal(2000, 3), normal(7, 512)),
    shows=(FOURS, EIGHTS, LANES),
)
teams(
    "of_halves",
    shares,
    *(normal(6, 8192, dtype=BF16), normal(9, 512, dtype=F16), normal(3, 4096, dtype=BF16)),
    shows=(FOURS, EIGHTS),
)
