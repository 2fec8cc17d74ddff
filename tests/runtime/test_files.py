"""Files that are put into folders of others: links lead nowhere, and nothing is left half done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusionstitch.compiler import dump
from fusionstitch.runtime import files
from tests.codegen.cases import CASES


def test_a_link_is_replaced_and_what_it_names_stays(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "soft").symlink_to(victim)
    os.link(victim, tmp_path / "hard")
    (tmp_path / "dangling").symlink_to(tmp_path / "made")
    for name in ("soft", "hard", "dangling", "new"):
        files.replace(tmp_path / name, "text\ud800 \u65e5")
        assert (tmp_path / name).read_text("utf-8") == "text\\ud800 \u65e5"
        assert not (tmp_path / name).is_symlink()
    assert victim.read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["victim", "soft", "hard", "dangling", "new"]
    )


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="directory"):
        files.replace(tmp_path / "taken", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]
    with pytest.raises(FileNotFoundError):
        files.replace(tmp_path / "absent" / "file", "text")


def test_dumps_write_through_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = CASES["chain"].case().kernel()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "dumped"
    folder.mkdir()
    (folder / f"{kernel.name}.cu").symlink_to(victim)
    monkeypatch.setenv("FUSIONSTITCH_DUMP_DIR", str(folder))
    dump.kernels([kernel])
    assert victim.read_text() == "precious"
    assert (folder / f"{kernel.name}.cu").read_text("utf-8") == kernel.source
