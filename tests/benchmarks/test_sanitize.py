"""Kernels prepared for a GPU, launched on one that is made up: who notices a wrong result?"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import sanitize
from fusionstitch.runtime import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason=nvrtc.available().reason)


class Memory:
    """What CuPy gives for an array."""

    def __init__(self, array: np.ndarray):
        self.array, self.shape, self.nbytes, self.data = array, array.shape, array.nbytes, self
        self.ptr = array.ctypes.data

    def memset_async(self, value: int, size: int) -> None:
        ctypes.memset(self.ptr, value, size)


class Module:
    """A CUDA module; what is launched is done by `kernel`, with its run and its pointers."""

    kernel: Callable[[int, list[int]], None]

    def load(self, image: bytes) -> None:
        assert image.startswith(b"\x7fELF")
        self.run = -1

    def get_function(self, entry: str) -> Any:
        def call(grid: Any, block: Any, pointers: Any, **options: Any) -> None:
            assert options["enable_cooperative_groups"]
            self.run += 1
            Module.kernel(self.run, [int(pointer) for pointer in pointers])

        return call


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prepared kernel, and a made-up CuPy to launch it with."""
    cupy = types.ModuleType("cupy")
    function = types.SimpleNamespace(Module=Module)
    done = types.SimpleNamespace(synchronize=lambda: None)
    cuda = types.SimpleNamespace(function=function, Device=lambda: done)
    changes = {
        "cuda": cuda,
        "asarray": Memory,
        "empty": lambda *shape: Memory(np.empty(*shape)),
        "asnumpy": lambda memory: memory.array,
    }
    for name, value in changes.items():
        monkeypatch.setattr(cupy, name, value, raising=False)
    monkeypatch.setattr(sanitize, "COUNTERS", 1)
    sanitize.prepare(tmp_path, kinds=["counters"])
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return tmp_path


def right(pointers: list[int]) -> None:
    """Does what the kernel would."""
    [case] = sanitize.counters()
    [wanted] = case.wanted
    ctypes.memmove(pointers[len(case.inputs)], wanted.ctypes.data, wanted.nbytes)


def test_right_results_pass(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Module.kernel = lambda run, pointers: right(pointers)
    assert sanitize.launch(folder, 3) == 0
    assert capsys.readouterr().out == "1 kernels launched, 1 compared, 0 wrong; 3 runs each\n"


def test_a_run_that_writes_nothing_is_noticed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Module.kernel = lambda run, pointers: right(pointers) if run != 1 else None
    assert sanitize.launch(folder, 3) == 1
    assert "counters_0: wrong in 1 of 3 runs" in capsys.readouterr().out


def test_no_run_finds_what_the_one_before_has_left(folder: Path) -> None:
    last: list[bytes] = []

    def kernel(run: int, pointers: list[int]) -> None:
        last.append(ctypes.string_at(pointers[-1], 4))
        ctypes.memset(pointers[-1], 0, 4)

    Module.kernel = kernel
    sanitize.launch(folder, 2)
    assert last == [b"\xff" * 4] * 2


def test_delays_are_compiled_in_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitize, "COUNTERS", 1)
    images = []
    for delays in ("0", "1"):
        monkeypatch.setenv("FUSIONSTITCH_DELAYS", delays)
        sanitize.prepare(tmp_path, kinds=["counters"])
        images.append((tmp_path / "counters_0.cubin").read_bytes())
    assert images[0] != images[1]
