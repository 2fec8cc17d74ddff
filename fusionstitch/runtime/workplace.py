"""Folders for the files of some work, such as a compiler's: they outlive neither it nor, for long,
the process that asked."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fusionstitch.runtime import trust

PREFIX = "fusionstitch-work-"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A new folder for this user alone, removed at the end. The first one of a process also removes
    those of killed processes. Raises OSError."""
    _sweep(tempfile.gettempdir())
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        trust.open_to_its_owner(path)
        with _locked(path) as mine:
            if not mine:  # taken for an old one in between
                continue
            try:
                yield path
            finally:
                shutil.rmtree(path, ignore_errors=True)
            return


@functools.cache
def _sweep(place: str) -> None:
    """Removes what this user's killed processes left in `place`."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError), _locked(Path(entry.path)) as mine:
                    if mine:
                        shutil.rmtree(entry.path, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether a folder is this user's, still there and nobody's at work: a lock goes with the
    process that holds it, however it ends and whatever number another one gets."""
    with trust.opened(path) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        facts = os.fstat(handle)
        yield facts.st_uid == os.getuid() and facts.st_nlink > 0
