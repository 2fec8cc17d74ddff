"""A database of its own for each test, and a small neighbourhood."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusionstitch.runtime.cache import Database
from fusionstitch.tuning import neighbours


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "cache")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def few_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"block": (128, 512), "tile": (2.0,), "merge": (False,)}
    monkeypatch.setattr(neighbours, "VALUES", few)
