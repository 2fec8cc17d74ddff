"""What `benchmarks.guard` measures, in a process that takes programs one after the other and prints
a line of JSON for each: python -m benchmarks.guard_worker first|second|dry NAME..."""

from __future__ import annotations

import functools
import json
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.unseen.inputs import Program
from benchmarks.unseen.table import PROGRAMS

#: Scorers beside jax.jit, the one that the bars are for first.
SCORERS = ("guarded", "model")
#: Runs of each side: the best one counts. Rounds of a run, and about so many seconds in one.
RUNS, ROUNDS, ROUND_S = 2, 7, 0.006
#: Wall times scatter more: XLA updates its command buffers where a call's arrays are not where the
#: last one's were, which is up to the room it finds. So each run finds other arrays there, so many
#: of up to so many elements.
WALL_RUNS, BALLAST, BALLAST_SIZE = 6, 8, 1 << 20
PROFILED_CALLS = 3
#: Between what is profiled of the sides nothing runs for so long, which tells them apart.
PAUSE_S, GAP_NS = 0.03, 15_000_000


class InsidePass:
    """Seconds that the pass takes of XLA's compiles."""

    def __init__(self) -> None:
        from fusionstitch.execution import cuda as execution_cuda

        self.seconds = 0.0
        self._plain = execution_cuda._inside_xla
        execution_cuda._inside_xla = self

    def __call__(self, module: bytes, token: str) -> bytes | None:
        begun = time.perf_counter()
        try:
            return self._plain(module, token)
        finally:
            self.seconds += time.perf_counter() - begun

    def taken(self) -> float:
        """Since the last time it was asked."""
        found, self.seconds = self.seconds, 0.0
        return found


def compiled(program: Program, args: Any, scorer: str | None) -> tuple[Any, float]:
    """The program and the seconds of its compile: under jax.jit where there is no scorer."""
    import jax

    import fusionstitch as fs

    jit = jax.jit if scorer is None else fs.jit(options=fs.Options(scorer=scorer))
    lowered = jit(program[0]).lower(*args)
    begun = time.perf_counter()
    found = lowered.compile()
    return found, time.perf_counter() - begun


def first(program: Program, inside: InsidePass) -> dict[str, Any]:
    """Compiles with caches that do not know the program, checks results, takes times."""
    import jax

    args = jax.block_until_ready(jax.device_put(program[1]))
    run, seconds = compiled(program, args, None)
    sides: dict[str, Any] = {"xla": run}
    row: dict[str, Any] = {"xla_s": seconds}
    for scorer in SCORERS:
        inside.taken()
        sides[scorer], row[f"{scorer}_s"] = compiled(program, args, scorer)
        row[f"{scorer}_pass_s"] = inside.taken()
        row[scorer] = told(sides[scorer])
    row["check"] = checked(program, sides, args)
    calls = {name: one_after_the_other(side, args) for name, side in sides.items()}
    row["wall_us"] = wall(calls)
    row["gpu_us"] = on_the_gpu(calls)
    return row


def second(program: Program, inside: InsidePass) -> dict[str, Any]:
    """Compiles in a process whose cache knows the program."""
    import jax

    args = jax.block_until_ready(jax.device_put(program[1]))
    _, xla = compiled(program, args, None)
    inside.taken()
    _, ours = compiled(program, args, SCORERS[0])
    return {"xla_s": xla, "guarded_s": ours, "guarded_pass_s": inside.taken()}


def told(side: Any) -> dict[str, Any]:
    """What a plan holds, and what it rests on."""
    found = side.stitched
    if found is None:
        return {"patterns": 0, "kernels": 0, "measured": 0, "timings": {}, "fallbacks": []}
    return {
        "patterns": len(found.stitches),
        "kernels": len(found.kernels),
        "measured": len(found.evidence.comparisons),
        "whole": found.evidence.whole,
        "timings": {name: round(seconds, 3) for name, seconds in found.timings.items()},
        "evidence": [[one.ours_us, one.xla_us] for one in found.evidence.comparisons.values()],
        "fallbacks": [one.reason for one in found.fallbacks],
    }


def checked(program: Program, sides: Mapping[str, Any], args: Any) -> dict[str, Any]:
    """The largest relative L2 difference of an output of ours from XLA's, and the outputs that are
    `wrong`: further from a float64 run than they may be (`benchmarks.checking`). That run is made
    only where a difference is larger than the usual error of its type.

    For integers that a program rounds to see `check_rounded`.
    """
    import jax

    from benchmarks.checking import check_rounded
    from fusionstitch import accuracy

    results = {
        name: [accuracy.host(leaf) for leaf in jax.tree.leaves(side(*args))]
        for name, side in sides.items()
    }
    xla = results.pop("xla")
    wanted = functools.cache(lambda: _wanted(program, args, xla))
    found: dict[str, Any] = {}
    for name, ours in results.items():
        apart = [float(accuracy.relative_error(a, b)) for a, b in zip(ours, xla, strict=True)]
        found[name] = {"difference": max(apart, default=0.0), "wrong": []}
        if any(off > accuracy.limit(one.dtype, 0.0) for off, one in zip(apart, ours, strict=True)):
            found[name] |= check_rounded(ours, xla, *wanted())
    return found


def _wanted(
    program: Program, args: Any, xla: Sequence[np.ndarray]
) -> tuple[Sequence[np.ndarray], str]:
    import jax

    from benchmarks.checking import wanted_by

    fun = program[0]
    lowered: Any = jax.jit(fun, keep_unused=True).lower(*args).compiler_ir("hlo")
    return wanted_by(fun, args, lowered.as_serialized_hlo_module_proto(), xla)


def one_after_the_other(side: Any, args: Any) -> Callable[[int], None]:
    import jax

    def run(count: int) -> None:
        for _ in range(count):
            result = side(*args)
        jax.block_until_ready(result)

    return run


def wall(calls: Mapping[str, Callable[[int], None]]) -> dict[str, float]:
    """Microseconds of a call, others in flight: the median of a run, of the best run."""
    import jax
    import jax.numpy as jnp

    counts = {}
    for name, run in calls.items():
        run(3)
        begun = time.perf_counter()
        run(3)
        counts[name] = max(3, min(200, int(3 * ROUND_S / (time.perf_counter() - begun))))
    best = dict.fromkeys(calls, float("inf"))
    random = np.random.default_rng(0)
    for _ in range(WALL_RUNS):
        sizes = random.integers(1, BALLAST_SIZE, BALLAST)
        ballast = jax.block_until_ready([jnp.zeros(size, jnp.int8) for size in sizes])
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(ROUNDS):
            names = list(calls)
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                begun = time.perf_counter()
                calls[name](counts[name])
                times[name].append((time.perf_counter() - begun) / counts[name] * 1e6)
        for name, taken in times.items():
            best[name] = min(best[name], statistics.median(taken))
        del ballast
    return best


def on_the_gpu(calls: Mapping[str, Callable[[int], None]]) -> dict[str, float] | None:
    """Microseconds of kernels and copies of a call, by one session of the profiler for all sides:
    the better run."""
    import jax

    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = 0
    options.python_tracer_level = 0
    options.enable_hlo_proto = False
    order = list(calls) * RUNS
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            for name in order:
                time.sleep(PAUSE_S)
                calls[name](PROFILED_CALLS)
        [path] = Path(folder).glob("**/*.xplane.pb")
        spans = device_events(jax.profiler.ProfileData.from_file(str(path)))
    runs = runs_of(spans)
    if len(runs) != len(order):
        return None
    best = dict.fromkeys(calls, float("inf"))
    for name, spent in zip(order, runs, strict=True):
        best[name] = min(best[name], spent / PROFILED_CALLS / 1e3)
    return best


def device_events(data: Any) -> list[tuple[float, float]]:
    """(start, duration) in nanoseconds of what ran on the GPU, uploads and downloads left out."""
    from benchmarks.profiling import _DEVICE, _STREAM, _TRANSFER

    return [
        (event.start_ns, event.duration_ns)
        for plane in data.planes
        if _DEVICE.match(plane.name)
        for line in plane.lines
        if _STREAM.match(line.name)
        for event in line.events
        if not _TRANSFER.match(event.name)
    ]


def runs_of(spans: Sequence[tuple[float, float]]) -> list[float]:
    """The summed durations of each run: between runs nothing happened for a while."""
    found: list[float] = []
    until = float("-inf")
    for start, duration in sorted(spans):
        if start - until > GAP_NS:
            found.append(0.0)
        found[-1] += duration
        until = max(until, start + duration)
    return found


def dry(program: Program) -> dict[str, Any]:
    """Without a GPU: whether it runs, and what the model would stitch for an H200."""
    import jax

    from fusionstitch.compiler import core
    from fusionstitch.costmodel.devices import device
    from fusionstitch.options import Options

    fun, args = program
    results = jax.tree.leaves(jax.jit(fun)(*args))
    finite = all(np.isfinite(np.asarray(x, np.complex128)).all() for x in results)
    traced = jax.jit(fun).trace(*args)
    ir: Any = traced.lower(lowering_platforms=("cuda",)).compiler_ir("hlo")
    begun = time.perf_counter()
    options = Options(scorer="model")
    found = core.stitch(ir.as_serialized_hlo_module_proto(), options, device("h200"), None)
    return {
        "finite": bool(finite),
        "patterns": len(found.stitches),
        "fallbacks": [one.reason for one in found.fallbacks],
        "plan_s": time.perf_counter() - begun,
    }


def warm_up() -> None:
    """What a process loads once is no program's cost."""
    import jax
    import jax.numpy as jnp

    import fusionstitch as fs

    def fun(x: Any) -> Any:
        s = jax.nn.softmax(x)
        return s * (s * x).sum(0)

    for options in (fs.Options(scorer="measured"), fs.Options(scorer="model")):
        jax.block_until_ready(fs.jit(fun, options=options)(jnp.ones((1024, 400))))


def main(what: str, *names: str) -> None:
    if what != "dry":
        inside = InsidePass()
        warm_up()
    for name in names:
        print(json.dumps({"begun": name}), flush=True)
        try:
            if what == "dry":
                row = dry(PROGRAMS[name]())
            else:
                row = (first if what == "first" else second)(PROGRAMS[name](), inside)
        except Exception as error:  # a row says so, and the others are measured
            traceback.print_exc()
            row = {"failure": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps({"name": name, **row}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
