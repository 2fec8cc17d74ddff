"""The corpus under jax.jit and fs.jit: python -m benchmarks.corpus --seed S --json FILE.

Each program runs in a process of its own, and one process of a GPU measures at a time: with --jobs
others of the same GPU are started or checked meanwhile, with --gpus programs are dealt to several.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import environment, results_file
from benchmarks.corpus import public
from benchmarks.corpus.summary import line, text
from benchmarks.corpus.table import Template, find

#: Every so many programs one is also timed against a second jax.jit of itself, and one called often
#: to compare its results bit by bit.
PAIR_EVERY, REPEAT_EVERY = 8, 3


def environment_of(folder: Path) -> dict[str, str]:
    """What the processes run in: a cache of their own in `folder`, memory taken as it is needed."""
    return {
        **os.environ,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "FUSIONSTITCH_CACHE_DIR": str(folder / "fusionstitch"),
    }


def measured(
    template: Template, folder: Path, flags: Sequence[str], env: Mapping[str, str], limit: float
) -> dict[str, Any]:
    """The row of one program, from a process that is ended after `limit` seconds."""
    folder.mkdir()
    module = [sys.executable, "-m", "benchmarks.corpus.worker", template.name, str(folder)]
    how = ""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen([*module, *flags], stdout=output, stderr=output, env={**env})
        try:
            if code := process.wait(limit):
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            how = f"stopped after {limit:g} s"
    path = folder / "row.json"
    row: dict[str, Any] = {"target": template.name, "kind": template.kind}
    if path.exists():
        row |= json.loads(path.read_text())
    if how:
        row["failure"] = f"{how} in step '{row.get('step', 'start')}'"
        row["output"] = (folder / "output").read_text(errors="replace")[-1500:]
    return row


def rows(
    templates: Sequence[Template], asked: argparse.Namespace, folder: Path
) -> Iterator[dict[str, Any]]:
    """One row per program in the table's order; each GPU has `asked.jobs` processes at a time, of
    which one measures."""
    env = environment_of(folder)
    flags = ["--seed", str(asked.seed), "--rounds", str(asked.rounds)]
    flags += ["--seconds", str(asked.seconds), "--times", str(asked.times)]
    flags += [f"--{name}" for name in ("small", "kernels") if getattr(asked, name)]
    flags += ["--checkouts", str(asked.checkouts)] if asked.checkouts else []
    # a process of a GPU takes the place of one that has ended
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    gpus = visible if visible != [""] else [str(number) for number in range(asked.gpus)]
    places = [(gpu, folder / f"alone-{n}") for n, gpu in enumerate(gpus[: asked.gpus])] * asked.jobs
    free = queue.SimpleQueue[tuple[str, Path]]()
    for place in places:
        free.put(place)

    def one(numbered: tuple[int, Template]) -> dict[str, Any]:
        number, template = numbered
        every = {"--pair": PAIR_EVERY, "--repeat": REPEAT_EVERY}
        more = [flag for flag, n in every.items() if number % n == 0]
        gpu, alone = place = free.get()
        try:
            own = {**env, "CUDA_VISIBLE_DEVICES": gpu} if asked.gpus > 1 else env
            more += ["--alone", str(alone)]
            limit = asked.seconds_per_program * asked.jobs
            return measured(template, folder / template.name, flags + more, own, limit)
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        yield from pool.map(one, enumerate(templates))


def share(value: str) -> tuple[int, int]:
    """1/4 is the first of every four programs."""
    part, parts = map(int, value.split("/"))
    if not 1 <= part <= parts:
        raise argparse.ArgumentTypeError(f"{value} is no share such as 1/4")
    return part, parts


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="what sizes and types are drawn by")
    parser.add_argument(
        "--checkouts",
        type=Path,
        metavar="FOLDER",
        help="of published suites, to run these instead: see benchmarks/corpus/public.py",
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these programs")
    parser.add_argument("--kinds", nargs="+", default=[], metavar="KIND", help="those of kinds")
    parser.add_argument("--share", type=share, default=(1, 1), metavar="I/N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the results go")
    parser.add_argument("--rounds", type=int, default=30, help="at least so many of each side")
    parser.add_argument("--seconds-per-program", type=float, default=180.0)
    parser.add_argument("--seconds", type=float, default=2.0, help="of rounds by each clock")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time of each GPU")
    parser.add_argument("--gpus", type=int, default=1, help="how many GPUs there are to use")
    parser.add_argument("--kernels", action="store_true", help="list what the GPU runs")
    parser.add_argument("--small", action="store_true", help="sizes of tests, for a CPU")
    parser.add_argument("--times", type=int, default=1, help="by how much batches are larger")
    parser.add_argument("--commit", help="the commit, where the checkout has no git")
    asked = parser.parse_args(given)
    try:
        known = find(asked.only, asked.kinds, public.templates(asked.checkouts))
        asked.templates = known[asked.share[0] - 1 :: asked.share[1]]
    except ValueError as error:
        parser.error(str(error))
    return asked


def main(given: Sequence[str] | None = None) -> int:
    asked = arguments(given)
    words = sys.argv[1:] if given is None else given
    results: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.corpus", *words]),
        "environment": environment.describe(asked.commit),
        "seed": asked.seed,
        "times": asked.times,
        "rows": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(asked.templates, asked, Path(folder)):
            results["rows"].append(row)
            print(line(row), flush=True)
            if asked.json:  # after every program: what ends the run costs only the rest
                asked.json.parent.mkdir(parents=True, exist_ok=True)
                results_file.write(asked.json, results)
    print(text(results))
    bad = [r for r in results["rows"] if "failure" in r or r.get("check", {}).get("wrong")]
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
