"""Clocks at the barriers of a kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import phases
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.runtime import nvrtc
from tests.codegen.cases import CASES

needs_nvrtc = pytest.mark.skipif(not nvrtc.available(), reason=nvrtc.available().reason)


def kernel() -> Kernel:
    return CASES["unrolled_steps"].case().kernel()


@needs_nvrtc
def test_each_phase_is_timed_by_a_clock_at_its_start_and_one_at_its_end() -> None:
    source, marks = phases.instrumented(kernel().source, kernel().name)
    barriers = kernel().source.count(phases.BARRIER)
    assert marks == 2 * (barriers + 1)
    assert [source.count(f"fs_mark(fs_times, {n});") for n in range(marks)] == [1] * marks
    first = source.index("fs_mark(fs_times, 0);")
    assert source.index(") {\n", source.index(f"{kernel().name}(\n")) < first
    assert first < source.index("fs_mark(fs_times, 1);") < source.index(phases.BARRIER)
    assert nvrtc.compile(source, "sm_90").image


@needs_nvrtc
def test_a_folder_holds_what_measuring_needs(tmp_path: Path) -> None:
    phases.main(["build", str(tmp_path), "logistic.py:train_step"])
    [path] = tmp_path.glob("*.json")
    assert path.with_suffix(".cubin").read_bytes().startswith(b"\x7fELF")
    launch = phases.read(path)
    assert len(launch["phases"]) == len(launch["modelled_us"]) == launch["marks"] // 2


def test_the_phases_of_clocks() -> None:
    clocks = np.array([[0, 100], [300, 600], [700, 700], [1000, 900]])  # marks by blocks
    own, whole = phases.times(clocks, 10.0)
    assert own == [50.0, 30.0]  # the slowest block, from one barrier to the next
    assert whole == [70.0, 30.0]  # the first block, with its waiting
