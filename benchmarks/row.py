"""A worker's side of the conversation with the runner: the row it writes, and when it may measure.

A worker is a process that prepares one workload, waits for a line on its input so that nothing
else runs meanwhile, then measures. FOLDER/row.json is rewritten after every step: what ends the
process costs only the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.workloads import Workload, find

#: The step in which a worker waits for its turn.
WAITING = "waiting"


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

    def wait(self) -> None:
        """Everything is prepared: waits until nothing else runs."""
        self.step(WAITING)
        sys.stdin.readline()

    def _write(self) -> None:
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.data))
        temporary.replace(self.path)


def work_on(work: Callable[[Workload, Row, argparse.Namespace], None]) -> None:
    """The main function of a worker: TARGET FOLDER and what the runner passes on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--without", type=lambda text: frozenset(text.split(",")), default="")
    parser.add_argument("--ncu", action="store_true")
    parser.add_argument("--tune", type=float, default=0.0)
    options = parser.parse_args()
    [workload] = find([options.target])
    row = Row(workload.target, options.folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            work(workload, row, options)
            row.step("done")
        finally:
            messages = sorted({f"{w.category.__name__}: {w.message}"[:300] for w in caught})
            row.put(warnings=messages)
            row.step(row.data["step"])
    sys.stdout.flush()
    os._exit(0)  # what is measured is written: a slow or failing shutdown is not a result
