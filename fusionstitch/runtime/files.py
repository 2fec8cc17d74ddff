"""Writing a file into a folder that others may have prepared."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def folder(path: Path) -> None:
    """Makes a folder at `path` if there is none; replaces a link by a folder. Raises OSError."""
    if path.is_symlink():
        path.unlink()
    path.mkdir(exist_ok=True)


def replace(path: Path, text: str, linked: bool = True) -> None:
    """Writes UTF-8 text to `path`, like `replace_bytes`."""
    replace_bytes(path, text.encode("utf-8", "backslashreplace"), linked)


def replace_bytes(path: Path, data: bytes, linked: bool = True) -> None:
    """Writes a file to `path`, completely or not at all.

    An existing file is replaced, not written to: a link is not followed, and a file with other hard
    links is unchanged under those. The folder may be a link if `linked`. Raises OSError.
    """
    follow = 0 if linked else os.O_NOFOLLOW
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow)
    try:
        temporary = f".{path.name}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(temporary, flags, 0o666, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
    finally:
        os.close(folder)
