"""What large programs cost, stitched and under jax.jit: python -m benchmarks.scaling --json FILE.

Each side of each case runs in a process of its own with caches of its own. The table has seconds
of the first call, of a later one (the median), the process's largest resident memory, and what is
left of it after jax.clear_caches(). The exit status is 1 where ours takes more than a second or
64 MB, and more than three times what jax.jit takes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environment, results_file

SIDES = ("xla", "fusionstitch")
#: The largest share of jax.jit's time or memory, and what is too little to count.
TIMES = 3.0
LEAST = {"first_s": 1.0, "later_s": 1.0, "peak_mb": 64.0, "kept_mb": 64.0}
NAMES = {"first_s": "first call", "later_s": "later", "peak_mb": "memory", "kept_mb": "kept"}
_SHAPES = 160
#: Later calls: this many, or as many as begin within so many seconds.
_LATER = 20
_LATER_S = 5.0

#: A function, and what it is called with, each argument list a shape of its own.
Program = tuple[Callable[..., Any], Sequence[tuple[Any, ...]]]


def chain(ops: int) -> Program:
    """So many ops, each reading the one before."""
    import jax.numpy as jnp

    steps = (lambda x: jnp.sin(x), lambda x: x * 1.01, lambda x: x + 0.1)

    def fun(x: Any) -> Any:
        for i in range(ops):
            x = steps[i % 3](x)
        return x

    return fun, [(_floats(64, 64),)]


def inputs(count: int) -> Program:
    """So many arguments, and a result of each."""
    import jax.numpy as jnp

    return lambda *xs: [jnp.sin(x) * 1.01 + 0.1 for x in xs], [(_floats(16, 8),) * count]


def constant(megabytes: int) -> Program:
    """A closure over an array of that size."""
    import jax.numpy as jnp

    table = _floats(megabytes * 1_000, 250)
    return lambda x: (jnp.sin(x) * table + 1.0).sum(0), [(_floats(250),)]


def shapes(count: int) -> Program:
    """One function called with so many shapes."""
    import jax

    return lambda x: jax.nn.softmax(x * 2.0) + x, [(_floats(8, 16 + n),) for n in range(count)]


def transformer(layers: int) -> Program:
    """The training step of the example at its full size, with so many layers."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import transformer as example
    from common import Random

    draw = Random()
    params = example.init(draw, layers, width=64, length=32, words=256)
    return example.step, [(params, draw.integers(4, 33, high=256))]


def _stitched(x: Any) -> Any:
    """Rows beside columns, which XLA has several kernels for."""
    import jax

    return jax.nn.softmax(x), x.sum(0)


def _floats(*dims: int) -> np.ndarray:
    return np.linspace(-1.0, 1.0, int(np.prod(dims)), dtype=np.float32).reshape(dims)


#: The cases, by name.
CASES: Mapping[str, Callable[[], Program]] = {
    **{f"chain of {n}": lambda n=n: chain(n) for n in (300, 1_000, 3_000, 10_000, 50_000)},
    **{f"{n} inputs": lambda n=n: inputs(n) for n in (300, 1_000, 3_000)},
    **{f"constant of {n} MB": lambda n=n: constant(n) for n in (1, 8, 100, 600)},
    f"{_SHAPES} shapes": lambda: shapes(_SHAPES),
    **{f"transformer of {n} layers": lambda n=n: transformer(n) for n in (4, 36)},
}


def measure(program: Program, jit: Callable[..., Any]) -> dict[str, float]:
    """Seconds and megabytes of a program in this process. `kept_mb` is what is resident at the end
    more than before, after `jax.clear_caches`."""
    import jax

    fun, calls = program
    calls = jax.block_until_ready(jax.device_put(calls))
    # what starts once a process, or is built once an installation: the launcher of kernels
    jax.block_until_ready(jit(_stitched)(_floats(64, 64)))
    before = _resident_mb()
    jitted = jit(fun)
    begun = time.perf_counter()
    for args in calls:
        jax.block_until_ready(jitted(*args))
    found: dict[str, float] = {"first_s": time.perf_counter() - begun}
    later: list[float] = []
    until = time.perf_counter() + _LATER_S
    while not later or (len(later) < _LATER and time.perf_counter() < until):
        for args in calls:
            begun = time.perf_counter()
            jax.block_until_ready(jitted(*args))
            later.append(time.perf_counter() - begun)
    found["later_s"] = statistics.median(later)
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    del jitted, fun, program
    jax.clear_caches()
    gc.collect()
    found["kept_mb"] = _resident_mb() - before
    return found


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def side(case: str, which: str, backend: str, limit_s: float) -> dict[str, Any] | str:
    """What one side measured in a process of its own, or why nothing was."""
    with tempfile.TemporaryDirectory(prefix="fusionstitch-") as cache:
        own = {"FUSIONSTITCH_CACHE_DIR": cache, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        command = [sys.executable, "-m", "benchmarks.scaling", "--worker", which, case]
        try:
            done = subprocess.run(
                [*command, "--backend", backend],
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
                env={**os.environ, **own},
            )
        except subprocess.TimeoutExpired:
            return f"longer than {limit_s:g} s"
    if done.returncode:
        return (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def exceeds(row: Mapping[str, Any]) -> list[str]:
    """What of a row is too much beside jax.jit's. A side that has not ended is too much, if it is
    ours alone."""
    theirs, ours = (row[name] for name in SIDES)
    if isinstance(ours, str):
        return [] if isinstance(theirs, str) else [ours]
    if isinstance(theirs, str):
        return []
    return [
        NAMES[key]
        for key, least in LEAST.items()
        if ours[key] > max(least, TIMES * max(theirs[key], 0.0))
    ]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown: seconds and megabytes, jax.jit's first."""
    heads = [f"{name}: jax | fs" for name in ("first s", "later ms", "peak MB", "kept MB")]
    lines = [f"| case | {' | '.join(heads)} | too much |", "|---|" + "--:|" * 8 + "---|"]
    for row in rows:
        cells = [
            f"{row[name][key] * scale:.{digits}f}" if _ran(row[name]) else "-"
            for key, scale, digits in (
                ("first_s", 1, 2),
                ("later_s", 1e3, 2),
                ("peak_mb", 1, 0),
                ("kept_mb", 1, 0),
            )
            for name in SIDES
        ]
        failed = [f"{name}: {row[name]}" for name in SIDES if not _ran(row[name])]
        said = ", ".join(failed or exceeds(row)) or "no"
        lines.append(f"| {row['case']} | {' | '.join(cells)} | {said} |")
    return "\n".join(lines)


def _ran(found: Any) -> bool:
    return not isinstance(found, str)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument(
        "cases",
        nargs="*",
        help="such as 'constant' or 'chain of 300': all cases whose names begin so; all if none",
    )
    parser.add_argument("--backend", default="auto", choices=("auto", "cuda", "emulate"))
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a side of a case")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--worker", choices=SIDES, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.worker:
        import jax

        import fusionstitch as fs

        options = fs.Options(backend=asked.backend)
        jit = jax.jit if asked.worker == "xla" else lambda fun: fs.jit(fun, options=options)
        print(json.dumps(measure(CASES[asked.cases[0]](), jit)))
        return 0
    chosen = [
        name
        for name in CASES
        if not asked.cases or any(name.startswith(part) for part in asked.cases)
    ]
    if not chosen:
        parser.error(f"no case has such a name: {', '.join(CASES)}")
    # what takes longest starts first
    waiting = [(name, which) for name in reversed(chosen) for which in reversed(SIDES)]
    with ThreadPoolExecutor(asked.jobs) as pool:
        found = dict(
            zip(
                waiting,
                pool.map(lambda one: side(*one, asked.backend, asked.limit), waiting),
                strict=True,
            )
        )
    rows = [{"case": name, **{which: found[name, which] for which in SIDES}} for name in chosen]
    print(table(rows))
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        data = {"environment": environment.describe(), "rows": rows}
        results_file.write(asked.json, data)
    return int(any(exceeds(row) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
