"""The version of the package: its name, and a hash of everything that decides its output."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

__version__ = "0.1.0.dev0"

_HERE = Path(__file__).parent


@functools.cache
def code() -> str:
    """A hash that changes with this package's files: a checkout has one version number for many
    states."""
    stats = [(str(file.relative_to(_HERE)), os.stat(file)) for file in files()]
    states = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    return hashlib.sha256(repr(states).encode()).hexdigest()


def files() -> list[Path]:
    """All files that decide what is stitched, including the headers of kernels."""
    folders = [_HERE, *(_HERE / floor for floor in ("codegen", "costmodel", "hlo"))]
    found = {file for folder in folders for file in folder.rglob("*")}  # no links
    return sorted(f for f in found if f.suffix in (".py", ".json", ".cc", ".h", ".cuh"))
