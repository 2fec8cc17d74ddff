"""Workers and their limits: programs are compiled side by side, measured one at a time."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import inductor
from benchmarks.row import WAITING
from benchmarks.workloads import Workload

_POLL = 0.05
#: The share of a run's time in which workers may prepare.
PREPARING = 0.7
#: The workers of a workload, each a process of its own, and for which targets there is one. The
#: first one's row is the workload's; what the others profile goes into it.
PARTS: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "compiled": ("benchmarks.worker", lambda target: True),
    "op-by-op": ("benchmarks.op_by_op", lambda target: True),
    "inductor": ("benchmarks.inductor", inductor.has),
}
#: What may be left out: contestants, measurements of the compiled program, and whole programs.
OPTIONAL = ("op-by-op", "inductor", "graphs", "warm", "long")


@dataclass(frozen=True)
class Settings:
    """`jobs` workers prepare side by side; `limit` is seconds to prepare, and again to measure.

    Up to `batch` workers are prepared before any of them measures. `without` are names of OPTIONAL:
    parts, or "long" for the programs that take long to compile. `tune` is seconds of tuning each.
    The whole run takes about `total` seconds: what is not prepared when PREPARING of them are over
    is stopped, so that the others can be measured.
    """

    jobs: int = 1
    rounds: int = 25
    limit: float = 120.0
    batch: int = 24
    without: frozenset[str] = frozenset()
    ncu: bool = False
    tune: float = 0.0
    total: float = math.inf

    def parts(self, workload: Workload) -> list[str]:
        return [
            part
            for part, (_, has) in PARTS.items()
            if part not in self.without and has(workload.target)
        ]


def measure(
    workloads: Sequence[Workload], settings: Settings, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """One row per workload; those of workers that failed say why in `failure`.

    Programs that take long to compile come first, the others in their order.
    """
    waiting = sorted(workloads, key=lambda workload: not workload.long)
    if "long" in settings.without:
        waiting = [workload for workload in waiting if not workload.long]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        while waiting:
            batch: dict[Workload, list[_Worker]] = {}
            while waiting and (
                not batch
                or sum(map(len, batch.values())) + len(settings.parts(waiting[0])) <= settings.batch
            ):
                workload = waiting.pop(0)
                batch[workload] = [
                    _Worker(workload, part, Path(folder), settings, begun)
                    for part in settings.parts(workload)
                ]
            every = [worker for workers in batch.values() for worker in workers]
            try:
                _prepare(every, settings.jobs)
                for workers in batch.values():
                    row = _merged([worker.measured() for worker in workers])
                    say(f"{row['target']}: {row.get('failure') or 'measured'}")
                    yield row
            finally:
                for worker in every:
                    worker.stop()


def _prepare(workers: Sequence[_Worker], jobs: int) -> None:
    """Starts all workers, at most `jobs` of them preparing at any time, and waits for them.

    Those that take long start first; those that cannot start in time do not.
    """
    waiting, busy = sorted(workers, key=lambda worker: not worker.long), list[_Worker]()
    while waiting or busy:
        while waiting and waiting[0].is_late():
            waiting.pop(0)
        while waiting and len(busy) < jobs:
            busy.append(waiting.pop(0))
            busy[-1].start()
        busy = [worker for worker in busy if not worker.prepared()]
        time.sleep(_POLL)


def _merged(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first row with what the other parts found out."""
    main = dict(rows[0])
    for row in rows[1:]:
        if row.get("profile"):
            main["profile"] = {**(main.get("profile") or {}), **row["profile"]}
        main.update({key: row[key] for key in ("inductor",) if key in row})
        if "failure" in row:
            main.setdefault("failed_parts", {})[row["part"]] = {
                key: row[key] for key in ("failure", "output")
            }
        main.setdefault("parts", {})[row["part"]] = row.get("seconds")
    del main["part"]
    return main


class _Worker:
    """One part of one workload: waiting to start, preparing, prepared, or at an end."""

    def __init__(
        self, workload: Workload, part: str, folder: Path, settings: Settings, begun: float
    ):
        self.workload, self.part, self.settings = workload, part, settings
        self.folder = folder / f"{workload.target.replace(':', '.')}-{part}"
        self.cache = folder / "cache"  # for all: the launcher is built once
        self.long = workload.long or part == "inductor"
        self.begun = begun
        self.failure = ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir()
        self.started = time.monotonic()
        command = [sys.executable, "-m", PARTS[self.part][0], self.workload.target]
        command += [str(self.folder), "--rounds", str(self.settings.rounds)]
        if self.settings.without:
            command += ["--without", ",".join(sorted(self.settings.without))]
        command += ["--ncu"] if self.settings.ncu else []
        command += ["--tune", str(self.settings.tune)]
        environment = {
            # many workers hold their arrays at the same time
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "FUSIONSTITCH_CACHE_DIR": str(self.cache),
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            **os.environ,
        }
        with (self.folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def is_late(self) -> bool:
        """Whether there is no time left to prepare, which is a failure then."""
        late = time.monotonic() - self.begun > PREPARING * self.settings.total
        if late:
            self.failure = f"not begun within {self.settings.total:g} s of the whole run"
        return late

    def prepared(self) -> bool:
        """Whether the worker waits for its turn, or has failed."""
        last = self.begun + PREPARING * self.settings.total
        return self._row().get("step") == WAITING or self._ended(self.started, last)

    def measured(self) -> dict[str, Any]:
        """Lets the worker measure; its row."""
        if not self.failure:
            self._close_input(b"go\n")
            since = time.monotonic()
            while not self._ended(since, self.begun + self.settings.total):
                time.sleep(_POLL)
        row = {"target": self.workload.target, **self._row(), "part": self.part}
        if self.failure:
            row["failure"] = f"{self.failure} in step '{row.get('step', 'start')}'"
            row["output"] = self._output()
        return row

    def stop(self) -> None:
        """Ends the worker and what it started."""
        if self.process is None:
            return
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._close_input()

    def _close_input(self, last: bytes = b"") -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a worker that has ended says why itself
            if last:
                self.process.stdin.write(last)
            self.process.stdin.close()

    def _ended(self, since: float, last: float) -> bool:
        """Whether the worker has ended, which it is made to at its limit, and when the `last`
        second of the run is over."""
        assert self.process is not None
        code, limit = self.process.poll(), self.settings.limit
        if code is not None:
            if code:
                self.failure = f"signal {-code}" if code < 0 else f"exit code {code}"
            elif self._row().get("step") != "done":
                self.failure = "ended early"
            return True
        now = time.monotonic()
        if now - since > limit or now > last:
            self.failure = f"stopped after {min(limit, now - since):.0f} s"
            self.stop()
            return True
        return False

    def _row(self) -> dict[str, Any]:
        try:
            row: dict[str, Any] = json.loads((self.folder / "row.json").read_text())
        except FileNotFoundError:
            return {}
        return row

    def _output(self) -> str:
        """The end of what the worker printed, without the paths of this machine."""
        if self.process is None:
            return ""
        text = (self.folder / "output").read_text(errors="replace")[-1500:]
        return re.sub(r"(/[\w.-]+)+/(?=[\w.-]+)", "", text)
