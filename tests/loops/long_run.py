"""Grown programs by the thousand, in processes of their own: `python -m tests.loops.long_run`.

Each is compared with jax.jit (`checked.py`). What a process dies of costs one program. Writes a
JSON with counts and each failure: `from_seed(SEED)` of `growth.py` is the program.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fusionstitch.codegen.while_loops.generate import FORMS

#: Programs of one translation unit, and what a process gets at once.
BATCH = 16
#: After so many a process has grown, and another one takes over.
MOST = 480
#: Seconds that a program may take, all of its kernels' compilation included.
LIMIT = 240.0


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    forms = FORMS if chosen.form == "every" else (chosen.form,)
    with tempfile.TemporaryDirectory(prefix="fusionstitch-long-run-") as folder:
        run = Run(chosen, forms)
        with patch.dict(os.environ, _environment(chosen, folder)):
            run.go()
    report = run.report()
    text = json.dumps(report, indent=1)
    chosen.json.write_text(text + "\n")
    shown = {name: n for name, n in report.items() if isinstance(n, int | float | str)}
    print("\n".join(f"{name}: {n}" for name, n in shown.items()))
    print(f"loops: {report['loops']}\nruns of them: {report['runs_by_form']}")
    return 1 if report["failures"] else 0


def _said(one: dict[str, Any]) -> str:
    why = " (hangs on rounding)" if one["rounding"] else ""
    return f"from_seed({one['seed']}), form {one['form']}{why}: {one['wrong'][:400]}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.loops.long_run", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=600, help="begin nothing after these")
    parser.add_argument("--backend", choices=("emulate", "cuda"), default="emulate")
    parser.add_argument("--delays", action="store_true", help="with FUSIONSTITCH_DELAYS=1")
    parser.add_argument("--checked", action="store_true", help="with FUSIONSTITCH_CHECK=1")
    parser.add_argument(
        *("--form", "-f"),
        choices=("own", "every", *FORMS),
        default="own",
        help="of loops: the one that the model chooses, each in turn, or one",
    )
    parser.add_argument("--runs", type=int, default=3, help="of each program, in other orders")
    parser.add_argument("--json", type=Path, default=Path("long_run.json"))
    return parser


def _environment(chosen: argparse.Namespace, folder: str) -> dict[str, str]:
    found = {
        "JAX_PLATFORMS": "cpu" if chosen.backend == "emulate" else "cuda,cpu",
        "FUSIONSTITCH_CACHE_DIR": folder,
        "FUSIONSTITCH_PROGRESS": "0",
        "FUSIONSTITCH_DELAYS": "01"[chosen.delays],
        "FUSIONSTITCH_CHECK": "01"[chosen.checked],
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several processes share a GPU
        # and the processors, each of them one
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC"), "1"),
    }
    flags = os.environ.get("XLA_FLAGS", "")
    found["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=false {flags}".rstrip()
    return found


# ---- a process ----------------------------------------------------------------------------------


def work(pipe: Any, backend: str, runs: int) -> None:
    """Says that it is ready; takes (form, seeds) and says what came of each."""
    import fusionstitch as fs
    from benchmarks.loops.forced import taken
    from fusionstitch.runtime import emulate
    from tests.loops.checked import check
    from tests.loops.growth import from_seed
    from tests.loops.together import together

    options = fs.Options(backend=backend, scorer="model", fallback="error")
    if backend == "emulate":
        emulate.register()

    def one(seed: int) -> dict[str, Any]:
        orders = range(runs * seed, runs * (seed + 1))
        return {"seed": seed, **vars(check(from_seed(seed), options, orders))}

    pipe.send({})
    while (given := pipe.recv()) is not None:
        form, seeds = given
        works = [lambda seed=seed: one(seed) for seed in seeds]
        with taken(None if form == "own" else form):
            for found in together(works) if backend == "emulate" else (work() for work in works):
                pipe.send({"form": form, **found})


class Process:
    """A process that works, and how many programs it was given."""

    def __init__(self, chosen: argparse.Namespace, work: Callable[[Any, str, int], None]):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=work, args=(theirs, chosen.backend, chosen.runs), daemon=True
        )
        self.process.start()
        theirs.close()
        self.given = 0

    def said(self) -> dict[str, Any] | str:
        """What it says next, or why nothing comes any more."""
        try:
            if self.pipe.poll(LIMIT):
                found: dict[str, Any] = self.pipe.recv()
                return found
            return f"it took more than {LIMIT:.0f} seconds"
        except (EOFError, ConnectionError):
            self.process.join()
            return f"its process died with {self.process.exitcode}"

    def end(self) -> None:
        self.process.kill()
        self.process.join()


# ---- all of them --------------------------------------------------------------------------------


class Run:
    """The batches, what came of them, and a thread for each process."""

    def __init__(
        self,
        chosen: argparse.Namespace,
        forms: Sequence[str],
        work: Callable[[Any, str, int], None] = work,
    ):
        self.chosen, self.work = chosen, work
        seeds = range(chosen.first, chosen.first + chosen.programs)
        parts = [list(seeds[i : i + BATCH]) for i in range(0, len(seeds), BATCH)]
        self.batches = [(form, part) for part in parts for form in forms][::-1]
        self.found: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.start = time.monotonic()
        self.took = 0.0

    def go(self) -> None:
        first = Process(self.chosen, self.work)  # which builds what all of them load
        first.said()
        threads = [
            threading.Thread(target=self.tend, args=(first if n == 0 else None,))
            for n in range(self.chosen.processes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(10)
                self.tell()
        self.took = time.monotonic() - self.start

    def tell(self) -> None:
        with self.lock:
            wrong = sum(1 for one in self.found if one["wrong"])
            count, took = len(self.found), time.monotonic() - self.start
        print(f"{count} programs, {wrong} wrong, {took:.0f} s", file=sys.stderr, flush=True)

    def tend(self, process: Process | None) -> None:
        """Has batches worked on, by one process after the other."""
        while (batch := self.next()) is not None:
            if process is None:
                process = Process(self.chosen, self.work)
                process.said()
            process = self.worked(process, *batch)
            if process is not None and process.given >= MOST:
                process.end()
                process = None
        if process is not None:
            process.end()

    def next(self) -> tuple[str, list[int]] | None:
        with self.lock:
            late = time.monotonic() - self.start > self.chosen.seconds
            return None if late or not self.batches else self.batches.pop()

    def worked(self, process: Process, form: str, seeds: list[int]) -> Process | None:
        """The process after a batch; None where it ended, which costs the program that it ended of:
        those that are left run again, each alone."""
        process.given += len(seeds)
        process.pipe.send((form, seeds))
        left = list(seeds)
        while left:
            said = process.said()
            with self.lock:
                if isinstance(said, dict):
                    self.keep(said)
                    left.remove(said["seed"])
                    continue
                if len(seeds) > 1:
                    self.batches += [(form, [seed]) for seed in left]
                else:
                    self.keep({"seed": seeds[0], "form": form, "wrong": said, "rounding": False})
            process.end()
            return None
        return process

    def keep(self, one: dict[str, Any]) -> None:
        """Takes in what came of a program, and says at once what is wrong with it."""
        self.found.append(one)
        if one["wrong"]:
            print(_said(one), file=sys.stderr, flush=True)

    def report(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        loops, runs, left = Counter[str](), Counter[str](), Counter[str]()
        for one in self.found:
            loops.update(one.get("loops", {}))
            left.update(one.get("left", {}))
            runs.update({form: n * one["runs"] for form, n in one.get("loops", {}).items()})
        wrong = sorted((one for one in self.found if one["wrong"]), key=lambda one: one["seed"])
        return {
            **{k: str(v) if k == "json" else v for k, v in vars(self.chosen).items()},
            "ran": len(self.found),
            "equal": len(self.found) - len(wrong),
            "took": round(self.took, 1),
            "programs_a_second": round(len(self.found) / self.took, 2),
            "kernels": sum(one.get("kernels", 0) for one in self.found),
            "without_loops_in_kernels": sum(1 for one in self.found if not one.get("loops")),
            "loops": dict(loops.most_common()),
            "runs_by_form": dict(runs.most_common()),
            "left": dict(left.most_common()),
            "failures": [one for one in wrong if not one["rounding"]],
            "hang_on_rounding": [one for one in wrong if one["rounding"]],
        }


if __name__ == "__main__":
    sys.exit(main())
