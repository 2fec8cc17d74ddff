"""What outlives a process: compiled kernels by content, and one database of timings.

Everything here is a convenience: a missing, corrupt, full, locked or foreign cache costs time and
one logged warning, never an error. Deleting the folder is always safe.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sqlite3
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionstitch import env
from hlo.verdict import Verdict, allow, forbid

logger = logging.getLogger(__name__)

_DIGEST_BYTES = hashlib.sha256().digest_size
_warned: set[str] = set()


def default_folder() -> Path:
    """FUSIONSTITCH_CACHE_DIR, else fusionstitch under XDG_CACHE_HOME, else under ~/.cache."""
    if (chosen := env.CACHE_DIR.get()) is not None:
        return chosen
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fusionstitch"


def prepare_folder(folder: Path) -> Verdict:
    """Make `folder` with mode 0700 if it is missing; forbids one that others could write to.

    A cache holds code that will run, so a folder owned by or writable for another user is refused.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
    except OSError as error:
        return forbid(f"The cache folder {folder} cannot be used: {error}.")
    if hasattr(os, "getuid"):
        if facts.st_uid != os.getuid():
            return forbid(
                f"The cache folder {folder} belongs to another user. Set FUSIONSTITCH_CACHE_DIR "
                "to a folder of your own."
            )
        if facts.st_mode & 0o022:
            return forbid(
                f"The cache folder {folder} is writable for other users. Run `chmod go-w` on it "
                "or set FUSIONSTITCH_CACHE_DIR."
            )
    return allow()


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        logger.warning("%s", message)


class Store:
    """Bytes by key, one file each, checked against their SHA-256 on every read.

    Safe for several threads and processes: files appear whole through a rename. Where the folder
    cannot be trusted or used, values live in this object's memory instead.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = default_folder() if folder is None else folder
        self._memory: dict[str, bytes] | None = None
        if not (verdict := prepare_folder(self.folder)):
            self._use_memory(verdict.reason)

    @property
    def persistent(self) -> bool:
        """Whether values outlive this object."""
        return self._memory is None

    def get(self, key: str) -> bytes | None:
        """The value under `key`, or None. A file that fails its check is removed."""
        if self._memory is not None:
            return self._memory.get(key)
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        value = data[_DIGEST_BYTES:]
        if data[:_DIGEST_BYTES] == _digest(key, value):
            return value
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def put(self, key: str, value: bytes) -> None:
        """Keep `value` under `key`, replacing what was there."""
        if self._memory is None:
            try:
                _write(self._path(key), _digest(key, value) + value)
                return
            except OSError as error:
                self._use_memory(f"The cache folder {self.folder} cannot be written: {error}.")
        assert self._memory is not None
        self._memory[key] = value

    def usage(self) -> tuple[int, int]:
        """(number of entries, their bytes)."""
        if self._memory is not None:
            return len(self._memory), sum(map(len, self._memory.values()))
        sizes = [path.stat().st_size for path in self._files()]
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Forget every entry."""
        if self._memory is not None:
            self._memory.clear()
            return
        for path in self._files():
            with contextlib.suppress(OSError):
                path.unlink()

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / "objects" / name[:2] / name

    def _files(self) -> list[Path]:
        return sorted(p for p in (self.folder / "objects").glob("*/*") if p.is_file())

    def _use_memory(self, reason: str) -> None:
        _warn_once(f"{reason} Compiled kernels are kept in memory only.")
        self._memory = {}


def _digest(key: str, value: bytes) -> bytes:
    """Covers the key too, so that a file moved under another name does not pass."""
    return hashlib.sha256(hashlib.sha256(key.encode()).digest() + value).digest()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@dataclass(frozen=True)
class Timing:
    """One measured time: microseconds of what `key` names on `device`, and how it was measured."""

    key: str
    device: str
    us: float
    meta: dict[str, Any]


_SCHEMA = """
CREATE TABLE IF NOT EXISTS timings_v1 (
  key TEXT NOT NULL, device TEXT NOT NULL, us REAL NOT NULL, meta TEXT NOT NULL,
  PRIMARY KEY (key, device));
CREATE TABLE IF NOT EXISTS tuned_v1 (
  key TEXT NOT NULL, device TEXT NOT NULL, versions TEXT NOT NULL, record TEXT NOT NULL,
  PRIMARY KEY (key, device, versions));
"""
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY_SECONDS = 5.0


class Database:
    """Measured times and tuned patterns in one SQLite file, shared by threads and processes.

    A corrupt file is started afresh; a file that cannot be used is replaced by memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        folder = default_folder() if folder is None else folder
        self._path = folder / "timings.sqlite3"
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        verdict = prepare_folder(folder)
        self._in_memory = not verdict
        if not verdict:
            _warn_once(f"{verdict.reason} Timings are kept in memory only.")

    @property
    def persistent(self) -> bool:
        """Whether rows outlive this object."""
        return not self._in_memory

    def get_timing(self, key: str, device: str) -> Timing | None:
        """The measured time of what `key` names on `device`, or None."""
        query = "SELECT us, meta FROM timings_v1 WHERE key = ? AND device = ?"
        for us, meta in self._run(query, (key, device)):
            with contextlib.suppress(json.JSONDecodeError):
                return Timing(key, device, us, json.loads(meta))
        return None

    def put_timing(self, key: str, device: str, us: float, meta: dict[str, Any]) -> None:
        """Keep a measured time, replacing an older one."""
        text = json.dumps(meta, sort_keys=True)
        self._run("INSERT OR REPLACE INTO timings_v1 VALUES (?, ?, ?, ?)", (key, device, us, text))

    def put_tuned(self, key: str, device: str, versions: str, record: Mapping[str, Any]) -> None:
        """Keep what tuning found out about a pattern on `device` under these versions."""
        text = json.dumps(record, sort_keys=True)
        self._run(
            "INSERT OR REPLACE INTO tuned_v1 VALUES (?, ?, ?, ?)", (key, device, versions, text)
        )

    def tuned(self, device: str) -> tuple[tuple[str, str, dict[str, Any]], ...]:
        """(key, versions, record) of all tuned patterns on `device`, sorted."""
        query = "SELECT key, versions, record FROM tuned_v1 WHERE device = ? ORDER BY key, versions"
        found = []
        for key, versions, record in self._run(query, (device,)):
            with contextlib.suppress(json.JSONDecodeError):
                found.append((key, versions, json.loads(record)))
        return tuple(found)

    def clear(self) -> None:
        """Forget every timing and tuned pattern."""
        for table in ("timings_v1", "tuned_v1"):
            self._run(f"DELETE FROM {table}", ())

    def close(self) -> None:
        """Release the file; the next use opens it again. Rows kept in memory are forgotten."""
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def _run(self, statement: str, values: tuple[object, ...]) -> list[Any]:
        """The rows of one statement; none when the database cannot answer."""
        with self._lock:
            for _ in range(3):  # at worst: found corrupt, found unusable, in memory
                try:
                    with self._open() as connection:
                        return connection.execute(statement, values).fetchall()
                except (sqlite3.Error, OSError) as error:
                    if not self._recover(error):
                        break
        return []

    def _open(self) -> sqlite3.Connection:
        # A connection must not be used across a fork.
        if self._connection is None or self._process != os.getpid():
            target = ":memory:" if self._in_memory else str(self._path)
            connection = sqlite3.connect(target, timeout=_BUSY_SECONDS, check_same_thread=False)
            try:
                if not self._in_memory:
                    os.chmod(self._path, 0o600)
                connection.execute("PRAGMA journal_mode=WAL")
                connection.executescript(_SCHEMA)
            except BaseException:
                connection.close()
                raise
            self._connection, self._process = connection, os.getpid()
        return self._connection

    def _recover(self, error: sqlite3.Error | OSError) -> bool:
        """Whether another try makes sense after `error`."""
        code = getattr(error, "sqlite_errorcode", None)
        code = None if code is None else code & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            _warn_once(f"The cache {self._path} is locked by another process; going on without it.")
            return False
        if self._in_memory:
            return False
        self.close()
        if code in _CORRUPT:
            with contextlib.suppress(OSError):
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self._path}{suffix}").unlink(missing_ok=True)
                _warn_once(f"The cache {self._path} was corrupt and is started afresh.")
                return True
        _warn_once(f"The cache {self._path} cannot be used ({error}); timings are kept in memory.")
        self._in_memory = True
        return True
