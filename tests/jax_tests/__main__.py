"""Runs JAX's own tests under fs.jit and lists what fails there and not under jax.jit.

`python -m tests.jax_tests FOLDER [FILE ...]`: FOLDER holds the `*_test.py` files of the installed
JAX's own tests. Each mode runs all of them; base, unless it is asked for, only what failed. Exits
with 1 if a test fails under fs.jit alone, or if nothing was stitched at all.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.jax_tests import outcomes
from tests.jax_tests.plugin import MODES

ROOT = Path(__file__).parents[2]
#: Statuses of pytest: passed, failed (the record says what), nothing to run.
_ENDED = (0, 1, 5)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    if not (chosen.folder and list(chosen.folder.glob("*_test.py"))):
        print(_where_to_get_them(chosen.folder), file=sys.stderr)
        return 2
    logs = chosen.logs or Path(tempfile.mkdtemp(prefix="jax-tests-"))
    modes = [mode for mode in chosen.under if mode != "base"]
    for mode in chosen.under:
        _run(chosen, mode, logs)
    records = {mode: outcomes.read(_log(logs, mode)) for mode in chosen.under}
    failed = any(one.failed for record in records.values() for one in record.values())
    if failed and "base" not in records:
        _run(chosen, "base", logs, [_log(logs, mode) for mode in modes])
        records["base"] = outcomes.read(_log(logs, "base"))
    base = records.get("base", {})
    ok = True
    for mode in modes:
        ours = records[mode]
        found = outcomes.compare(ours, base, outcomes.accepted())
        print(f"\n{mode}: {outcomes.totals(ours)}\n\n{outcomes.table(found)}", flush=True)
        stitched = any(one.patterns for one in ours.values())
        if not stitched:
            print("Nothing was stitched: this run says nothing.")
        ok = ok and stitched and not found.new
    print(f"\nOne line a test: {logs}")
    return 0 if ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.jax_tests", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="folder of JAX's tests")
    parser.add_argument("files", nargs="*", help="some of its files; by default all")
    parser.add_argument("--under", nargs="+", choices=MODES, default=["user", "neighbour"])
    parser.add_argument("--backend", choices=("auto", "emulate"), default=_backend())
    parser.add_argument("--part", default="1/1", help="the Ith of N shares of the tests: I/N")
    parser.add_argument("--cases", default="2", help="generated cases a test, at most")
    parser.add_argument("--workers", default="2", help="processes")
    parser.add_argument("--timeout", default="180", help="seconds a test")
    parser.add_argument("--logs", type=Path, help="folder for the records")
    return parser


def _backend() -> str:
    return "auto" if shutil.which("nvidia-smi") else "emulate"


def _where_to_get_them(folder: Path | None) -> str:
    version = importlib.metadata.version("jax")
    missing = f"{folder} holds no JAX tests. " if folder else ""
    return (
        f"{missing}JAX's tests are not part of its package: take the folder tests of "
        f"https://github.com/jax-ml/jax at the tag jax-v{version}, the JAX that is installed, and "
        "name it: make jax-tests JAX_TESTS=DIR"
    )


def _log(logs: Path, mode: str) -> Path:
    return logs.resolve() / f"{mode}.jsonl"


def _run(chosen: argparse.Namespace, mode: str, logs: Path, failed_in: Sequence[Path] = ()) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "tests.jax_tests.plugin"]
    command += ["-c", os.devnull, "--rootdir", ".", "--import-mode=importlib", "-q", "--tb=short"]
    command += ["-p", "no:cacheprovider", "-n", chosen.workers, "--timeout", chosen.timeout]
    command += ["--continue-on-collection-errors", "--no-header", "--no-summary"]
    command += ["--under", mode, "--part", chosen.part, "--record", str(_log(logs, mode))]
    command += [f"--failed-in={path}" for path in failed_in]
    environment = {
        "JAX_PLATFORMS": "cpu" if chosen.backend == "emulate" else "",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several processes share a GPU
        # the paper's stitches whatever can be, but no whole loops
        "FUSIONSTITCH_SCORER": "model" if mode == "loops" else "paper",
        "FUSIONSTITCH_PROGRESS": "0",
    }
    environment |= os.environ | {
        "FUSIONSTITCH_BACKEND": chosen.backend,
        "JAX_NUM_GENERATED_CASES": chosen.cases,
        "JAX_SKIP_SLOW_TESTS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "1",  # the folder may be another's
    }
    print(f"{mode}:", flush=True)
    command += chosen.files or ["."]
    status = subprocess.run(command, cwd=chosen.folder, env=environment).returncode
    if status not in _ENDED:
        raise SystemExit(f"pytest did not come to its end (status {status}).")


if __name__ == "__main__":
    sys.exit(main())
