"""Who could have written a file: folders on the path, links, entries."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusionstitch.runtime import trust


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Pytest's own is closed to others, which is what some of these tests must not have."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trust.make(tmp_path / "a" / "b" / "cache")
    for place in (tmp_path / "a", tmp_path / "a" / "b"):
        place.chmod(0o755)
    return tmp_path / "a" / "b" / "cache"


def foreign(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inode, mine = path.lstat().st_ino, trust._mine
    monkeypatch.setattr(trust, "_mine", lambda facts: mine(facts) and facts.st_ino != inode)
    if os.getuid() == 0:
        os.chown(path, 12345, 12345, follow_symlinks=False)


def test_folders_are_made_for_their_user_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        trust.make(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [p.stat().st_mode & 0o777 for p in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700] * 2
    assert trust.folder(tmp_path / "a" / "b")


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o720, 0o702])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_folder_that_others_can_write_to(folder: Path, which: int, mode: int) -> None:
    place = (folder, *folder.parents)[which]
    assert trust.folder(folder)
    place.chmod(mode)
    verdict = trust.folder(folder)
    assert not verdict
    assert verdict.reason == f"{place} is writable for other users: run `chmod go-w` on it."


def test_nobody_gets_below_a_closed_folder(folder: Path, tmp_path: Path) -> None:
    folder.parent.chmod(0o775)  # as a umask of 002 makes ~/.cache
    assert not trust.folder(folder)
    for closed in (0o700, 0o744):
        (tmp_path / "a").chmod(closed)
        assert trust.folder(folder)
    (tmp_path / "a").chmod(0o711)
    assert not trust.folder(folder)
    (tmp_path / "a").chmod(0o700)
    folder.chmod(0o770)
    assert not trust.folder(folder)


def test_the_sticky_bit_keeps_what_is_inside(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    assert trust.folder(folder)
    folder.chmod(0o1777)
    assert not trust.folder(folder)


@pytest.mark.parametrize("which", [0, 1])
def test_a_folder_of_another_user(
    folder: Path, which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (folder, *folder.parents)[which]
    foreign(place, monkeypatch)
    if os.getuid() != 0 or which == 0:
        monkeypatch.setattr(os, "getuid", lambda: folder.parent.parent.stat().st_uid or 1)
    verdict = trust.folder(folder)
    assert not verdict
    assert "belongs to another user" in verdict.reason


def test_links_are_followed_one_by_one(folder: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    first, second = tmp_path / "first", shared / "second"
    first.symlink_to(second)
    second.symlink_to(folder)
    assert trust.folder(first)
    shared.chmod(0o777)
    verdict = trust.folder(first)
    assert not verdict
    assert str(shared) in verdict.reason


def test_up_is_where_a_link_leads_to(folder: Path, tmp_path: Path) -> None:
    """`here/link/../cache` is beside what the link names, not beside the link."""
    shared = tmp_path / "shared"
    (shared / "deep").mkdir(parents=True)
    (shared / "cache").mkdir(mode=0o700)
    (folder / "link").symlink_to(shared / "deep")
    (folder / "cache").mkdir(mode=0o700)
    way = folder / "link" / ".." / "cache"
    assert trust.folder(way)
    shared.chmod(0o777)
    verdict = trust.folder(way)
    assert not verdict
    assert str(shared) in verdict.reason
    assert trust.folder(folder / "cache")
    # and the other way round: what lies beside the link has no say
    shared.chmod(0o755)
    (folder / "cache").chmod(0o777)
    assert trust.folder(way)


def test_links_within_links_and_paths_from_here(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "up").symlink_to(Path("a") / "b" / ".." / "b")
    (folder / "self").symlink_to(".")
    assert trust.folder(tmp_path / "up" / "cache" / "self" / "self" / ".." / "cache")
    monkeypatch.chdir(folder.parent)
    assert trust.folder(Path("cache"))
    assert trust.folder(Path("../b/cache"))
    assert trust.folder(Path("../../../../../../../..") / str(folder)[1:])
    folder.chmod(0o722)
    assert not trust.folder(Path("cache"))


@pytest.mark.parametrize("umask", [0o777, 0o700, 0o277, 0o022, 0])
def test_no_umask_makes_a_folder_unusable(tmp_path: Path, umask: int) -> None:
    from fusionstitch.runtime.cache import Database, Store

    before = os.umask(umask)
    try:
        store = Store(tmp_path / "a" / "cache")
        store.put("key", b"value")
        database = Database(tmp_path / "a" / "cache")
        database.put_timing("key", "h200", 1.0, {})
        database.close()
    finally:
        os.umask(before)
    modes = {p.stat().st_mode & 0o777 for p in (tmp_path / "a").rglob("*") if p.is_dir()}
    assert modes | {(tmp_path / "a").stat().st_mode & 0o777} == {0o700}
    assert {p.stat().st_mode & 0o777 for p in tmp_path.rglob("*") if p.is_file()} == {0o600}
    assert store.persistent
    assert database.persistent


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    with pytest.raises((OSError, RuntimeError)):
        trust.folder(tmp_path / "one")


def test_what_is_read_is_a_file_of_one_s_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "entry"
    path.write_bytes(b"code")
    path.chmod(0o600)
    assert trust.read(path) == b"code"
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        assert trust.read(path) is None
    path.chmod(0o644)
    assert trust.read(path) == b"code"
    (folder / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        trust.read(folder / "link")
    os.mkfifo(folder / "pipe", 0o600)
    assert trust.read(folder / "pipe") is None
    foreign(path, monkeypatch)
    assert trust.read(path) is None
