"""What a call costs more under fs.jit than under jax.jit where nothing is stitched.

    python -m benchmarks.call_overhead [--json FILE]

Functions of a few arguments in which no pattern wins are called in turns, 100 calls in flight, many
rounds; beside them two equal jax.jit, which say what the difference of equals is.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import results_file
from benchmarks.environment import describe

COUNTS = (1, 3, 8)
ROUNDS, CALLS = 40, 100


def added(*arrays: Any) -> Any:
    return sum(arrays[1:], arrays[0])


def call_us(function: Callable[..., Any], arrays: Sequence[Any]) -> float:
    import jax

    began = time.perf_counter()
    for _ in range(CALLS):
        result = function(*arrays)
    jax.block_until_ready(result)
    return (time.perf_counter() - began) / CALLS * 1e6


def measured(count: int) -> dict[str, Any]:
    """Microseconds of a call with so many arguments: medians."""
    import jax
    import jax.numpy as jnp

    import fusionstitch as fs

    arrays = [jnp.full((64, 64), float(n)) for n in range(count)]
    sides: dict[str, Callable[..., Any]] = {
        "jax": jax.jit(lambda *given: added(*given)),
        "again": jax.jit(lambda *given: added(*given)),
        "fusionstitch": fs.jit(added),
    }
    for function in sides.values():
        call_us(function, arrays)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for round_ in range(ROUNDS):
        names = list(sides)[:: 1 if round_ % 2 else -1]
        for name in names:
            times[name].append(call_us(sides[name], arrays))
    medians = {name: round(statistics.median(found), 2) for name, found in times.items()}
    more = [a - b for a, b in zip(times["fusionstitch"], times["jax"], strict=True)]
    same = [a - b for a, b in zip(times["again"], times["jax"], strict=True)]
    return {
        "arguments": count,
        **medians,
        "more_us": round(statistics.median(more), 2),
        "equal_us": round(statistics.median(same), 2),
    }


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    asked = parser.parse_args()
    rows = [measured(count) for count in COUNTS]
    for row in rows:
        print(row)
    if asked.json:
        results_file.write(asked.json, {"environment": describe(), "rows": rows})


if __name__ == "__main__":
    main()
