"""Who could have written a file: code from a cache runs only if nobody else could have."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Size of the largest file that is stored and read, in bytes.
MOST_BYTES = 1 << 28
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
_PRIVATE = 0o700
_WRITABLE = "{} is writable for other users: run `chmod go-w` on it."
#: The most path components, including those of links, before a path counts as circular.
_MOST_STEPS = 4096


def folder(path: Path) -> Verdict:
    """Whether only this user (and root) can change what is found under `path`.

    The folder must belong to this user and be writable for nobody else. Each folder on the way must
    satisfy one of these: the same holds for it; it is root's; it has the sticky bit, so that nobody
    can replace others' files; or a folder above it is closed to others. The path is walked as the
    system does: links are checked and followed one by one, and `..` is the parent at that point.
    Raises OSError for a missing folder.
    """
    way = [(Path("/"), False)]  # the folders on the way, and whether others are kept out
    left = [*reversed(Path.cwd().parts)] if not path.is_absolute() else []
    left[:0] = reversed(path.parts)
    for _ in range(_MOST_STEPS):
        if not left:
            break
        if (part := left.pop()) == "..":
            way = way[:-1] or way
            continue
        above, closed = (Path("/"), False) if part == "/" else way[-1]
        here = above / part
        facts = here.lstat()
        if not _mine(facts) and facts.st_uid != 0:
            return forbid(f"{here} belongs to another user.")
        if stat.S_ISLNK(facts.st_mode):
            left += reversed(Path(os.readlink(here)).parts)
            continue
        if facts.st_mode & _OTHERS_WRITE and not (closed or facts.st_mode & stat.S_ISVTX):
            return forbid(_WRITABLE.format(here))
        closed = closed or (_mine(facts) and not facts.st_mode & _OTHERS_ENTER)
        way = [(here, closed)] if part == "/" else [*way, (here, closed)]
    else:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    found, _ = way[-1]
    facts = found.lstat()
    if not _mine(facts):
        return forbid(f"{found} belongs to another user.")
    return allow() if not facts.st_mode & _OTHERS_WRITE else forbid(_WRITABLE.format(found))


def make(path: Path) -> None:
    """Makes the folder and missing parents with mode 0700, whatever the umask."""
    for here in (*reversed(path.parents), path):
        if not here.exists():
            with contextlib.suppress(FileExistsError):
                here.mkdir(mode=_PRIVATE)
                open_to_its_owner(here)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a folder")


def open_to_its_owner(here: Path) -> None:
    """Restores the mode of a new folder if the umask removed bits, without following a link."""
    handle = os.open(here, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(handle)
        if _mine(facts) and facts.st_mode & _PRIVATE != _PRIVATE:
            os.chmod(f"/proc/self/fd/{handle}", _PRIVATE)  # fchmod does not work on such a handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def opened(here: Path | str, above: int | None = None) -> Iterator[int]:
    """A folder's handle for `dir_fd`; the folder must not be a link. `above` is the handle of its
    parent. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(here, flags, dir_fd=above)
    try:
        yield handle
    finally:
        os.close(handle)


def entry(path: Path) -> bool:
    """Whether a folder or file inside a trusted folder belongs to this user, and is not a link."""
    facts = path.lstat()
    return not stat.S_ISLNK(facts.st_mode) and _own(facts)


def own(path: Path) -> bool:
    """Whether a path in a trusted folder does not exist, or is this user's file."""
    if not os.path.lexists(path):
        return True
    facts = path.lstat()
    return not stat.S_ISLNK(facts.st_mode) and _mine(facts)


def read(path: Path) -> bytes | None:
    """The content of a file if only this user could have written it, else None.

    Raises OSError for a file that is missing, unreadable, a link, or larger than any of ours: a
    sparse file would take all memory.
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
