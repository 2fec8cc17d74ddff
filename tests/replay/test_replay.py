"""No kernel of the replay changes unseen: `sources.json` has the hash of each.

A change that is meant rewrites it (`pytest --update-golden tests/replay`), once `python -m
tests.replay HEAD` has shown what it is.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.codegen.cases import CASES
from tests.replay.__main__ import compared
from tests.replay.replay import digest, names_of_graphs, texts_of_cases, texts_of_graphs

GOLDEN = Path(__file__).parent / "sources.json"
#: Cases are lowered anew, and JAX lowers them to other ops from version to version.
JAX = importlib.metadata.version("jax")
Texts = Callable[[Iterable[str]], Iterator[tuple[str, str]]]


#: By kind: the names of its kernels, and what makes the texts of some.
KINDS: dict[str, tuple[list[str], Texts]] = {
    "cases": (list(CASES), texts_of_cases),
    "graphs": (names_of_graphs(), texts_of_graphs),
}
#: Parts in which kernels are made: `make test` makes some of them, `make test-slow` the others.
PARTS = 8


def golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_are_what_they_were(kind: str, part: int, request: pytest.FixtureRequest) -> None:
    stored, update = golden(), request.config.getoption("--update-golden")
    if kind == "cases" and not update and stored["jax"] != JAX:
        pytest.skip(f"hashes of cases are those of JAX {stored['jax']}")
    names, texts = KINDS[kind]
    found = {name: digest(text) for name, text in texts(names[part::PARTS])}
    if update:
        known = {f"{kind}/{name}" for name in names}
        others = {name: one for name, one in stored.get(kind, {}).items() if name in known}
        stored |= {"jax": JAX, kind: others | found}
        GOLDEN.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    wrong = [name for name, one in found.items() if stored[kind].get(name) != one]
    assert not wrong, f"python -m tests.replay HEAD shows what changed in {wrong[:20]}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kernel_has_a_hash(kind: str) -> None:
    names, _ = KINDS[kind]
    assert golden()[kind].keys() == {f"{kind}/{name}" for name in names}


def test_differences_are_told_line_by_line() -> None:
    before = {"same": "a", "old": "a", "changed": "a\nb\nc"}
    now = {"same": "a", "new": "a", "changed": "a\nB\nc"}
    said = compared(before, now, 3)
    assert said[0] == "changed differs"
    assert "  -b" in said
    assert said[-2:] == ["new: new", "old: gone"]
