"""A full cache: which entries are evicted, also when several processes fill it at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fusionstitch.commands import cli
from fusionstitch.runtime import eviction
from fusionstitch.runtime.cache import Store
from fusionstitch.runtime.eviction import Entry, Watch, doomed

KB = 1000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("FUSIONSTITCH_CACHE_LIMIT", "100KB")
    return Store(tmp_path / "cache")


def age(store: Store, key: str, hours: float) -> None:
    at = time.time() - 3600 * hours
    os.utime(store._path(key), (at, at))


def remaining(store: Store, keys: str) -> str:
    return "".join(key for key in keys if store._path(key).exists())


def test_what_was_used_least_recently_goes(store: Store) -> None:
    for number, key in enumerate("abcde"):
        store.put(key, b"x" * 15 * KB)
        age(store, key, 10 - number)
    assert store.get("a") is not None  # used now
    store.put("f", b"x" * 30 * KB)
    assert remaining(store, "abcdef") == "acdef"
    store.put("g", b"x" * KB)
    store.put("h", b"x" * 15 * KB)
    assert remaining(store, "abcdefgh") == "adefgh"
    assert store.usage()[1] <= eviction.REMAINING_SHARE * (100 << 10)


def test_a_new_process_finds_that_others_filled_the_cache(store: Store) -> None:
    for key in "abcdefgh":
        store.put(key, b"x" * 10 * KB)
    other = Store(store.folder)
    other.limit = 50 * KB
    other.put("i", b"x")
    assert other.usage()[1] <= 45 * KB + 100


def test_reading_writes_no_time_that_is_fresh(store: Store) -> None:
    store.put("a", b"x")
    before = store._path("a").stat().st_mtime_ns
    store.get("a")
    assert store._path("a").stat().st_mtime_ns == before
    age(store, "a", 2)
    aged = store._path("a").stat().st_mtime
    store.get("a")
    assert store._path("a").stat().st_mtime > aged


def test_values_larger_than_the_limit_are_not_stored(store: Store) -> None:
    store.put("a", b"x")
    store.put("large", b"x" * 200 * KB)
    assert remaining(store, "a") == "a"
    assert store.get("large") is None


@pytest.mark.parametrize(
    ("text", "limit"),
    [("", 2 << 30), ("none", None), ("500MB", 500 << 20), ("3 gb", 3 << 30), ("4096", 4096)],
)
def test_limits(
    text: str, limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_CACHE_LIMIT", text)
    assert Store(tmp_path / "cache").limit == limit


def test_who_goes() -> None:
    entries = [Entry(used, 10, Path(name)) for name, used in (("c", 3), ("a", 1), ("b", 2))]
    assert doomed(entries, 30) == []
    assert [one.path.name for one in doomed(entries, 29)] == ["a"]
    assert [one.path.name for one in doomed(entries, 0)] == ["a", "b", "c"]
    half = [Entry(time.time(), 10, Path(".new")), Entry(0, 10, Path(".lost"))]
    assert [one.path.name for one in doomed([*entries, *half], 30)] == [".lost"]


def test_a_process_looks_at_first_and_then_rarely() -> None:
    watch = Watch()
    looked = [watch.wrote(10, 3200) for _ in range(21)]
    assert [number for number, found in enumerate(looked) if found] == [0, 10, 20]


def test_what_was_used_meanwhile_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a", b"x" * KB)
    store.put("b", b"x" * KB)
    for key in "ab":
        age(store, key, 5)
    found = doomed(store._entries(), 0)
    monkeypatch.setattr(eviction, "doomed", lambda entries, bound: found)
    store.get("a")
    assert store.trim(0) == 1
    assert remaining(store, "ab") == "a"


def test_one_process_at_a_time_makes_room(store: Store) -> None:
    store.put("a", b"x" * KB)
    with eviction.alone(store.folder) as ours:
        assert ours
        assert store.trim(0) == 0
    assert store.trim(0) == 1


FILL = """
import sys
from pathlib import Path
from fusionstitch.runtime.cache import Store
store, name = Store(Path(sys.argv[1])), sys.argv[2]
for n in range(60):
    value = name.encode() * (2000 + n)
    store.put(f"{name}{n}", value)
    found = store.get(f"{name}{n}")
    assert found is None or found == value
    other = store.get(f"{'ab'.replace(name, '')}{n}")
    assert other is None or len(other) == 2000 + n
"""


def test_processes_that_fill_it_at_once(store: Store) -> None:
    command = [sys.executable, "-W", "error", "-c", FILL, str(store.folder)]
    running = [subprocess.Popen([*command, name]) for name in "ab"]
    assert [process.wait() for process in running] == [0, 0]
    assert store.corrupt() == []
    assert store.usage()[1] <= 1.1 * (100 << 10)
    assert store.get("a59") is not None or store.get("b59") is not None


def test_the_command(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_CACHE_DIR", str(store.folder))
    for key in "abcd":
        store.put(key, b"x" * 20 * KB)
    monkeypatch.setenv("FUSIONSTITCH_CACHE_LIMIT", "50000")
    assert cli.main(["cache", "status"]) == 0
    assert "objects  4, 0.1 MB\nlimit    0.1 MB" in capsys.readouterr().out
    assert cli.main(["cache", "trim"]) == 0
    assert "objects  2, 0.0 MB" in capsys.readouterr().out
