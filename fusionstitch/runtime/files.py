"""Writing a file into a folder that others may have prepared."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def folder(path: Path) -> None:
    """Makes a folder at `path` where there is none; a link is replaced by one. Raises OSError."""
    if path.is_symlink():
        path.unlink()
    path.mkdir(exist_ok=True)


def replace(path: Path, text: str, linked: bool = True) -> None:
    """Puts a file of UTF-8 text at `path`, as `replace_bytes` does."""
    replace_bytes(path, text.encode("utf-8", "backslashreplace"), linked)


def replace_bytes(path: Path, data: bytes, linked: bool = True) -> None:
    """Puts a file at `path`, whole or not at all.

    What was there is replaced and not written to: a link leads nowhere, and a file that has other
    names keeps its content under those. Its folder may be `linked`. Raises OSError.
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
