"""The benchmark of later calls: what counts as too much, and that it measures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import later_calls

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def run(xla_us: float, fs_us: float) -> dict[str, dict[str, float]]:
    return {"p": {"xla_us": xla_us, "fs_us": fs_us, "custom_calls": 1, "arrays": 3}}


def test_a_figure_is_the_median_of_the_processes() -> None:
    runs = [run(5.0, 5.5), run(9.0, 11.0), run(6.0, 5.0)]
    [row] = later_calls.rows(runs, 1.0)
    assert (row["xla_us"], row["fs_us"]) == (6.0, 5.5)
    assert (row["least_us"], row["over_us"], row["most_us"]) == (-1.0, 0.5, 2.0)
    assert later_calls.misses([row]) == []
    assert later_calls.table([row]).endswith(
        "| p | 3 | 1 | 6.00 | 5.50 | 0.50 | -1.00 | 2.00 | 1 |"
    )


def test_what_counts_as_too_much() -> None:
    [row] = later_calls.rows([run(5.0, 6.5)], 1.0)
    assert later_calls.misses([row]) == ["p: 1.50 us over jax.jit"]
    [unbound] = later_calls.rows([run(5.0, 90.0)], None)
    assert later_calls.misses([unbound]) == []


def test_programs_on_both_sides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    path = tmp_path / "later.json"
    few = ["--backend", "emulate", "--rounds", "1", "--batches", "1"]
    assert later_calls.main([*few, "--json", str(path)]) == 0
    found = {row["program"]: row for row in json.loads(path.read_text())["calls"]}
    assert list(found) == list(later_calls.PROGRAMS)
    calls = {name: (row["arrays"], row["custom_calls"]) for name, row in found.items()}
    assert calls == {"nothing": (2, 0), "one pattern": (3, 1), "16 products": (32, 0)}
    assert "| one pattern | 3 | 1 |" in capsys.readouterr().out
