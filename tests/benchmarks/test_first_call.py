"""The benchmark of a first call: what counts as too much, and that it measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import first_call

ROOT = Path(__file__).parents[2]


def row(over_s: float) -> dict[str, Any]:
    return {
        "program": "p",
        "cache": "full",
        "import_s": 0.5,
        "call_s": 0.5,
        "built_s": 0.0,
        "guard_s": 0.0,
        "xla_import_s": 0.4,
        "xla_call_s": 0.3,
        "over_s": over_s,
        "bar_s": 0.3,
    }


def test_what_counts_as_too_much() -> None:
    assert first_call.misses([row(0.3)]) == []
    assert first_call.misses([row(0.31)]) == ["p, full cache: 0.31 s over jax.jit"]
    assert first_call.table([row(0.31)]).endswith("| 0.31 | 0.3 |")


def test_compiling_side_by_side_counts_once() -> None:
    assert first_call._covered([(4.0, 5.0), (0.0, 2.0), (1.0, 3.0)]) == 4.0


def test_a_program_on_both_sides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(ROOT)
    path = tmp_path / "first.json"
    first_call.main(["pattern", "--backend", "emulate", "--rounds", "1", "--json", str(path)])
    found = json.loads(path.read_text())
    assert found["backend"] == "emulate"
    empty, full = found["starts"]
    assert empty["built_s"] > 0 == full["built_s"]
    assert "| pattern | empty |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        first_call.main(["of no name"])
