"""What outlives a process: compiled kernels by content, and a database of timings.

All of it is optional. A missing, corrupt, full, locked or untrusted cache costs time and one logged
warning, never an error. Deleting the folder is always safe.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionstitch import env
from fusionstitch.hlo.verdict import Verdict, allow, forbid
from fusionstitch.runtime import eviction, trust

logger = logging.getLogger(__name__)

_DIGEST_BYTES = hashlib.sha256().digest_size
_warned: set[str] = set()


def default_folder() -> Path:
    """FUSIONSTITCH_CACHE_DIR, else fusionstitch under XDG_CACHE_HOME, else under ~/.cache.

    A user without a home directory gets a folder for temporary files.
    """
    if (chosen := env.CACHE_DIR.get()) is not None:
        return chosen
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "fusionstitch"
    try:
        return Path.home() / ".cache" / "fusionstitch"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"fusionstitch-{os.getuid()}"


def prepare_folder(folder: Path) -> Verdict:
    """Makes `folder` with mode 0700 if it is missing; forbids one that others could write to.

    A cache contains code that will run, so other users must not be able to change the folder or
    those above it.
    """
    try:
        trust.make(folder)
        verdict = trust.folder(folder)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        return forbid(f"The cache folder {folder} cannot be used: {error}.")
    if not verdict:
        return forbid(
            f"The cache folder {folder} is not used: {verdict.reason} Set FUSIONSTITCH_CACHE_DIR "
            "to a folder of your own."
        )
    return allow()


def _complain(folder: Path, what: str) -> None:
    """Logs one warning per folder and process: later faults have the same cause."""
    known = str(folder) in _warned
    _warned.add(str(folder))
    logger.log(logging.DEBUG if known else logging.WARNING, "%s", what)


_IN_MEMORY = "From now on, kernels and measurements are stored in memory only."


class Store:
    """Bytes by key, one file each, checked against their SHA-256 on every read.

    Safe for several threads and processes: a rename makes files appear complete. Files that another
    user could have written are not read. If the folder cannot be trusted or written, values are in
    this object's memory instead. There are at most `limit` bytes (None: no limit), and slightly
    more while processes write concurrently.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = default_folder() if folder is None else folder
        self.limit = env.CACHE_LIMIT.get()
        self._objects = self.folder / "objects"
        self._memory: dict[str, bytes] | None = None
        self._watch = eviction.Watch()
        verdict = prepare_folder(self.folder)
        self._trusted = bool(verdict)
        if not verdict:
            self._use_memory(verdict.reason)

    @property
    def persistent(self) -> bool:
        """Whether new values outlive this object."""
        return self._memory is None

    def get(self, key: str) -> bytes | None:
        """The value under `key`, or None. A file that fails its check is deleted."""
        if self._memory is not None and key in self._memory:
            return self._memory[key]
        if not self._trusted:
            return None
        path = self._path(key)
        try:
            data = trust.read(path) if self._ours(path) else None
        except OSError:
            return None
        if data is None:
            _complain(
                self.folder,
                f"The cache entry {path} is not used: another user could have written it. Clear "
                "the cache with `fusionstitch cache clear`.",
            )
            return None
        value = data[_DIGEST_BYTES:]
        if data[:_DIGEST_BYTES] == _digest(key, value):
            eviction.used(path)
            return value
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def put(self, key: str, value: bytes) -> None:
        """Stores `value` under `key`, replacing an older one. Very large values are not stored. If
        there is more than FUSIONSTITCH_CACHE_LIMIT allows, the least recently used entries are
        deleted."""
        size, limit = len(value) + _DIGEST_BYTES, self.limit
        if size > trust.MOST_BYTES or (limit is not None and size > limit):
            return
        if self._memory is None:
            try:
                path = self._path(key)
                trust.make(path.parent)
                if not self._ours(path):
                    raise PermissionError(f"{path.parent} is writable for other users")
                _write(path, _digest(key, value) + value)
                if limit is not None and self._watch.wrote(size, limit):
                    self.trim(limit)
                return
            except OSError as error:
                self._use_memory(f"The cache folder {self.folder} cannot be written: {error}.")
        assert self._memory is not None
        self._memory[key] = value

    def usage(self) -> tuple[int, int]:
        """(number of entries, their bytes)."""
        sizes = [len(value) for value in (self._memory or {}).values()]
        for path, folder in self._files():
            with contextlib.suppress(OSError):  # another process may clear the cache
                size = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_size
                sizes += [size] * (not path.name.startswith("."))
        return len(sizes), sum(sizes)

    def trim(self, limit: int) -> int:
        """Deletes the least recently used entries until at most `limit` bytes are left. Returns how
        many were deleted. Deletes nothing while another process trims, and keeps entries used
        meanwhile."""
        gone = 0
        with eviction.alone(self.folder) as ours:
            if not (ours and self._trusted):
                return gone
            doomed = {one.path: one.used for one in eviction.doomed(self._entries(), limit)}
            for path, folder in self._files() if doomed else ():
                with contextlib.suppress(OSError):
                    if path in doomed and _used(path, folder) <= doomed[path]:
                        os.unlink(path.name, dir_fd=folder)
                        gone += 1
        if gone:
            logger.info("%s was full: %d entries were deleted", self.folder, gone)
        return gone

    def _entries(self) -> Iterator[eviction.Entry]:
        for path, folder in self._files():
            with contextlib.suppress(OSError):
                facts = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
                yield eviction.Entry(facts.st_mtime, facts.st_size, path)

    def corrupt(self) -> list[Path]:
        """The files whose content does not match their names."""
        found = []
        for path, _ in self._files():
            if path.name.startswith("."):
                continue
            try:
                data = trust.read(path) or b""
                whole = data[:_DIGEST_BYTES] == _sealed(path.name, data[_DIGEST_BYTES:])
            except FileNotFoundError:
                continue
            except (OSError, ValueError):  # a link, or a name that is not a hash
                whole = False
            found += [] if whole else [path]
        return found

    def clear(self) -> None:
        """Deletes every entry, and files left half written by killed processes."""
        if self._memory is not None:
            self._memory.clear()
        for path, folder in self._files():
            with contextlib.suppress(OSError):
                os.unlink(path.name, dir_fd=folder)
        if self._trusted:
            with contextlib.suppress(OSError):
                os.unlink(self.folder / eviction.LOCK)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self._objects / name[:2] / name

    def _ours(self, path: Path) -> bool:
        return trust.entry(self._objects) and trust.entry(path.parent)

    def _files(self) -> Iterator[tuple[Path, int]]:
        """All entries and other files among them, each with a handle of its folder. No link is
        followed; a link in the place of a folder counts as an entry."""
        if not self._trusted:
            return
        with contextlib.suppress(OSError), trust.opened(self._objects) as objects:
            for part in sorted(os.listdir(objects)):
                parent = self._objects / part
                if stat.S_ISLNK(os.stat(part, dir_fd=objects, follow_symlinks=False).st_mode):
                    yield parent, objects
                    continue
                with contextlib.suppress(OSError), trust.opened(part, objects) as folder:
                    for name in sorted(os.listdir(folder)):
                        yield parent / name, folder

    def _use_memory(self, reason: str) -> None:
        _complain(self.folder, f"{reason} {_IN_MEMORY}")
        self._memory = {}


def _used(path: Path, folder: int) -> float:
    return os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mtime


def _digest(key: str, value: bytes) -> bytes:
    """A digest that covers the key as well, so that a file moved to another name fails the
    check."""
    return _sealed(hashlib.sha256(key.encode()).hexdigest(), value)


def _sealed(name: str, value: bytes) -> bytes:
    """The digest of a file by its name, which is its key's hash in hex."""
    return hashlib.sha256(bytes.fromhex(name) + value).digest()


def _write(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o600)  # whatever the umask
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@dataclass(frozen=True)
class Timing:
    """One measured time: microseconds of what `key` identifies on `device`, and how it was
    measured."""

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
#: Errors of a file that is not ours, or of tables of another form under our names (SQLITE_ERROR).
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_BUSY_SECONDS = 5.0
#: Database files that another process kept locked: no longer waited for.
_busy: set[str] = set()
#: Limits for reading: bytes of a text in a row, and nesting depth of arrays and objects.
_TEXT_BYTES = 1 << 20
_DEPTH = 50


def _bounded(column: str) -> str:
    """SQL that returns a text as bytes, whatever it contains; NULL if it is longer than any of
    ours."""
    return (
        f"CASE WHEN length(CAST({column} AS BLOB)) <= {_TEXT_BYTES} THEN CAST({column} AS BLOB) END"
    )


def _text(data: object) -> str | None:
    try:
        return data.decode() if isinstance(data, bytes) else None
    except UnicodeDecodeError:
        return None


def _fields(data: object) -> dict[str, Any] | None:
    """The JSON object in a text of a row, or None. Rows are checked one by one, so that a bad one
    does not cost the others."""
    text = _text(data)
    if text is None or max(text.count("["), text.count("{")) > _DEPTH:
        return None
    try:
        found = json.loads(text)
    except ValueError:  # not JSON, or an integer with too many digits
        return None
    return found if isinstance(found, dict) else None


class Database:
    """Measured times and tuned patterns in one SQLite file, shared by threads and processes.

    A corrupt file is replaced by a new one; a file that cannot be used is replaced by memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        folder = default_folder() if folder is None else folder
        self._folder, self._path = folder, folder / "timings.sqlite3"
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        verdict = prepare_folder(folder)
        self._in_memory = not verdict
        if not verdict:
            _complain(folder, f"{verdict.reason} {_IN_MEMORY}")

    @property
    def persistent(self) -> bool:
        """Whether rows outlive this object."""
        return not self._in_memory

    def get_timing(self, key: str, device: str) -> Timing | None:
        """The measured time of what `key` identifies on `device`, or None. A row without a valid
        time is deleted."""
        where = "FROM timings_v1 WHERE key = ? AND device = ?"
        for us, meta in self._run(f"SELECT us, {_bounded('meta')} {where}", (key, device)):
            fields = _fields(meta)
            if fields is not None and isinstance(us, float) and 0 <= us < math.inf:
                return Timing(key, device, us, fields)
            self._run(f"DELETE {where}", (key, device))
        return None

    def put_timing(self, key: str, device: str, us: float, meta: dict[str, Any]) -> None:
        """Stores a measured time, replacing an older one."""
        text = json.dumps(meta, sort_keys=True)
        self._run("INSERT OR REPLACE INTO timings_v1 VALUES (?, ?, ?, ?)", (key, device, us, text))

    def put_tuned(self, key: str, device: str, versions: str, record: Mapping[str, Any]) -> None:
        """Stores the tuning result of a pattern on `device` under these versions."""
        text = json.dumps(record, sort_keys=True)
        self._run(
            "INSERT OR REPLACE INTO tuned_v1 VALUES (?, ?, ?, ?)", (key, device, versions, text)
        )

    def tuned(self, device: str) -> tuple[tuple[str, str, dict[str, Any]], ...]:
        """(key, versions, record) of all tuned patterns on `device`, sorted."""
        texts = ", ".join(map(_bounded, ("key", "versions", "record")))
        query = f"SELECT rowid, {texts} FROM tuned_v1 WHERE device = ? ORDER BY key, versions"
        found = []
        for row, *parts in self._run(query, (device,)):
            key, versions = map(_text, parts[:2])
            fields = _fields(parts[2])
            if key is None or versions is None or fields is None:
                self._run("DELETE FROM tuned_v1 WHERE rowid = ?", (row,))
            else:
                found.append((key, versions, fields))
        return tuple(found)

    def drop_tuned(self, key: str, device: str, versions: str) -> None:
        """Deletes one tuned pattern."""
        self._run(
            "DELETE FROM tuned_v1 WHERE key = ? AND device = ? AND versions = ?",
            (key, device, versions),
        )

    def clear(self) -> None:
        """Deletes every timing and tuned pattern."""
        for table in ("timings_v1", "tuned_v1"):
            self._run(f"DELETE FROM {table}", ())

    def close(self) -> None:
        """Closes the file; the next use opens it again. Rows in memory are lost."""
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def _run(self, statement: str, values: tuple[object, ...]) -> list[Any]:
        """The rows of one statement; empty if the database cannot answer."""
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
            if not self._in_memory and not trust.own(self._path):
                raise PermissionError("it belongs to another user")
            patience = 0.0 if str(self._path) in _busy else _BUSY_SECONDS
            connection = sqlite3.connect(target, timeout=patience, check_same_thread=False)
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
        """Whether to retry after `error`."""
        code = getattr(error, "sqlite_errorcode", None)
        code = None if code is None else code & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            _busy.add(str(self._path))
            self.close()  # the next connection does not wait
            _complain(
                self._folder,
                f"The cache {self._path} is locked by another process; going on without it.",
            )
            return False
        if self._in_memory:
            return False
        self.close()
        if code in _CORRUPT:
            with contextlib.suppress(OSError):
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self._path}{suffix}").unlink(missing_ok=True)
                _complain(self._folder, f"The cache {self._path} was corrupt: it starts afresh.")
                return True
        _complain(self._folder, f"The cache {self._path} cannot be used: {error}. {_IN_MEMORY}")
        self._in_memory = True
        return True
