"""Teams of different sizes in one phase of a kernel: its blocks go from rows of one length to rows
of another while some of their warps are still at the first. Enters `CASES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fusionstitch.codegen.generate import CodegenOptions
from fusionstitch.codegen.schedule.tuning import Tuning
from tests.codegen.kernel_cases import (
    BF16,
    BLOCK,
    CARRIED,
    COLUMNS,
    F16,
    GRID,
    LANES,
    TEAM,
    add,
    norm_both_ways,
    normal,
)
from tests.codegen.regions import H200

#: So few blocks that each goes through tiles of every kind.
TWO_BLOCKS = replace(H200, cooperative_limit=2)
#: So few multiprocessors that a tile has a row for each team, and the last one fewer.
SMALL_GRID = replace(H200, sm_count=4, cooperative_limit=2)
FOURS, EIGHTS, SIXTEENS = (f"{TEAM}{warps}," for warps in (4, 8, 16))
HALF_A_BLOCK, BLOCK_OF_32 = f"{BLOCK}16,", f"{BLOCK}32,"


def shares(*arrays):
    """What the rows of each array sum up to, as shares of all."""
    rows = [jnp.exp(x.astype(np.float32)).sum(-1) for x in arrays]
    total = sum(r.sum() for r in rows)
    return tuple(r / total for r in rows)


def case(*args: Any, shows: Any, **fields: Any) -> Callable[[Callable[..., Any]], Any]:
    """Enters the decorated function under its own name."""

    def enter(fun: Callable[..., Any]) -> Callable[..., Any]:
        name = f"teams_{fun.__name__}"
        add(name, fun, *args, shows=(GRID, *shows), **{"device": TWO_BLOCKS, **fields})
        return fun

    return enter


def case_of_shares(name: str, *args: Any, shows: Any, **fields: Any) -> None:
    shows = (GRID, *shows)
    add(f"teams_{name}", shares, *args, shows=shows, **{"device": TWO_BLOCKS, **fields})


case_of_shares(
    "of_4_and_8", normal(6, 8192), normal(9, 512), normal(5, 1024), shows=(FOURS, EIGHTS)
)
case_of_shares(
    "of_4_8_and_16",
    *(normal(3, 16384), normal(5, 2048), normal(9, 700), normal(1, 600), normal(7, 1024)),
    shows=(FOURS, EIGHTS, SIXTEENS, BLOCK_OF_32),
)
case_of_shares(
    "of_one_row_and_many",
    *(normal(1, 20000), normal(1, 513), normal(40, 1000), normal(1, 1024), normal(70, 64)),
    shows=(FOURS, LANES),
    options=CodegenOptions(tuning=Tuning(block=1024)),
)
case_of_shares(
    "with_rows_of_their_own",
    *(normal(9, 8192), normal(33, 600), normal(21, 1040), normal(50, 512)),
    shows=(FOURS, HALF_A_BLOCK),
    device=SMALL_GRID,
)
case_of_shares(
    "and_lanes",
    *(normal(6, 8192), normal(50, 100), normal(9, 1024), normal(2000, 3), normal(7, 512)),
    shows=(FOURS, EIGHTS, LANES),
)
case_of_shares(
    "of_halves",
    *(normal(6, 8192, dtype=BF16), normal(9, 512, dtype=F16), normal(5, 2048, dtype=BF16)),
    shows=(FOURS, EIGHTS),
)


@case(normal(30, 40, dtype=np.float64), normal(6, 8192), normal(9, 512), normal(7, 1000),
      normal(9, 512, dtype=np.float64), device=SMALL_GRID, shows=(FOURS, HALF_A_BLOCK))  # fmt: skip
def of_two_widths(x, *arrays):
    """What warps join takes 4 bytes in one loop and 8 in another."""
    total = jnp.exp(x).sum()
    return tuple(jnp.exp(y).sum(1) / total.astype(y.dtype) for y in arrays)


@case(normal(6, 8192), normal(9, 512), normal(5, 1024), shows=(FOURS, EIGHTS, HALF_A_BLOCK))
def of_records(x, y, z):
    """Indices of the largest, beside sums."""
    total = jnp.exp(x).sum() + jnp.exp(y).sum()
    return jnp.argmax(x, 1) * (total > 0), jnp.argmax(y, 1) * (total > 0), z.sum(1) / total


@case(normal(6, 8192), normal(9, 512), normal(21, 600), normal(5, 1024), shows=(FOURS, EIGHTS))
def of_one_sweep_and_two(x, y, z, w):
    """Rows that are swept once more for each sum, and those that need one sweep."""
    total = jnp.exp(x).sum()
    soft = jax.nn.softmax(y) * 2, jax.nn.softmax(w) * 3
    return *soft, jnp.exp(z).sum(1) / total, z.max(1) - total, x.sum(1) / total


@case(normal(6, 8192), normal(9, 512), normal(300, 40), normal(5, 1024),
      shows=(FOURS, COLUMNS), device=SMALL_GRID)  # fmt: skip
def beside_columns(x, y, z, w):
    """Sums of columns between sums of rows."""
    return *shares(x, y, w), jnp.exp(z).sum(0) / (x.sum() + y.sum())


@case(
    *(normal(70, 1000), normal(1000), normal(1000), normal(70, 1000), normal(9, 512)),
    normal(5, 4096),
    shows=(CARRIED, FOURS),
    device=replace(SMALL_GRID, sm_count=1),
)
def beside_norms(x, g, b, dy, *rows):
    """Sums carried down rows that teams join, beside other rows."""
    return *norm_both_ways(x, g, b, dy), *shares(*rows)


@case(*(normal(*dims) for dims in ((20000,), (512, 30), (7,), (300, 300), (1,), (640,), (1500,))),
      shows=(FOURS, EIGHTS), device=replace(TWO_BLOCKS, sm_count=16))  # fmt: skip
def of_a_clipped_step(*gradients):
    """Arrays of all sizes, scaled by the norm of them all."""
    norm = jnp.sqrt(sum((g * g).sum() for g in gradients))
    return *(jnp.where(norm < 1, g, g / norm) for g in gradients), norm
