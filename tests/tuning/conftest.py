"""A separate database for each test, and a small neighborhood."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusionstitch.codegen.search import neighbours
from fusionstitch.runtime.cache import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "cache")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def few_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    few = ("threads of a block", "blocks of a multiprocessor")
    moves = {name: move if name in few else nothing for name, move in neighbours.MOVES.items()}
    monkeypatch.setattr(neighbours, "MOVES", moves)


def nothing(*_: Any) -> Iterator[None]:
    """A move that leads nowhere."""
    yield from ()
