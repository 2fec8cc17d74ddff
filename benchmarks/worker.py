"""One workload in a process of its own: python -m benchmarks.worker TARGET FOLDER [options].

It compiles and checks, waits for a line on its input so that nothing else runs meanwhile, then
measures. FOLDER/row.json is rewritten after every step: what ends the process costs only the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.workloads import Workload, find

#: Op-by-op execution is counted by the model above this many kernels: it takes too long to trace.
MAX_UNFUSED = 5000
PROFILED_CALLS = 4


class Row:
    """What is known of the workload so far, on disk after every step."""

    def __init__(self, target: str, folder: Path):
        self.path = folder / "row.json"
        self.data: dict[str, Any] = {"target": target, "step": "start", "seconds": {}}
        self._since = time.perf_counter()
        self._write()

    def step(self, name: str) -> None:
        """Begins a step; the one before has ended."""
        now = time.perf_counter()
        self.data["seconds"][self.data["step"]] = round(now - self._since, 2)
        self.data["step"], self._since = name, now
        self._write()

    def put(self, **values: Any) -> None:
        self.data.update(values)

    def _write(self) -> None:
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.data))
        temporary.replace(self.path)


def work(workload: Workload, row: Row, rounds: int, unfused: bool) -> None:
    row.step("import")
    import jax

    import fusionstitch as fs
    from benchmarks.checking import check
    from benchmarks.measuring import Contestant, summary, wall_times
    from benchmarks.profiling import profile
    from fusionstitch import accuracy, counting
    from fusionstitch.targets import load

    row.step("arguments")
    fun, args = load(workload.path)
    jax.block_until_ready(args)
    donated: dict[str, Any] = {"donate_argnums": 0} if workload.chain else {}

    row.step("compile xla")
    lowered = jax.jit(fun, **donated).lower(*args)
    start = time.perf_counter()
    xla = lowered.compile()
    compile_s = {"xla": time.perf_counter() - start}

    row.step("compile fusionstitch")
    ours_lowered = fs.jit(fun, **donated).lower(*args)
    start = time.perf_counter()
    ours = ours_lowered.compile()
    compile_s["fusionstitch"] = time.perf_counter() - start
    row.put(compile_s=_rounded(compile_s), stitched=_stitched(ours))

    row.step("run")
    xla_side, our_side = (Contestant(run, args, workload) for run in (xla, ours))
    results = [
        [accuracy.host(leaf) for leaf in jax.tree.leaves(side.call())]
        for side in (our_side, xla_side)
    ]
    row.step("check")
    plain: Any = jax.jit(fun, keep_unused=True).lower(*args).compiler_ir("hlo")
    module = plain.as_serialized_hlo_module_proto()
    row.put(check=check(fun, args, module, *results))
    modelled = counting.unfused(counting.entry(module)).kernels
    row.put(unfused_modelled=modelled)
    del results

    op_by_op = Contestant(fun, args, workload)
    unfused = unfused and modelled <= MAX_UNFUSED
    if unfused:
        row.step("op by op")
        with jax.disable_jit():
            op_by_op.calls(1)

    row.step("waiting")
    sys.stdin.readline()

    row.step("time")
    sides = {"xla": xla_side, "fusionstitch": our_side}
    times = wall_times(sides, rounds)
    row.put(wall_us={name: summary(values) for name, values in times.items()})

    profiles: dict[str, Any] = {}
    for name, side in sides.items():
        row.step(f"profile {name}")
        profiles[name] = profile(side.calls, PROFILED_CALLS)
        row.put(profile=profiles)
    if unfused and profiles["xla"] is not None:
        row.step("profile unfused")
        with jax.disable_jit():
            profiles["unfused"] = profile(op_by_op.calls, 1)
    row.step("done")


def _stitched(ours: Any) -> dict[str, Any]:
    """What fusionstitch did with the program."""
    found = ours.stitched
    if found is None:
        return {"patterns": 0, "kernels": [], "passes_s": {}, "fallbacks": []}
    return {
        "patterns": len(found.stitches),
        "kernels": [
            {"name": k.name, "grid": k.grid, "block": k.block, "shared": k.shared_bytes}
            for k in found.kernels
        ],
        "passes_s": _rounded(found.timings),
        "fallbacks": [{"ops": len(f.ops), "reason": f.reason[:300]} for f in found.fallbacks],
    }


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-unfused", dest="unfused", action="store_false")
    options = parser.parse_args()
    [workload] = find([options.target])
    row = Row(workload.target, options.folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            work(workload, row, options.rounds, options.unfused)
        finally:
            messages = sorted({f"{w.category.__name__}: {w.message}"[:300] for w in caught})
            row.put(warnings=messages)
            row.step(row.data["step"])
    sys.stdout.flush()
    os._exit(0)  # what is measured is written: a slow or failing shutdown is not a result


if __name__ == "__main__":
    main()
