"""Where a command's answers go: to stdout or a file. All its other messages go to stderr."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fusionstitch.errors import FusionStitchError
from fusionstitch.hlo import foreign

#: The file name that means stdout.
STDOUT = Path("-")


def say(text: object, stream: str = "stdout") -> None:
    """Prints text that may quote a module."""
    put(foreign.lines(str(text)), stream)


def put(text: str, stream: str = "stdout") -> None:
    """Prints what the terminal's encoding can represent, if the stream is open."""
    if (file := getattr(sys, stream)) is not None and not file.closed:
        encoding = file.encoding or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=file, flush=True)


def write_json(path: Path, data: object, indent: int | None = 2) -> None:
    """Writes data as JSON into a file, or to stdout for "-"."""
    write(path, json.dumps(data, indent=indent, allow_nan=False) + "\n")


def check_writable(path: Path | None, stdout: bool = True) -> None:
    """Raises if a file cannot be written, before the work starts and not after it."""
    if path is None or (path == STDOUT and stdout):
        return
    if path == STDOUT:
        raise FusionStitchError("This goes into a file, not to stdout: write its name for '-'.")
    if not path.parent.is_dir():
        raise FusionStitchError(f"{path} cannot be written: there is no folder {path.parent}.")
    if path.is_dir():
        raise FusionStitchError(f"{path} cannot be written: it is a folder.")


def write(path: Path, text: str) -> None:
    """Writes into a file, or to stdout for "-"."""
    if path == STDOUT:
        put(text.rstrip("\n"))
        return
    try:
        path.write_text(text, "utf-8", "backslashreplace")
    except OSError as error:
        raise FusionStitchError(f"{path} cannot be written: {error.strerror}.") from None
