"""A database of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusionstitch.plan.planner import Planner
from fusionstitch.runtime.cache import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "cache")
    yield made
    made.close()


#: As it is, for tests of it.
HOST_US = Planner.host_us


@pytest.fixture(autouse=True)
def waits_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of programs do, small as these are."""
    monkeypatch.setattr(Planner, "host_us", 0.0)
