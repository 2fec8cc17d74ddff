"""Seconds to compile a workload when all caches are filled: python -m benchmarks.warm TARGET.

A process of its own in the environment of the one that filled XLA's persistent cache and
fusionstitch's. The last line it prints is JSON.
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.workloads import find


def main(target: str) -> None:
    import jax

    import fusionstitch as fs
    from fusionstitch.commands.targets import load

    [workload] = find([target])
    fun, args = load(workload.path)
    jax.jit(lambda x: x + 1)(1)
    seconds = {}
    for name, jit in (("xla", jax.jit), ("fusionstitch", fs.jit)):
        lowered = jit(fun, **workload.jit_keywords).lower(*args)
        start = time.perf_counter()
        lowered.compile()
        seconds[name] = round(time.perf_counter() - start, 3)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
