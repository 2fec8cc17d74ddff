"""Copies of the checkout as others get it: the tracked files, and nothing that lies around."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@cache
def tracked() -> tuple[str, ...]:
    """The paths of the checkout's files and links."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(sorted(filter(None, listed.stdout.split("\0"))))


def copied(folder: Path) -> Path:
    """`folder`, with the tracked files as they are now; links stay links."""
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """What a command prints in `folder` for who has no variable of ours or of Python's."""
    done = attempt(command, folder, **environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def attempt(
    command: Sequence[str | Path], folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The same for a command that may fail."""
    ours = ("FUSIONSTITCH", "PYTHONPATH", "JAX_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    kept["FUSIONSTITCH_CACHE_DIR"] = os.environ["FUSIONSTITCH_CACHE_DIR"]
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=kept | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def python(*arguments: str | Path) -> list[str | Path]:
    return [sys.executable, *arguments]
