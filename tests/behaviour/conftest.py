"""The execution paths that `fs.jit` takes, each as the `jit` of a test."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders
from fusionstitch.execution import deferred
from fusionstitch.hlo.verdict import allow
from fusionstitch.runtime import cuda, xla_pass
from fusionstitch.runtime.cache import Store

#: Stitches whatever it can, so that programs of a few elements are stitched too.
EMULATE = fs.Options(backend="emulate", scorer="paper")


@pytest.fixture
def emulated(host_compiler: str) -> Callable[..., Any]:
    """`fs.jit` through the emulator."""
    return functools.partial(fs.jit, options=EMULATE)


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """`fs.jit` as on a GPU up to the pass: functions are marked, and XLA compiles for the CPU."""
    store = Store(tmp_path / "cache")
    monkeypatch.setenv("FUSIONSTITCH_SCORER", "model")  # no GPU here can be asked
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA H200"))
    monkeypatch.setattr(builders, "store", lambda: store)
    monkeypatch.setattr(cuda, "register_launcher", lambda store: allow())
    monkeypatch.setattr(xla_pass, "register", lambda callback: allow())
    deferred.reasons.clear()
    deferred.errors.clear()
    return fs.jit


@pytest.fixture(params=["emulated", "marked"])
def jit(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`fs.jit` on each execution path that needs no GPU."""
    made: Callable[..., Any] = request.getfixturevalue(request.param)
    return made
