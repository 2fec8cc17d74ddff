"""`python -m benchmarks.dag`: all of it, each section in a process of its own, as a table and JSON.

A section that fails, or hangs, loses its own rows that were not measured yet, and no other's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import results_file
from benchmarks.dag import growth, launches, of_jax, random_programs, six
from benchmarks.dag.programs import PROGRAMS
from benchmarks.dag.table import table
from benchmarks.environment import describe

#: Sections with their shares of the time.
SECTIONS = dict.fromkeys(PROGRAMS, 1.0) | {
    "launches": 0.3,
    "random": 0.8,
    "growth": 0.8,
    "jax": 1.2,
}
#: Seconds that a section may take beyond its share, to start and to come to an end.
_GRACE = 15.0


def rows(section: str, backend: str, seconds: float) -> Iterator[dict[str, Any]]:
    if section in PROGRAMS:
        yield from six.rows(section, backend, seconds)
    elif section == "launches":
        yield from launches.rows(backend, seconds)
    elif section == "growth":
        yield from growth.rows(backend, seconds)
    elif section == "random":
        yield from random_programs.rows(backend, seconds)
    else:
        yield from of_jax.rows(backend, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dag", description=__doc__)
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--seconds", type=float, default=120.0, help="for all of it, about")
    parser.add_argument("--backend", choices=("cuda", "emulate"), default="cuda")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--commit", help="the commit, where the checkout has no git")
    parser.add_argument("--section", choices=list(SECTIONS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.section:
        _write_one(given.section, given.backend, given.seconds, given.json)
        return
    content: dict[str, Any] = {
        "command": f"python -m benchmarks.dag {' '.join(sys.argv[1:])}",
        "environment": describe(given.commit),
        "rows": [],
    }
    for found in _all(given.only, given.backend, given.seconds):
        content["rows"] += found
        if given.json is not None:
            results_file.write(given.json, content)
    print(table(content["rows"]))


def _write_one(section: str, backend: str, seconds: float, path: Path) -> None:
    """Rows of one section, written anew after each one."""
    found = []
    for row in rows(section, backend, seconds):
        found.append(row)
        path.write_text(json.dumps(found))


def _all(sections: list[str], backend: str, seconds: float) -> Iterator[list[Any]]:
    """The rows of each section."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        for number, section in enumerate(sections):
            left = sum(SECTIONS[later] for later in sections[number:])
            share = max(3.0, (end - time.monotonic()) * SECTIONS[section] / left - 4.0)
            yield _section(section, backend, share, Path(folder) / f"{section}.json")


def _section(section: str, backend: str, seconds: float, path: Path) -> list[Any]:
    command = [sys.executable, "-m", "benchmarks.dag", "--section", section]
    command += ["--backend", backend, "--seconds", str(seconds), "--json", str(path)]
    said = ""
    try:
        done = subprocess.run(
            command, timeout=seconds + _GRACE, check=False, capture_output=True, text=True
        )
        if done.returncode:
            said = f"ended with {done.returncode}: {done.stderr[-500:]}"
    except subprocess.TimeoutExpired:
        said = f"was ended after {seconds + _GRACE:.0f} seconds"
    found = json.loads(path.read_text()) if path.exists() else []
    if said:
        found.append({"section": section, "error": f"the section {said}"})
    return found


if __name__ == "__main__":
    main()
