"""What the numbers were measured on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from typing import Any

_PACKAGES = ("jax", "jaxlib", "cupy-cuda13x", "cupy-cuda12x", "numpy", "pulp", "highspy")


def describe(commit: str | None = None) -> dict[str, Any]:
    """GPU, driver, versions, commit (else git's) and date. It starts no JAX backend."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "gpu": _gpu("name"),
        "driver": _gpu("driver_version"),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "commit": commit or output(["git", "rev-parse", "--short=12", "HEAD"]),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def _gpu(field: str) -> str | None:
    query = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    text = output(query)
    return text.splitlines()[0] if text else None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def output(command: list[str]) -> str | None:
    """What a command prints, or None where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
