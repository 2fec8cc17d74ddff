"""The cache survives what disks and other processes do to it, and never raises."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusionstitch.runtime import cache
from fusionstitch.runtime.cache import Database, Store, Timing


@pytest.fixture(autouse=True)
def every_warning_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_warned", set())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def database(folder: Path) -> Iterator[Database]:
    made = Database(folder)
    yield made
    made.close()


def only_file(folder: Path) -> Path:
    (path,) = (p for p in (folder / "objects").rglob("*") if p.is_file())
    return path


def known(database: Database, key: str) -> float | None:
    """The time that the database holds for the H200."""
    found = database.get_timing(key, "h200")
    return None if found is None else found.us


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_CACHE_DIR", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache.default_folder() == Path("/a")
    monkeypatch.delenv("FUSIONSTITCH_CACHE_DIR")
    assert cache.default_folder() == Path("/b/fusionstitch")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert cache.default_folder() == Path("/c/.cache/fusionstitch")


def test_a_value_outlives_the_store(folder: Path) -> None:
    Store(folder).put("key", b"value")
    assert Store(folder).get("key") == b"value"
    assert Store(folder).get("other") is None


def test_put_replaces(folder: Path) -> None:
    store = Store(folder)
    store.put("key", b"old")
    store.put("key", b"new")
    assert store.get("key") == b"new"
    assert store.usage() == (1, len(b"new") + 32)


def test_only_the_owner_can_read(folder: Path) -> None:
    Store(folder).put("key", b"value")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(only_file(folder).stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 64])
def test_a_corrupt_entry_is_a_miss_and_goes_away(folder: Path, damage: bytes) -> None:
    store = Store(folder)
    store.put("key", b"value")
    path = only_file(folder)
    path.write_bytes(damage)
    assert store.get("key") is None
    assert not path.exists()


def test_an_entry_under_another_name_is_a_miss(folder: Path) -> None:
    store = Store(folder)
    store.put("a", b"value of a")
    moved = store._path("b")
    moved.parent.mkdir(exist_ok=True)
    only_file(folder).rename(moved)
    assert store.get("b") is None


def test_clear_forgets_everything(folder: Path) -> None:
    store = Store(folder)
    store.put("a", b"1")
    store.put("b", b"2")
    assert store.usage()[0] == 2
    store.clear()
    assert store.usage() == (0, 0)
    assert store.get("a") is None


def test_clear_follows_no_link(folder: Path, tmp_path: Path) -> None:
    store = Store(folder)
    store.put("a", b"1")
    entry = only_file(folder)
    kept = tmp_path / "elsewhere" / "ab"
    kept.mkdir(parents=True)
    (kept / "precious").write_text("mine")
    (folder / "objects" / "ab").symlink_to(kept)
    (folder / "objects" / "stray").symlink_to(kept / "precious")
    entry.with_name("link").symlink_to(kept / "precious")
    assert {path.name for path in store.corrupt()} == {"ab", "stray", "link"}
    store.clear()
    assert (kept / "precious").read_text() == "mine"
    assert store.usage() == (0, 0)
    assert [p for p in folder.rglob("*") if p.is_symlink() or p.is_file()] == []
    store.put("b", b"2")
    assert Store(folder).get("b") == b"2"
    # nor one in the place of all entries
    (folder / "objects").rename(tmp_path / "objects")
    (folder / "objects").symlink_to(tmp_path / "objects")
    Store(folder).clear()
    assert len([p for p in (tmp_path / "objects").rglob("*") if p.is_file()]) == 1


def test_a_deleted_folder_is_made_again(folder: Path) -> None:
    store = Store(folder)
    store.put("a", b"1")
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    folder.rmdir()
    assert store.get("a") is None
    store.put("a", b"2")
    assert store.get("a") == b"2"


def test_a_folder_others_can_write_is_refused_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        first, second = Store(folder), Store(folder)
    (record,) = caplog.records
    assert "writable for other users" in record.message
    assert "chmod go-w" in record.message
    assert not first.persistent
    assert not second.persistent
    first.put("key", b"value")
    assert first.get("key") == b"value"
    assert first.usage() == (1, 5)
    assert list(folder.iterdir()) == []
    first.clear()
    assert first.get("key") is None


def test_a_folder_of_another_user_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert not Store(folder).persistent
    assert not Database(folder).persistent
    assert "belongs to another user" in caplog.text


def test_a_path_that_is_no_folder_degrades(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    store, database = Store(tmp_path / "file"), Database(tmp_path / "file")
    store.put("key", b"value")
    database.put_timing("key", "h200", 1.0, {})
    assert (store.get("key"), known(database, "key")) == (b"value", 1.0)
    assert len(caplog.records) == 1  # one fault, one warning


def test_a_full_disk_degrades(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(folder)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    store.put("key", b"value")
    assert store.get("key") == b"value"
    assert not store.persistent
    assert "No space left" in caplog.text
    assert [p for p in folder.rglob("*") if p.is_file()] == []


def test_timings_outlive_the_object(folder: Path, database: Database) -> None:
    database.put_timing("k2", "h200", 2.5, {"repeats": 7})
    database.put_timing("k1", "h200", 1.0, {})
    database.put_timing("k1", "l4", 3.0, {})
    database.put_timing("k1", "h200", 1.5, {})
    again = Database(folder)
    assert again.get_timing("k2", "h200") == Timing("k2", "h200", 2.5, {"repeats": 7})
    assert again.get_timing("k2", "l4") is None
    assert (known(again, "k1"), known(again, "k2")) == (1.5, 2.5)
    assert again.persistent
    again.clear()
    assert known(again, "k1") is None
    again.close()


def test_the_database_is_private_and_in_wal_mode(folder: Path, database: Database) -> None:
    database.put_timing("p", "h200", 1.0, {})
    path = folder / "timings.sqlite3"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with contextlib.closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_corrupt_database_starts_afresh(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir(mode=0o700)
    (folder / "timings.sqlite3").write_bytes(b"this is no database" * 100)
    database = Database(folder)
    assert known(database, "p") is None
    database.put_timing("p", "h200", 1.0, {})
    assert known(database, "p") == 1.0
    assert database.persistent
    assert [r.message for r in caplog.records if "starts afresh" in r.message]
    database.close()


def test_a_locked_database_is_a_miss(
    folder: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(cache, "_BUSY_SECONDS", 0.01)
    database.put_timing("p", "h200", 1.0, {})
    database.close()
    other = sqlite3.connect(folder / "timings.sqlite3", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    database.put_timing("q", "h200", 1.0, {})
    other.execute("ROLLBACK")
    other.close()
    assert known(database, "q") is None
    assert known(database, "p") == 1.0
    assert "is locked by another process" in caplog.text


def test_a_database_that_cannot_be_opened_lives_in_memory(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "timings.sqlite3").mkdir(parents=True)
    folder.chmod(0o700)
    database = Database(folder)
    database.put_timing("p", "h200", 1.0, {})
    assert known(database, "p") == 1.0
    assert not database.persistent
    assert "cannot be used" in caplog.text


WRITER = """
import sys
from pathlib import Path
from fusionstitch.runtime.cache import Database, Store
folder, name = Path(sys.argv[1]), sys.argv[2]
store, database = Store(folder), Database(folder)
for i in range(40):
    store.put("shared", bytes([i]) * 1000)
    assert len(store.get("shared")) == 1000
    database.put_timing(f"{name}{i:02d}", "h200", float(i), {})
database.close()
"""


def test_processes_share_one_folder(folder: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WRITER, str(folder)]
    running = [subprocess.Popen([*command, name]) for name in "ab"]
    assert [process.wait() for process in running] == [0, 0]
    database = Database(folder)
    expected = [f"{name}{i:02d}" for name in "ab" for i in range(40)]
    assert all(known(database, key) is not None for key in expected)
    database.close()
    assert len(Store(folder).get("shared") or b"") == 1000


def test_a_fork_opens_its_own_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.put_timing("p", "h200", 1.0, {})
    before = database._connection
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert known(database, "p") == 1.0
    assert database._connection is not before
    assert before is not None
    before.close()


def test_tuned_patterns_are_stored_by_versions(folder: Path, database: Database) -> None:
    database.put_tuned("k", "h200", "v2", {"us": 2.0})
    database.put_tuned("k", "h200", "v1", {"us": 1.0})
    database.put_tuned("k", "h200", "v2", {"us": 3.0})
    database.put_tuned("k", "l4", "v1", {})
    again = Database(folder)
    assert again.tuned("h200") == (("k", "v1", {"us": 1.0}), ("k", "v2", {"us": 3.0}))
    again.clear()
    assert database.tuned("h200") == ()
    again.close()


def test_a_locked_database_is_waited_for_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Database(folder)
    first.put_timing("k", "h200", 1.0, {})
    first.close()
    waits: list[float] = []
    plain = sqlite3.connect

    def connect(*args: Any, **kwargs: Any) -> Any:
        waits.append(kwargs["timeout"])
        return plain(*args, **kwargs)

    monkeypatch.setattr(cache, "_BUSY_SECONDS", 0.05)
    other = plain(folder / "timings.sqlite3", isolation_level=None)
    other.execute("PRAGMA journal_mode=DELETE")  # with a log of writes readers need not wait
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr("fusionstitch.runtime.cache.sqlite3.connect", connect)
    try:
        for _ in range(3):  # as three compiles
            database = Database(folder)
            assert database.get_timing("k", "h200") is None
            database.put_timing("k", "h200", 2.0, {})
            database.close()
    finally:
        other.close()
    assert waits[0] == 0.05
    assert set(waits[1:]) == {0.0}
    assert known(Database(folder), "k") == 1.0


@pytest.mark.parametrize(
    ("us", "meta"),
    [(-1.0, "{}"), (1e999, "{}"), (1.0, "[" * 9999), (1.0, "[]"), (1.0, "9" * 9999)],
)
def test_a_bad_time_is_dropped_and_others_stay(
    folder: Path, database: Database, us: float, meta: str
) -> None:
    database.put_timing("bad", "h200", 1.0, {})
    database.put_timing("good", "h200", 1.0, {})
    database.close()
    with sqlite3.connect(folder / "timings.sqlite3") as connection:
        connection.execute("UPDATE timings_v1 SET us = ?, meta = ? WHERE key = 'bad'", (us, meta))
    connection.close()
    assert database.get_timing("bad", "h200") is None
    assert known(database, "good") == 1.0
    database.close()
    with sqlite3.connect(folder / "timings.sqlite3") as connection:
        assert connection.execute("SELECT key FROM timings_v1").fetchall() == [("good",)]
    connection.close()
