"""Large programs beside jax.jit: what counts as too much, and that both sides are measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import scaling

ROOT = Path(__file__).parents[2]


def row(ours: Any = None, **changed: float) -> dict[str, Any]:
    theirs = {"first_s": 2.0, "later_s": 0.001, "peak_mb": 200.0, "kept_mb": -3.0}
    return {"case": "c", "xla": theirs, "fusionstitch": ours or {**theirs, **changed}}


def test_what_counts_as_too_much() -> None:
    assert scaling.exceeds(row(first_s=6.0, later_s=0.9, peak_mb=600.0, kept_mb=60.0)) == []
    assert scaling.exceeds(row(first_s=6.1)) == ["first call"]
    assert scaling.exceeds(row(later_s=1.1, peak_mb=601.0)) == ["later", "memory"]
    assert scaling.exceeds(row(kept_mb=65.0)) == ["kept"]
    assert scaling.exceeds(row("longer than 9 s")) == ["longer than 9 s"]
    assert scaling.exceeds({**row("longer than 9 s"), "xla": "longer than 9 s"}) == []


def test_a_case_on_both_sides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    path = tmp_path / "scaling.json"
    asked = ["constant of 1 ", "--backend", "emulate", "--json", str(path)]
    scaling.main([*asked, "--limit", "300"])
    [found] = json.loads(path.read_text())["rows"]
    for side in scaling.SIDES:
        assert found[side]["first_s"] > 0
        assert found[side]["peak_mb"] > 10
    assert scaling.main(["chain of 300", "--limit", "0.01"]) == 0
    with pytest.raises(SystemExit):
        scaling.main(["no such case"])
