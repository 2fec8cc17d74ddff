"""What starting costs beside jax.jit: python -m benchmarks.first_call --json FILE.

Each start is a process of its own: seconds of the imports and of the first call, whose arguments
are on the device before, because starting a GPU takes seconds on both sides. The first call of ours
is measured with an empty cache and with the cache that the one before left; of an empty one, what
compiling kernels took (NVRTC, the host compiler) is told apart, and what the guard took, which
compiles kernels to measure them: that counts. A program with nothing to stitch and one with a small
pattern; JAX's own persistent cache is off. The exit status is 1 where a bar does not hold. A
checkout has the launcher of kernels where it is installed (`pip install --editable .`): elsewhere
it is compiled with an empty cache, and counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import environment, results_file

#: What a start may cost more than jax.jit's, by the state of the cache.
BARS_S = {"full": 0.3, "empty": 0.6}
#: An installed package has its bytecode beside it, and nothing of JAX is kept between processes.
_LEFT_OUT = ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")


def nothing(x: Any) -> Any:
    """One op: nothing to stitch."""
    return x @ x


def pattern(x: Any) -> Any:
    """Rows beside columns, which XLA has several kernels for."""
    import jax

    return jax.nn.softmax(x), x.sum(0)


PROGRAMS: Mapping[str, Callable[[Any], Any]] = {"nothing": nothing, "pattern": pattern}


def start(program: str, backend: str | None) -> dict[str, float]:
    """Seconds of the imports and of the first call in this process: of `fs.jit`, or of jax.jit
    where no backend is named. Of the latter, `built_s` is what compiling kernels took, and
    `guard_s` what the guard took, its kernels included."""
    begun = time.perf_counter()
    import jax
    import jax.numpy as jnp

    if backend is not None:
        import fusionstitch as fs
    imported = time.perf_counter()
    x = jax.block_until_ready(jnp.asarray([[0.5] * 64] * 64, jnp.float32))
    called = time.perf_counter()
    with _compiling() as (intervals, events):
        jit = jax.jit if backend is None else fs.jit(options=fs.Options(backend=backend))
        jax.block_until_ready(jit(PROGRAMS[program])(x))
    done = time.perf_counter()
    timings = [getattr(event.result, "timings", {}) for event in events]
    return {
        "import_s": imported - begun,
        "call_s": done - called,
        "built_s": _covered(intervals),
        "guard_s": sum(one.get("measure", 0.0) for one in timings),
    }


@contextmanager
def _compiling() -> Iterator[tuple[list[tuple[float, float]], Sequence[Any]]]:
    """Gathers when kernels were compiled, and nothing else: not the launcher of kernels; and what
    became of modules."""
    if "fusionstitch" not in sys.modules:
        yield [], []
        return
    from fusionstitch.runtime import nvrtc, toolchain, xla_pass

    intervals: list[tuple[float, float]] = []

    def timed(compile: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return compile(*args, **kwargs)
            finally:
                if not _is_launcher(args[0]):
                    intervals.append((begun, time.perf_counter()))

        return wrapper

    saved = nvrtc.compile, toolchain.build
    nvrtc.compile, toolchain.build = map(timed, saved)
    try:
        with xla_pass.collect() as events:
            yield intervals, events
    finally:
        nvrtc.compile, toolchain.build = saved


def _is_launcher(source: str) -> bool:
    return '#include "xla/ffi/api/ffi.h"' in source


def _covered(intervals: Sequence[tuple[float, float]]) -> float:
    """Seconds that lie in at least one of the intervals: kernels are compiled side by side."""
    total = until = 0.0
    for begun, ended in sorted(intervals):
        total += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return total


#: What a process of its own may be asked for.
WORK: Mapping[str, Callable[[str, str], dict[str, float]]] = {
    "xla": lambda program, _: start(program, None),
    "start": start,
}


def process(work: str, programs: Sequence[str], backend: str, cache: Path) -> list[Any]:
    """What a process of its own measured of each program."""
    command = [sys.executable, "-m", "benchmarks.first_call", *programs]
    own = {"FUSIONSTITCH_CACHE_DIR": str(cache), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    kept = {k: v for k, v in os.environ.items() if k not in _LEFT_OUT}
    done = subprocess.run(
        [*command, "--worker", work, "--backend", backend],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, **own},
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def starts(program: str, backend: str, rounds: int) -> list[dict[str, Any]]:
    """A row per state of the cache, each figure the median of as many rounds as are asked for. In
    each round jax.jit, the empty and the full cache follow each other."""
    found: dict[str, list[dict[str, float]]] = {"xla": [], **{state: [] for state in BARS_S}}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="fusionstitch-") as cache:
            found["xla"] += process("xla", [program], backend, Path(cache))
            for state in ("empty", "full"):
                found[state] += process("start", [program], backend, Path(cache))
    medians = {
        side: {key: statistics.median(one[key] for one in runs) for key in runs[0]}
        for side, runs in found.items()
    }
    return [
        {
            "program": program,
            "cache": state,
            **medians[state],
            "xla_import_s": medians["xla"]["import_s"],
            "xla_call_s": medians["xla"]["call_s"],
            "over_s": _over(medians[state], medians["xla"]),
            "bar_s": BARS_S[state],
        }
        for state in ("empty", "full")
    ]


def _over(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float:
    """What our start takes more, without the compiling of kernels."""
    spent = ours["import_s"] + ours["call_s"] - ours["built_s"]
    return spent - theirs["import_s"] - theirs["call_s"]


def misses(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The bars that do not hold, in words."""
    return [
        f"{row['program']}, {row['cache']} cache: {row['over_s']:.2f} s over jax.jit"
        for row in found
        if row["over_s"] > row["bar_s"]
    ]


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| program | cache | import s: jax | fs | first call s: jax | fs | compiling kernels s "
        "| guard s | over jax.jit s | bar |",
        "|---|---|" + "--:|" * 8,
    ]
    for row in found:
        keys = (
            *("xla_import_s", "import_s", "xla_call_s", "call_s"),
            *("built_s", "guard_s", "over_s"),
        )
        figures = " | ".join(f"{row[key]:.2f}" for key in keys)
        lines.append(f"| {row['program']} | {row['cache']} | {figures} | {row['bar_s']:g} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_call", description=__doc__)
    parser.add_argument("programs", nargs="*", help=f"of {', '.join(PROGRAMS)}: all if none")
    default = os.environ.get("FUSIONSTITCH_BACKEND") or "auto"
    parser.add_argument("--backend", default=default, choices=("auto", "cuda", "emulate"))
    parser.add_argument("--rounds", type=int, default=3, help="processes of each kind")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--commit", help="the commit, where git is not at hand")
    parser.add_argument("--worker", choices=WORK, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if unknown := sorted(set(asked.programs) - set(PROGRAMS)):
        parser.error(f"no program is named {', '.join(unknown)}")
    if asked.worker:
        work = WORK[asked.worker]
        print(json.dumps([work(program, asked.backend) for program in asked.programs]))
        return 0
    chosen = [name for name in PROGRAMS if not asked.programs or name in asked.programs]
    found = [row for name in chosen for row in starts(name, asked.backend, asked.rounds)]
    print(table(found))
    for said in misses(found):
        print(said)
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        command = " ".join(["python -m benchmarks.first_call", *sys.argv[1:]])
        how = {"command": command, "backend": asked.backend, "rounds": asked.rounds}
        described = {"environment": environment.describe(asked.commit), **how, "starts": found}
        results_file.write(asked.json, described)
    return int(bool(misses(found)))


if __name__ == "__main__":
    sys.exit(main())
