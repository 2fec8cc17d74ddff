"""Where a fault is injected: a separate cache folder, and ways to break its environment."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import resource
import shlex
import signal
import sqlite3
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fusionstitch.compiler import builders
from fusionstitch.runtime import cache, toolchain, trust

#: Seconds after which a test is taken to hang, however busy the machine is.
HANG = 600.0


class HangError(BaseException):
    """No handler of `Exception` may take it for a fault it survives."""


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
    """Raises HangError if the body does not end. How long it takes does not matter."""

    def late(*_: object) -> None:
        raise HangError(f"not done after {HANG} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, HANG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def each_call(observe: Callable[[int], object], of: str = "") -> Iterator[None]:
    """Calls `observe` with the number of each Python function call, here and on threads started
    meanwhile: a measure of work that is the same on any machine. Only functions in files whose
    paths begin with `of` count."""
    numbers = itertools.count()

    def call(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(of):
            observe(next(numbers))

    before = sys.getprofile()
    threading.setprofile(call)
    sys.setprofile(call)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


@contextlib.contextmanager
def few_calls(most: int) -> Iterator[None]:
    """Raises HangError if the body calls more functions."""

    def observe(number: int) -> None:
        if number >= most:
            raise HangError(f"not done after {most} calls")

    with each_call(observe):
        yield


@dataclass
class Sandbox:
    """`folder` is the cache in use, `tmp` a folder for anything else."""

    patch: pytest.MonkeyPatch
    folder: Path
    tmp: Path
    after: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def forget(self) -> None:
        """Makes the next use of the cache open it again, and repeat its warnings."""
        builders.store.cache_clear()
        cache._warned.clear()
        cache._busy.clear()
        toolchain._hung.clear()

    def shared(self) -> Path:
        """A folder that every user can access and write to."""
        folder = Path(self.after.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o777)
        return folder

    def raises(self, target: str, error: BaseException) -> None:
        """Makes what `target` names raise `error` when called."""

        def fail(*_: Any, **__: Any) -> Any:
            raise error

        self.patch.setattr(target, fail)

    def returns(self, target: str, value: Any) -> None:
        """Makes what `target` names return `value`."""
        self.patch.setattr(target, lambda *_, **__: value)

    def compiler(self, script: str, *limits: str) -> None:
        """Makes a shell script the host compiler. $out is its output file, $real the real compiler.
        `limits` names the toolchain's time limits that a hanging script is meant to reach."""
        path = self.tmp / "compiler"
        find_out = 'out=; for a; do if [ "$out" = next ]; then out=$a; fi; '
        find_out += '[ "$a" = -o ] && out=next; done\n'
        real = shlex.quote(" ".join(toolchain.compiler()))
        path.write_text(f"#!/bin/sh\nreal={real}\n{find_out}{script}\n")
        path.chmod(0o755)
        self.patch.setenv("CXX", str(path))
        for name in ("_LIMIT_SECONDS", "_VERSION_SECONDS"):
            self.patch.setattr(toolchain, name, 0.7 if name in limits else HANG)

    def entries(self) -> list[Path]:
        """The files of the store, the largest (kernels) first."""
        files = [p for p in (self.folder / "objects").glob("*/*") if p.is_file()]
        return sorted(files, key=lambda p: (-p.stat().st_size, p.name))

    def each_entry(self, damage: Callable[[Path], object]) -> None:
        """Applies `damage` to every file of the store."""
        assert self.entries()
        for path in self.entries():
            damage(path)

    def sealed(self, value: bytes) -> None:
        """Replaces every entry by `value`, with a valid digest."""
        self.each_entry(lambda p: p.write_bytes(cache._sealed(p.name, value) + value))

    def foreign(self, path: Path) -> None:
        """Gives a file to another user; faked where that takes more rights than there are."""
        if os.getuid() == 0:
            os.chown(path, 12345, 12345)
            return
        inode, mine = path.lstat().st_ino, trust._mine
        self.patch.setattr(trust, "_mine", lambda facts: mine(facts) and facts.st_ino != inode)

    def disk(self, step: str, number: int) -> None:
        """Makes one step of writing an entry fail: "open", "write" or "rename". Other disks, such
        as that of temporary files, work."""
        error = OSError(number, os.strerror(number))
        here = os.path.realpath(self.folder)

        def failing(plain: Callable[..., Any], folder_of: Callable[..., Any]) -> Callable[..., Any]:
            def step(*args: Any, **kwargs: Any) -> Any:
                if os.path.realpath(folder_of(*args, **kwargs) or "/").startswith(here):
                    raise error
                return plain(*args, **kwargs)

            return step

        if step == "open":
            made = failing(tempfile.mkstemp, lambda *_, dir=None, **__: dir)
            self.patch.setattr(tempfile, "mkstemp", made)
        elif step == "rename":
            self.patch.setattr(os, "replace", failing(os.replace, lambda _, target: target))
        else:
            plain = os.fdopen

            def half(handle: int, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
                file = plain(handle, mode, *args, **kwargs)
                if "w" not in mode or not os.path.realpath(f"/proc/self/fd/{handle}").startswith(
                    here
                ):
                    return file

                class Full:
                    def __enter__(self) -> Any:
                        return self

                    def __exit__(self, *_: object) -> None:
                        file.close()

                    def write(self, data: bytes) -> None:
                        file.write(data[: len(data) // 2])
                        raise error

                return Full()

            self.patch.setattr(os, "fdopen", half)

    def database(self, script: str) -> None:
        """Runs SQL on the database file, which it makes if need be."""
        with contextlib.closing(sqlite3.connect(self.folder / "timings.sqlite3")) as connection:
            connection.executescript(script)

    def locked(self, how: str) -> None:
        """Holds a lock of the database until the fault is over."""
        self.patch.setattr(cache, "_BUSY_SECONDS", 0.05)
        other = sqlite3.connect(self.folder / "timings.sqlite3", isolation_level=None)
        other.execute(f"BEGIN {how}")
        self.after.callback(other.close)

    def statements(self, error: Exception, after: int = 0) -> None:
        """Makes the database fail from its statement number `after` on."""
        plain, count = sqlite3.connect, [0]

        class Connection(sqlite3.Connection):
            def execute(self, *args: Any) -> Any:
                count[0] += 1
                if count[0] > after and "memory" not in self.path:
                    raise error
                return super().execute(*args)

        def connect(path: str, *args: Any, **kwargs: Any) -> Any:
            made = plain(path, *args, factory=Connection, **kwargs)
            made.path = path
            return made

        self.patch.setattr("fusionstitch.runtime.cache.sqlite3.connect", connect)


def sqlite_error(code: int, text: str) -> sqlite3.OperationalError:
    """An error as the sqlite3 module raises it."""
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


def full(number: int = errno.ENOSPC) -> OSError:
    """No space left on device."""
    return OSError(number, os.strerror(number))


def widen(path: Path) -> None:
    """Lets other users write to `path`."""
    path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o022)


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Raises MemoryError, or fails otherwise, where the body takes `size` more bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
