"""Who could have written a file: code from a cache runs only if nobody else could have."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hlo.verdict import Verdict, allow, forbid

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH


def folder(path: Path) -> Verdict:
    """Whether nobody but this user (and root) can change what is found under `path`.

    The folder is this user's and writable for nobody else. So is each folder above it, or it is
    root's, or nobody can replace what others put there (the sticky bit), or nobody else gets there
    because a folder above is closed to others. Links are looked at as such and where they lead.
    Raises OSError for a folder that is not there.
    """
    path = Path(os.path.abspath(path))
    seen, left = {path}, [path]
    while left:
        target, closed = left.pop(), False
        for place in (*reversed(target.parents), target):
            facts = place.lstat()
            if not _mine(facts) and (place == path or facts.st_uid != 0):
                return forbid(f"{place} belongs to another user.")
            if stat.S_ISLNK(facts.st_mode):
                leads_to = Path(os.path.abspath(place.parent / os.readlink(place)))
                left += [] if leads_to in seen else [leads_to]
                seen.add(leads_to)
                continue
            kept = place != path and (closed or facts.st_mode & stat.S_ISVTX)
            if facts.st_mode & _OTHERS_WRITE and not kept:
                return forbid(f"{place} is writable for other users: run `chmod go-w` on it.")
            closed = closed or (_mine(facts) and not facts.st_mode & _OTHERS_ENTER)
    facts = path.stat()
    if not _mine(facts) or facts.st_mode & _OTHERS_WRITE:
        return forbid(f"{path} leads to a folder that others can write to.")
    return allow()


def make(path: Path) -> None:
    """Makes the folder and those above it that are missing, whatever the umask, with mode 0700."""
    for place in (*reversed(path.parents), path):
        if not place.exists():
            place.mkdir(mode=0o700, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is no folder")


def entry(path: Path) -> bool:
    """Whether a folder or a file inside a trusted folder is this user's own, and no link."""
    facts = path.lstat()
    return not stat.S_ISLNK(facts.st_mode) and _own(facts)


def own(path: Path) -> bool:
    """Whether a path in a trusted folder is free, or this user's file."""
    if not os.path.lexists(path):
        return True
    facts = path.lstat()
    return not stat.S_ISLNK(facts.st_mode) and _mine(facts)


def read(path: Path) -> bytes | None:
    """The content of a file if only this user could have written it, else None.

    Raises OSError for a file that is not there, cannot be read or is a link.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        return file.read() if stat.S_ISREG(facts.st_mode) and _own(facts) else None


def _own(facts: os.stat_result) -> bool:
    return _mine(facts) and not facts.st_mode & _OTHERS_WRITE


def _mine(facts: os.stat_result) -> bool:
    return facts.st_uid == os.getuid()
