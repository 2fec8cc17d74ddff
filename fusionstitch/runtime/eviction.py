"""Which entries of a full cache go: those that were used least recently.

An entry's time of change is when it was last used: it is set when the entry is read, if that was
long ago by then. All that this may cost is time: whoever misses an entry makes it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: Of the bound, what is left when entries went: the next ones are written without looking again.
KEPT_SHARE = 0.9
#: Of the bound, what a process writes before it looks again how much there is.
LOOK_SHARE = 1 / 32
#: The file that who makes room holds locked.
LOCK = "eviction.lock"
#: Seconds by which times of use may be wrong: reading an entry again and again writes nothing.
_FRESH_S = 3600.0
#: Seconds after which a half-written file belongs to nobody any more.
_LOST_S = 3600.0


@dataclass(frozen=True)
class Entry:
    """A file of the cache: when it was last used (seconds), its bytes, where it is."""

    used: float
    bytes: int
    path: Path


class Watch:
    """How much one process has written since it last looked how much there is. It looks at its
    first entry: others may have filled the cache."""

    def __init__(self) -> None:
        self._written = 0
        self._looked = False

    def wrote(self, size: int, bound: int) -> bool:
        """Whether it is time to look."""
        self._written += size
        if self._looked and self._written < LOOK_SHARE * bound:
            return False
        self._written, self._looked = 0, True
        return True


def used(path: Path) -> None:
    """Notes that an entry was read."""
    with contextlib.suppress(OSError):
        if time.time() - path.lstat().st_mtime > _FRESH_S:
            os.utime(path, follow_symlinks=False)


def doomed(entries: Iterable[Entry], bound: int) -> list[Entry]:
    """The entries that have to go, the least recently used first; none within the bound. What a
    killed process left half written goes as well."""
    now = time.time()
    found = sorted(entries, key=lambda entry: (entry.used, entry.path.name))
    half = [entry for entry in found if entry.path.name.startswith(".")]
    going = [entry for entry in half if now - entry.used > _LOST_S]
    whole = [entry for entry in found if not entry.path.name.startswith(".")]
    left = sum(entry.bytes for entry in whole)
    if left <= bound:
        return going
    for entry in whole:
        if left <= KEPT_SHARE * bound:
            break
        going.append(entry)
        left -= entry.bytes
    return going


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Whether no other process is at it: of several that find the cache full, one makes room."""
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
