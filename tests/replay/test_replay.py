"""No kernel of the replay changes unseen: `sources.json` has the hash of each.

A change that is meant rewrites it (`pytest --update-golden tests/replay`), once `python -m
tests.replay HEAD` has shown what it is.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.replay.__main__ import compared
from tests.replay.replay import digest, texts_of_cases, texts_of_graphs

GOLDEN = Path(__file__).parent / "sources.json"
#: Cases are lowered anew, and JAX lowers them to other ops from version to version.
JAX = importlib.metadata.version("jax")


@pytest.mark.parametrize("texts", [texts_of_cases, texts_of_graphs])
def test_kernels_are_what_they_were(
    texts: Callable[[], Iterator[tuple[str, str]]], request: pytest.FixtureRequest
) -> None:
    kind = texts.__name__.removeprefix("texts_of_")
    golden: dict[str, Any] = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    update = request.config.getoption("--update-golden")
    if kind == "cases" and not update and golden["jax"] != JAX:
        pytest.skip(f"hashes of cases are those of JAX {golden['jax']}")
    found = {name: digest(text) for name, text in texts()}
    if update:
        golden |= {"jax": JAX, kind: found}
        GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    wrong = [name for name, one in golden[kind].items() if found.get(name) != one]
    assert not wrong, f"python -m tests.replay HEAD shows what changed in {wrong[:20]}"
    assert found.keys() == golden[kind].keys()


def test_differences_are_told_line_by_line() -> None:
    before = {"same": "a", "old": "a", "changed": "a\nb\nc"}
    now = {"same": "a", "new": "a", "changed": "a\nB\nc"}
    said = compared(before, now, 3)
    assert said[0] == "changed differs"
    assert "  -b" in said
    assert said[-2:] == ["new: new", "old: gone"]
