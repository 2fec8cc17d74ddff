"""The folder that FUSIONSTITCH_DUMP_DIR names."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.snapshots.snapshots import Snapshot
from fusionstitch.compiler import dump
from tests.codegen.cases import CASES

STEPS = (Snapshot("region", "one\n"), Snapshot("strength again", "two\n"))


@pytest.fixture
def kernel() -> Kernel:
    return CASES["chain"].case().kernel()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUSIONSTITCH_DUMP_DIR", str(tmp_path / "dump"))
    return tmp_path / "dump"


def dumped(folder: Path, kernel: Kernel) -> dict[str, str]:
    return {p.name: p.read_text("utf-8") for p in sorted((folder / kernel.name).iterdir())}


def test_steps_are_numbered_and_the_text_is_last(folder: Path, kernel: Kernel) -> None:
    dump.kernels({kernel: lambda: STEPS})
    assert dumped(folder, kernel) == {
        "00_region.txt": "one\n",
        "01_strength_again.txt": "two\n",
        "02_kernel.cu": kernel.source,
    }


def test_what_a_kernel_includes_lies_beside_it(folder: Path, kernel: Kernel) -> None:
    dump.kernels({kernel: tuple})
    texts = [kernel.source, *(p.read_text("utf-8") for p in folder.glob("*.*h"))]
    named = {name for text in texts for name in re.findall(r'#include "(.+)"', text)}
    assert {"fusionstitch.cuh", "reduce.cuh"} <= named
    assert [name for name in named if not (folder / name).is_file()] == []


def test_another_dump_leaves_nothing_of_the_one_before(folder: Path, kernel: Kernel) -> None:
    dump.kernels({kernel: lambda: STEPS})
    (folder / kernel.name / "notes.txt").write_text("mine")
    (folder / kernel.name / "99_more").write_text("mine")
    dump.kernels({kernel: lambda: STEPS[:1]})
    assert list(dumped(folder, kernel)) == [
        *("00_region.txt", "01_kernel.cu", "99_more", "notes.txt")
    ]


def test_what_cannot_be_drawn_costs_a_line_of_the_log(
    folder: Path, kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Sequence[Snapshot]:
        raise KeyError("lost")

    with caplog.at_level(logging.WARNING, "fusionstitch"):
        dump.kernels({kernel: fail})
    assert dumped(folder, kernel) == {"00_kernel.cu": kernel.source}
    assert "cannot be drawn" in caplog.text


def test_nothing_is_drawn_that_is_not_dumped(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FUSIONSTITCH_DUMP_DIR", raising=False)
    dump.kernels({kernel: pytest.fail})
