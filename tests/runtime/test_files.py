"""Files written into folders of others: links are not followed, and no file is left incomplete."""

from __future__ import annotations

import dataclasses
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
    victim, elsewhere = tmp_path / "victim", tmp_path / "elsewhere"
    victim.write_text("precious")
    elsewhere.mkdir()
    folder = tmp_path / "dumped"
    (folder / kernel.name).mkdir(parents=True)
    (folder / kernel.name / "00_kernel.cu").symlink_to(victim)
    (folder / "fusionstitch.cuh").symlink_to(victim)
    monkeypatch.setenv("FUSIONSTITCH_DUMP_DIR", str(folder))
    dump.kernels({kernel: tuple})
    assert victim.read_text() == "precious"
    assert (folder / kernel.name / "00_kernel.cu").read_text("utf-8") == kernel.source
    other = dataclasses.replace(kernel, name="other")
    (folder / "other").symlink_to(elsewhere)
    dump.kernels({other: tuple})
    assert list(elsewhere.iterdir()) == []
    assert (folder / "other" / "00_kernel.cu").read_text("utf-8") == kernel.source


def test_a_folder_that_is_a_link_takes_no_file_unless_it_may(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with pytest.raises(OSError, match=r"link|directory"):
        files.replace(tmp_path / "link" / "file", "text", linked=False)
    assert list((tmp_path / "there").iterdir()) == []
    files.replace(tmp_path / "link" / "file", "text")
    assert (tmp_path / "there" / "file").read_text() == "text"
