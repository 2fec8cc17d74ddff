"""What XLA's scatters take by how many updates meet in an element.

    python -m benchmarks.scatters --json FILE [--commit C]      on a GPU

Each is `tanh(zeros.at[places].add(exp(x)))` with random places, so often in one program, each
waiting for the one before, that a call of it costs nothing; beside it what
`costmodel/xla_kernels.py` says.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results_file
from benchmarks.environment import describe

#: Updates and places.
SIZES = (
    *((1 << 16, places) for places in (10, 64, 256, 4096, 1 << 16)),
    *((1_000_000, places) for places in (16, 256, 4096, 1 << 16, 1_000_000)),
)
#: Scatters of a program, calls between two readings of the clock, and readings.
TIMES, CALLS, READINGS = 20, 50, 7


def scattered_us(updates: int, places: int) -> float:
    """Microseconds of one, as XLA compiles it."""
    import jax
    import jax.numpy as jnp

    draw = np.random.default_rng(0)
    x = jnp.asarray(draw.standard_normal(updates), jnp.float32)
    at = jnp.asarray(draw.integers(0, places, updates), jnp.int32)

    def many(x: Any, at: Any) -> Any:
        last = jnp.float32(0)
        for _ in range(TIMES):
            found = jnp.zeros(places).at[at].add(jnp.exp(x + last * 1e-9))
            last = jnp.tanh(found).sum()
        return last

    compiled = jax.jit(many).lower(x, at).compile()
    jax.block_until_ready(compiled(x, at))
    least = float("inf")
    for _ in range(READINGS):
        begun = time.perf_counter()
        for _ in range(CALLS):
            last = compiled(x, at)
        jax.block_until_ready(last)
        least = min(least, (time.perf_counter() - begun) / CALLS)
    return least / TIMES * 1e6


def main() -> None:
    from fusionstitch.compiler import builders
    from fusionstitch.costmodel.xla_kernels import contended_us
    from fusionstitch.options import Options

    parser = argparse.ArgumentParser(prog="python -m benchmarks.scatters", description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--commit", help="the commit, where git is not at hand")
    asked = parser.parse_args()
    rows, profile = [], builders.profile(Options(backend="cuda"))
    for updates, places in SIZES:
        us, modelled = scattered_us(updates, places), contended_us(updates, places, profile)
        rows.append({"updates": updates, "places": places, "us": us})
        print(f"{updates:9,} into {places:9,}: {us:7.2f} us, {modelled:7.2f} of it to meet")
    content = {
        "command": f"python -m benchmarks.scatters {' '.join(sys.argv[1:])}",
        "environment": describe(asked.commit),
        "rows": rows,
    }
    results_file.write(asked.json, content)


if __name__ == "__main__":
    main()
