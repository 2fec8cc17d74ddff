"""Which version this is: by name, and by all that decides what it makes of a program."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

__version__ = "0.1.0.dev0"

_HERE = Path(__file__).parent


@functools.cache
def code() -> str:
    """Changes with this package's files: a checkout has one version for many states."""
    stats = [(str(file.relative_to(_HERE)), os.stat(file)) for file in files()]
    told = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    return hashlib.sha256(repr(told).encode()).hexdigest()


def files() -> list[Path]:
    """All that decides what is stitched, the headers of kernels among it."""
    folders = [_HERE, *(_HERE / floor for floor in ("codegen", "costmodel", "hlo"))]
    found = {file for folder in folders for file in folder.rglob("*")}  # links are not walked
    return sorted(f for f in found if f.suffix in (".py", ".json", ".cc", ".h", ".cuh"))
