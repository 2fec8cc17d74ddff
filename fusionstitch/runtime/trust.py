"""Who could have written a file: code from a cache runs only if nobody else could have."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Bytes of the largest file that is kept and read.
MOST_BYTES = 1 << 28
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
_PRIVATE = 0o700
_WRITABLE = "{} is writable for other users: run `chmod go-w` on it."
#: Parts of a path, those of links included, from which on it is taken for a circle.
_MOST_STEPS = 4096


def folder(path: Path) -> Verdict:
    """Whether nobody but this user (and root) can change what is found under `path`.

    The folder is this user's and writable for nobody else. So is each folder on the way, or it is
    root's, or nobody can replace what others put there (the sticky bit), or nobody else gets there
    because a folder above is closed to others. The way is walked as the system does: links are
    looked at and followed one by one, and `..` is where it leads from there.
    Raises OSError for a folder that is not there.
    """
    way = [(Path("/"), False)]  # the folders that lead here, and whether others are kept out
    left = [*reversed(Path.cwd().parts)] if not path.is_absolute() else []
    left[:0] = reversed(path.parts)
    for _ in range(_MOST_STEPS):
        if not left:
            break
        if (part := left.pop()) == "..":
            way = way[:-1] or way
            continue
        above, closed = (Path("/"), False) if part == "/" else way[-1]
        place = above / part
        facts = place.lstat()
        if not _mine(facts) and facts.st_uid != 0:
            return forbid(f"{place} belongs to another user.")
        if stat.S_ISLNK(facts.st_mode):
            left += reversed(Path(os.readlink(place)).parts)
            continue
        if facts.st_mode & _OTHERS_WRITE and not (closed or facts.st_mode & stat.S_ISVTX):
            return forbid(_WRITABLE.format(place))
        closed = closed or (_mine(facts) and not facts.st_mode & _OTHERS_ENTER)
        way = [(place, closed)] if part == "/" else [*way, (place, closed)]
    else:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    found, _ = way[-1]
    facts = found.lstat()
    if not _mine(facts):
        return forbid(f"{found} belongs to another user.")
    return allow() if not facts.st_mode & _OTHERS_WRITE else forbid(_WRITABLE.format(found))


def make(path: Path) -> None:
    """Makes the folder and those above it that are missing, whatever the umask, with mode 0700."""
    for place in (*reversed(path.parents), path):
        if not place.exists():
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=_PRIVATE)
                open_to_its_owner(place)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is no folder")


def open_to_its_owner(place: Path) -> None:
    """Gives a new folder its mode if the umask took some of it, through no link."""
    handle = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(handle)
        if _mine(facts) and facts.st_mode & _PRIVATE != _PRIVATE:
            os.chmod(f"/proc/self/fd/{handle}", _PRIVATE)  # such a handle knows no fchmod
    finally:
        os.close(handle)


@contextlib.contextmanager
def opened(place: Path | str, above: int | None = None) -> Iterator[int]:
    """A folder's handle for `dir_fd`, of one that is no link; `above` is that of the folder it
    lies in. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(place, flags, dir_fd=above)
    try:
        yield handle
    finally:
        os.close(handle)


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

    Raises OSError for a file that is not there, cannot be read, is a link or larger than any of
    ours: a sparse one would take all memory.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if facts.st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.read() if stat.S_ISREG(facts.st_mode) and _own(facts) else None


def _own(facts: os.stat_result) -> bool:
    return _mine(facts) and not facts.st_mode & _OTHERS_WRITE


def _mine(facts: os.stat_result) -> bool:
    return facts.st_uid == os.getuid()
