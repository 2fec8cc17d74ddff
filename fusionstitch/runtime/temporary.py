"""Temporary folders, for example for a compiler. They do not outlive the work, nor for long a
process that was killed."""

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
    """A new folder for this user only, removed at the end. The first one of a process also removes
    those of killed processes. Raises OSError."""
    _sweep(tempfile.gettempdir())
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        trust.open_to_its_owner(path)
        with _locked(path) as mine:
            if not mine:  # another process took it for an old one
                continue
            try:
                yield path
            finally:
                shutil.rmtree(path, ignore_errors=True)
            return


@functools.cache
def _sweep(parent: str) -> None:
    """Removes what this user's killed processes left in `parent`."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError), _locked(Path(entry.path)) as mine:
                    if mine:
                        shutil.rmtree(entry.path, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether a folder belongs to this user, still exists, and is not in use. A lock ends with the
    process that holds it, however that ends and whatever process reuses its number."""
    with trust.opened(path) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        facts = os.fstat(handle)
        yield facts.st_uid == os.getuid() and facts.st_nlink > 0
