"""Processes that fill one cache at the same time, and are killed while they do."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fusionstitch.runtime.cache import Database, Store
from tests.faults.filler import KEYS, payload
from tests.faults.sandbox import no_hang

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
#: How many processes are killed; `make faults` asks for more.
KILLS = int(os.environ.get("FAULTS_KILLS", "16"))
KINDS = (*("programs",) * 2, *("objects",) * 6)
KILLED_EVERY = 0.4


@dataclass
class Fillers:
    """The processes that run, and a file of lines and one of errors for each that ever did."""

    folder: Path
    log: Path
    count: int = 0
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def start(self, kind: str) -> subprocess.Popen[bytes]:
        self.count += 1
        environment = {
            **os.environ,
            "FUSIONSTITCH_CACHE_DIR": str(self.folder),
            "JAX_PLATFORMS": "cpu",
            "TMPDIR": str(self.log),
        }
        command = [sys.executable, "-m", "tests.faults.filler", kind, str(self.count)]
        out, errors = (self.log / f"{self.count}.{end}" for end in ("out", "err"))
        with out.open("wb") as o, errors.open("wb") as e:
            return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=o, stderr=e)

    def replace(self, number: int) -> None:
        """Kills one process and starts another in its place."""
        self.running[number].kill()
        self.running[number].wait()
        self.running[number] = self.start(KINDS[number])
        self.numbers[number] = self.count

    def proved(self, number: int) -> bool:
        """Whether a running process was right at least once."""
        return (self.log / f"{self.numbers[number]}.out").stat().st_size > 0

    def lines(self) -> list[str]:
        return [n for path in self.log.glob("*.out") for n in path.read_text().splitlines()]

    def errors(self) -> list[str]:
        return [text for path in self.log.glob("*.err") if (text := path.read_text())]


def test_processes_fill_one_cache_and_are_killed(host_compiler: str, tmp_path: Path) -> None:
    fillers = Fillers(tmp_path / "cache", tmp_path / "log")
    fillers.log.mkdir()
    draw = random.Random(0)
    for kind in KINDS:
        fillers.running.append(fillers.start(kind))
        fillers.numbers.append(fillers.count)
    killed = 0
    try:
        with no_hang():
            while not fillers.lines() and not fillers.errors():
                time.sleep(0.1)
        while killed < KILLS and not fillers.errors():
            time.sleep(KILLED_EVERY)
            number = draw.randrange(len(KINDS))
            # one that compiles programs takes long to start: it lives until it was right once
            if KINDS[number] == "objects" or fillers.proved(number):
                fillers.replace(number)
                killed += 1
        dead = [process.args for process in fillers.running if process.poll() is not None]
    finally:
        for process in fillers.running:
            process.kill()
            process.wait()
    assert fillers.errors() == []
    assert dead == []
    kinds = [line.split()[0] for line in fillers.lines()]
    print(f"{killed} of {fillers.count} processes killed")
    print({kind: kinds.count(kind) for kind in sorted(set(kinds))}, "right")
    assert kinds
    store, database = Store(fillers.folder), Database(fillers.folder)
    assert store.persistent
    assert store.corrupt() == []
    for number in range(KEYS):
        assert store.get(f"bytes-{number}") in (None, payload(number))
        found = database.get_timing(f"time-{number}", "h200")
        assert found is None or (found.us, found.meta) == (number, {"number": number})
    assert database.persistent
    database.close()
    # what killed processes left half written goes with the rest
    store.clear()
    assert list(fillers.folder.glob("objects/*/*")) == []
    shutil.rmtree(fillers.log)
