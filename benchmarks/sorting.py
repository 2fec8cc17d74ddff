"""Rows in order: XLA's sorts beside kernels that sort and do what is around.

    python -m benchmarks.sorting --json FILE [--commit C]      on a GPU, in two minutes

Microseconds of the device under `jax.jit` and `fs.jit`, taken in turns; the floor reads the
arguments once and writes the results. Results have to be equal bit by bit: nothing here rounds.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results_file
from benchmarks.environment import describe
from benchmarks.measuring import in_turns, summary
from benchmarks.paired import ratios

RUNS, ROUNDS, SECONDS = 8, 20, 0.5


@dataclass(frozen=True)
class Row:
    """One program: microseconds of both sides and of the floor."""

    program: str
    shape: tuple[int, ...]
    xla: dict[str, float]
    ours: dict[str, float]
    ratio: dict[str, float]
    floor: float
    equal: bool
    stitched: int
    first_call_s: float


def programs() -> dict[str, tuple[Callable[..., Any], tuple[int, ...], Any]]:
    """By name, a function, the shape of its argument, and its type."""
    import jax.numpy as jnp
    from jax import lax

    def order(axis: int) -> Callable[..., Any]:
        return functools.partial(jnp.argsort, axis=axis)

    def in_order(axis: int) -> Callable[..., Any]:
        return functools.partial(jnp.sort, axis=axis)

    def best(k: int) -> Callable[..., Any]:
        return lambda x: lax.top_k(x, k)

    return {
        "argsort of 12": (order(1), (262_144, 12), jnp.float32),
        "argsort of 32": (order(1), (206_352, 32), jnp.float32),
        "argsort of 100": (order(1), (65_536, 100), jnp.float32),
        "argsort of 512": (order(1), (8192, 512), jnp.float32),
        "argsort of 1,000": (order(1), (4096, 1000), jnp.float32),
        "argsort of 4,096": (order(1), (512, 4096), jnp.float32),
        "argsort of 30,000 along axis 0": (order(0), (30_000, 256), jnp.float32),
        "sort of 64": (in_order(1), (65_536, 64), jnp.float32),
        "sort of 512, bf16": (in_order(1), (8192, 512), jnp.bfloat16),
        "sort of 4,096": (in_order(1), (512, 4096), jnp.float32),
        "sort of 119,760": (in_order(1), (51, 119_760), jnp.float32),
        "sort of 2 ** 20": (in_order(1), (4, 2**20), jnp.float32),
        "median of 99": (lambda x: jnp.median(x, 1), (40_000, 99), jnp.float32),
        "largest 2 of 8": (best(2), (1_000_000, 8), jnp.float32),
        "largest 5 of 1,000": (best(5), (8192, 1000), jnp.float32),
        "largest 8 of 4,096": (best(8), (512, 4096), jnp.float32),
        "largest 50 of 128,256": (best(50), (64, 128_256), jnp.float32),
    }


def measured(name: str, fun: Callable[..., Any], shape: tuple[int, ...], dtype: Any) -> Row:
    """A program under both."""
    import jax

    import fusionstitch as fs
    from fusionstitch.measure.spans import span_us

    x = jax.device_put(np.random.default_rng(0).standard_normal(shape).astype(dtype))
    theirs, ours = jax.jit(fun), fs.jit(fun, options=fs.Options(trial="off"))
    since = time.perf_counter()
    got = jax.tree.leaves(jax.block_until_ready(ours(x)))
    first = time.perf_counter() - since
    wanted = jax.tree.leaves(theirs(x))
    equal = all(bool((a == b).all()) for a, b in zip(got, wanted, strict=True))
    takers = {
        "xla": lambda: span_us(lambda: theirs(x), RUNS),
        "ours": lambda: span_us(lambda: ours(x), RUNS),
    }
    times = in_turns(takers, ROUNDS, SECONDS)
    read = x.nbytes + sum(leaf.nbytes for leaf in wanted)
    stitched = ours.lower(x).compile().stitched
    return Row(
        program=name,
        shape=shape,
        xla=summary(times["xla"]),
        ours=summary(times["ours"]),
        ratio=ratios(times["xla"], times["ours"]).data(),
        floor=round(1 + read / 4.1e6, 1),
        equal=equal,
        stitched=len(stitched.stitches) if stitched else 0,
        first_call_s=round(first, 1),
    )


def main() -> None:
    """Measures, prints and writes after each program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sorting", description=__doc__)
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    parser.add_argument("--commit", default="", help="the commit, where the checkout has no git")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, program in programs().items():
        row = measured(name, *program)
        rows.append(asdict(row))
        xla, ours = row.xla["median"], row.ours["median"]
        print(
            f"{name:32} {xla:9.1f} {ours:9.1f} {row.ratio['median']:6.2f}, floor {row.floor:7.1f}, "
            f"{row.stitched} stitched, {row.first_call_s} s{'' if row.equal else ', NOT EQUAL'}",
            flush=True,
        )
        content = {
            "command": f"python -m benchmarks.sorting {' '.join(sys.argv[1:])}",
            "environment": describe(given.commit),
            "rows": rows,
        }
        results_file.write(given.json, content)


if __name__ == "__main__":
    main()
