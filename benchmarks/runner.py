"""Workers and their limits: programs are compiled side by side, measured one at a time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.workloads import Workload

#: Workers together leave this share of the GPU's memory to CUDA itself.
_MEMORY = 0.88
_POLL = 0.05


@dataclass(frozen=True)
class Settings:
    """`jobs` workers prepare side by side; `limit` is seconds to prepare, and again to measure."""

    jobs: int = 1
    rounds: int = 15
    limit: float = 120.0
    unfused: bool = True


def measure(
    workloads: Sequence[Workload], settings: Settings, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """One row per workload, in order; those of workers that failed say why in `failure`."""
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, len(workloads), settings.jobs):
            workers = [
                _Worker(workload, Path(folder, str(number)), Path(folder, "cache"), settings)
                for number, workload in enumerate(workloads[first:][: settings.jobs], first)
            ]
            try:
                for worker in workers:
                    worker.prepared()
                for worker in workers:
                    row = worker.measured()
                    say(f"{row['target']}: {row.get('failure') or 'measured'}")
                    yield row
            finally:
                for worker in workers:
                    worker.stop()


class _Worker:
    def __init__(self, workload: Workload, folder: Path, cache: Path, settings: Settings):
        folder.mkdir()
        self.folder, self.workload, self.limit = folder, workload, settings.limit
        self.failure = ""
        self.started = time.monotonic()
        command = [sys.executable, "-m", "benchmarks.worker", workload.target, str(folder)]
        command += ["--rounds", str(settings.rounds)]
        command += [] if settings.unfused else ["--no-unfused"]
        environment = {
            "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{_MEMORY / settings.jobs:.3f}",
            "FUSIONSTITCH_CACHE_DIR": str(cache),
            **os.environ,
        }
        with (folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def prepared(self) -> None:
        """Waits until the worker has compiled and checked, or has failed."""
        self._wait(lambda: self._row().get("step") == "waiting", self.started)

    def measured(self) -> dict[str, Any]:
        """Lets the worker measure; its row."""
        if not self.failure:
            self._close_input(b"go\n")
            self._wait(lambda: False, time.monotonic())
        row = {"target": self.workload.target, **self._row()}
        if self.failure:
            row["failure"] = f"{self.failure} in step '{row.get('step', 'start')}'"
            row["output"] = self._output()
        return row

    def stop(self) -> None:
        """Ends the worker and what it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._close_input()

    def _close_input(self, last: bytes = b"") -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a worker that has ended says why itself
            if last:
                self.process.stdin.write(last)
            self.process.stdin.close()

    def _wait(self, reached: Callable[[], bool], since: float) -> None:
        while not reached():
            code = self.process.poll()
            if code is not None:
                if code:
                    self.failure = f"signal {-code}" if code < 0 else f"exit code {code}"
                elif self._row().get("step") != "done":
                    self.failure = "ended early"
                return
            if time.monotonic() - since > self.limit:
                self.failure = f"stopped after {self.limit:g} s"
                self.stop()
                return
            time.sleep(_POLL)

    def _row(self) -> dict[str, Any]:
        try:
            row: dict[str, Any] = json.loads((self.folder / "row.json").read_text())
        except FileNotFoundError:
            return {}
        return row

    def _output(self) -> str:
        """The end of what the worker printed."""
        return (self.folder / "output").read_text(errors="replace")[-1500:]
