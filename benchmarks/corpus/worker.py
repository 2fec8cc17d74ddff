"""One program under jax.jit and fs.jit: python -m benchmarks.corpus.worker NAME FOLDER --seed S.

It writes FOLDER/row.json after every step; `benchmarks.corpus` starts it and collects the rows.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fcntl
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus import public
from benchmarks.corpus.table import Program, find
from benchmarks.measuring import Contestant, in_turns, summary, wall_times
from benchmarks.paired import ratios
from benchmarks.row import Row
from benchmarks.workloads import Workload

XLA, OURS, AGAIN = "xla", "fusionstitch", "xla again"
#: Calls in flight per time taken: at most so many, as many as about fit into the seconds.
IN_FLIGHT, ROUND_S = 25, 0.01
#: Runs between two readings of the GPU's clock.
SPAN_RUNS = 8
#: Calls whose results are compared bit by bit.
REPEATS = 100
#: Runs whose kernels are listed, and how many of a side's kernels a row names.
LISTED_RUNS, LISTED = 4, 16
#: Arguments of more bytes are run in float64 on the GPU, alone: on the host that takes minutes.
MOST_CHECKED = 64_000_000


@dataclass(frozen=True)
class Asked:
    """What of a program is measured: at least `rounds` in `seconds`; `pair` adds a second jax.jit,
    `repeat` compares the results of many calls, `kernels` lists what the device runs, `small` takes
    the size of tests. Who holds the lock in `alone` measures, others prepare or check meanwhile."""

    seed: int
    times: int
    rounds: int = 30
    seconds: float = 2.0
    pair: bool = False
    repeat: bool = False
    kernels: bool = False
    small: bool = False
    alone: Path | None = None


def work(program: Program, row: Row, asked: Asked) -> None:
    """Measures a program and puts what it finds into the row, step by step."""
    row.step("import")
    import jax
    import jax.numpy as jnp

    import fusionstitch as fs

    row.step("arguments")
    host = program.args()
    args = jax.block_until_ready(jax.device_put(host))
    shapes = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(args)]
    row.put(argument_bytes=program.nbytes, arguments=shapes)
    # what a process compiles first pays for XLA's start, and a machine once for the launcher
    start = jnp.ones((64, 64))
    for jit in (jax.jit, fs.jit):
        jax.block_until_ready(jit(lambda x: x / jnp.exp(x).sum(1, keepdims=True))(start))

    runs: dict[str, Callable[..., Any]] = {XLA: jax.jit(program.fun), OURS: fs.jit(program.fun)}
    if asked.pair:  # a function of its own: JAX would find the executable of the first
        runs[AGAIN] = jax.jit(lambda *given: program.fun(*given))
    row.step("waiting")
    large = program.nbytes > MOST_CHECKED
    with alone(asked.alone):
        results = first_calls(runs, args, row)
        measure(runs, args, program, row, asked)
        if large:
            row.step("check")
            row.put(check=checked(program, host, results))
    row.step("plan")
    row.put(**planned(program, args))
    if not large:
        row.step("check")
        row.put(check=checked(program, host, results))


@contextlib.contextmanager
def alone(path: Path | None) -> Iterator[None]:
    """Holds the lock in `path`, if there is one, once no other process does."""
    if path is None:
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def first_calls(
    runs: Mapping[str, Callable[..., Any]], args: Any, row: Row
) -> dict[str, list[Any]]:
    """The results of a first call of each side, on the host."""
    import jax

    from fusionstitch import accuracy

    results, first, peaks = {}, {}, {}
    for name, run in runs.items():
        row.step(f"first call {name}")
        since = time.perf_counter()
        out = jax.block_until_ready(run(*args))
        first[name] = round(time.perf_counter() - since, 3)
        results[name] = [accuracy.host(leaf) for leaf in jax.tree.leaves(out)]
        peaks[name] = peak_bytes()
        del out
    row.put(first_call_s=first, peak_bytes=peaks, serves=serving(runs[OURS]))
    pairs = zip(results[OURS], results[XLA], strict=True)
    row.put(apart=[accuracy.relative_error(ours, theirs) for ours, theirs in pairs])
    return results


def serving(jitted: Any) -> list[str]:
    """The kinds of executables that serve a jitted function, after trials; none where it was left
    to JAX without one."""
    served = getattr(jitted._fusionstitch.execution, "served", None)
    return sorted(getattr(served, "kinds", ()))


def measure(
    runs: Mapping[str, Callable[..., Any]], args: Any, program: Program, row: Row, asked: Asked
) -> None:
    """Wall times and spans of all sides in turns, and whether results repeat."""
    import jax

    row.step("wall")
    sides = {name: Contestant(run, args, Workload(program.name)) for name, run in runs.items()}
    in_flight = calls_in_flight(sides)
    times = wall_times(sides, asked.rounds, asked.seconds, in_flight)
    row.put(in_flight=in_flight, **compared("wall", times))
    row.step("span")
    if jax.default_backend() == "gpu":
        row.put(**compared("span", spans(sides, asked)))
    if asked.repeat:
        row.step("repeats")
        row.put(repeats={name: repeats(runs[name], args) for name in (XLA, OURS)})
    if asked.kernels:
        row.step("kernels")
        row.put(kernels={name: kernels(sides[name]) for name in (XLA, OURS)})


def kernels(side: Contestant) -> list[list[Any]]:
    """The kernels, copies and memsets of one run by name, the longest first: how many there are
    and their microseconds together."""
    import jax

    from fusionstitch.measure.activity import recorded

    def run() -> None:
        jax.block_until_ready([side.run(*side.args) for _ in range(LISTED_RUNS)])

    times: dict[str, list[float]] = collections.defaultdict(list)
    for name, us in recorded(run):
        times[name].append(us / LISTED_RUNS)
    longest = sorted(times, key=lambda name: -sum(times[name]))[:LISTED]
    return [[n, len(times[n]) / LISTED_RUNS, round(sum(times[n]), 2)] for n in longest]


def repeats(run: Callable[..., Any], args: Any) -> bool:
    """Whether many calls give the same bits."""
    import jax
    import jax.numpy as jnp

    def bits(leaf: Any) -> list[Any]:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        parts = (leaf.real, leaf.imag) if jnp.iscomplexobj(leaf) else (leaf,)
        floats = [jnp.issubdtype(part.dtype, jnp.floating) for part in parts]
        return [
            jax.lax.bitcast_convert_type(part, f"uint{8 * part.dtype.itemsize}")
            if is_float
            else part
            for part, is_float in zip(parts, floats, strict=True)
        ]

    @jax.jit
    def are_same(same: Any, a: Any, b: Any) -> Any:
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            for of_x, of_y in zip(bits(x), bits(y), strict=True):
                same &= (of_x == of_y).all()
        return same

    first, same = run(*args), jnp.bool_(True)
    for _ in range(REPEATS):
        same = are_same(same, first, run(*args))
    return bool(same)


def peak_bytes() -> int | None:
    """The most that was allocated on the device until now; None where it does not say."""
    import jax

    found = jax.local_devices()[0].memory_stats()
    return found.get("peak_bytes_in_use") if found else None


def calls_in_flight(sides: Mapping[str, Contestant]) -> int:
    """The same number for all sides, by the time of a warm call of the slowest."""
    slowest = 0.0
    for side in sides.values():
        side.calls(1)
        since = time.perf_counter()
        side.calls(1)
        slowest = max(slowest, time.perf_counter() - since)
    return max(1, min(IN_FLIGHT, int(ROUND_S / slowest)))


def spans(sides: Mapping[str, Contestant], asked: Asked) -> dict[str, list[float]]:
    """Microseconds that the device is at one run, one number per side and round."""
    from fusionstitch.measure.spans import span_us

    takers = {
        name: lambda side=side: span_us(lambda: side.run(*side.args), SPAN_RUNS)
        for name, side in sides.items()
    }
    return in_turns(takers, asked.rounds, asked.seconds)


def compared(what: str, times: Mapping[str, list[float]]) -> dict[str, Any]:
    """Times in microseconds, the ratio of XLA over ours, and of XLA over itself where measured."""
    found: dict[str, Any] = {
        f"{what}_us": {name: summary(values) for name, values in times.items()},
        f"{what}_ratio": ratios(times[XLA], times[OURS]).data(),
    }
    if AGAIN in times:
        found[f"{what}_same"] = ratios(times[XLA], times[AGAIN]).data()
    return found


def planned(program: Program, args: Any) -> dict[str, Any]:
    """What was planned, how many candidates each rule had that are not in the plan, and the
    microseconds that a run cannot go below. Another process may be on the GPU: XLA tunes nothing,
    and what patterns take is recalled."""
    import jax

    import fusionstitch as fs
    from benchmarks import modelled

    untuned = {"xla_gpu_autotune_level": 0} if jax.default_backend() == "gpu" else {}
    lowered: Any = fs.jit(program.fun, compiler_options=untuned).lower(*args)
    module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    compiled = lowered.compile()
    found = compiled.stitched
    rejected = collections.Counter(one.rule for one in found.rejected) if found else {}
    return {
        "stitched": modelled.stitched(compiled),
        "rejected": dict(rejected),
        "floor_us": modelled.counts(module, found)["floor_us"],
    }


def checked(program: Program, host: Any, results: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Errors of all outputs against a run in float64, or XLA's where that is out of reach: see
    `benchmarks.checking`."""
    import jax

    from benchmarks.checking import check_rounded, wanted_by

    xla = results[XLA]
    if program.nbytes > MOST_CHECKED:
        return check_rounded(results[OURS], xla, *wanted_by(program.fun, host, None, xla))
    lowered: Any = jax.jit(program.fun, keep_unused=True).lower(*host)
    module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        wanted = wanted_by(program.fun, host, module, xla)
    return check_rounded(results[OURS], xla, *wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--alone", type=Path)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--checkouts", type=Path)
    for flag in ("pair", "repeat", "kernels", "small"):
        parser.add_argument(f"--{flag}", action="store_true")
    given = vars(parser.parse_args())
    [template] = find([given.pop("name")], among=public.templates(given.pop("checkouts")))
    row = Row(template.name, given.pop("folder"))
    asked = Asked(**given)
    row.put(kind=template.kind, seed=asked.seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work(template.program(asked.seed, asked.small, asked.times), row, asked)
    row.put(warnings=sorted({f"{w.category.__name__}: {w.message}"[:300] for w in caught}))
    row.step("done")
    sys.stdout.flush()
    os._exit(0)  # what is measured is written: a slow or failing shutdown is not a result


if __name__ == "__main__":
    main()
