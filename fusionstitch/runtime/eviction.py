"""Which entries of a full cache are deleted: the least recently used ones.

An entry's modification time is its last use. Reading an entry updates it, if it was old. Errors
only cost time: a process that misses an entry makes it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: Share of the limit that remains after an eviction, so that the next writes need no check.
REMAINING_SHARE = 0.9
#: Share of the limit that a process writes before it checks the size again.
LOOK_SHARE = 1 / 32
#: The lock file of the process that evicts.
LOCK = "eviction.lock"
#: Possible error of use times in seconds: repeated reads of an entry write nothing.
_FRESH_S = 3600.0
#: Age in seconds from which a half-written file counts as abandoned.
_LOST_S = 3600.0


@dataclass(frozen=True)
class Entry:
    """A file of the cache: its last use (seconds), its bytes, its path."""

    used: float
    bytes: int
    path: Path


class Watch:
    """How much one process has written since it last checked the size. It checks at its first
    entry, since others may have filled the cache."""

    def __init__(self) -> None:
        self._written = 0
        self._looked = False

    def wrote(self, size: int, bound: int) -> bool:
        """Whether it is time to check."""
        self._written += size
        if self._looked and self._written < LOOK_SHARE * bound:
            return False
        self._written, self._looked = 0, True
        return True


def used(path: Path) -> None:
    """Records that an entry was read."""
    with contextlib.suppress(OSError):
        if time.time() - path.lstat().st_mtime > _FRESH_S:
            os.utime(path, follow_symlinks=False)


def doomed(entries: Iterable[Entry], bound: int) -> list[Entry]:
    """The entries to delete, the least recently used first; empty within the limit. Includes
    abandoned half-written files."""
    now = time.time()
    found = sorted(entries, key=lambda entry: (entry.used, entry.path.name))
    half = [entry for entry in found if entry.path.name.startswith(".")]
    going = [entry for entry in half if now - entry.used > _LOST_S]
    whole = [entry for entry in found if not entry.path.name.startswith(".")]
    left = sum(entry.bytes for entry in whole)
    if left <= bound:
        return going
    for entry in whole:
        if left <= REMAINING_SHARE * bound:
            break
        going.append(entry)
        left -= entry.bytes
    return going


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Whether no other process evicts: of several that find the cache full, only one does."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(folder / LOCK, flags, 0o600)
    except OSError:
        yield False
        return
    try:
        try:
            os.fchmod(handle, 0o600)  # whatever the umask
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(handle)
