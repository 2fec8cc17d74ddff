"""A separate database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusionstitch.runtime.cache import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "cache")
    yield made
    made.close()
