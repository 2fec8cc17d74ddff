"""The ladder of compositions."""

from __future__ import annotations

from benchmarks.ablation import LADDER, ladder, rises, table
from benchmarks.workloads import find
from fusionstitch.options import Options


def test_every_step_allows_more_and_the_last_everything() -> None:
    for switches in LADDER.values():
        Options(**switches)
    assert LADDER["+ grid"] == {}


def test_kernels_never_rise_on_a_training_step(monkeypatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "full")
    [logistic] = find(["logistic"])
    row = ladder(logistic, "h200")
    counts = [step["kernels"] for step in row["steps"].values()]
    assert list(row["steps"]) == list(LADDER)
    assert rises(row) == []
    assert row["xla"]["kernels"] >= counts[0] > counts[-1]
    assert len(table([row])) == 4


def test_a_rise_is_named() -> None:
    row = {"steps": {"thread": {"kernels": 3}, "+ warp": {"kernels": 2}, "+ block": {"kernels": 4}}}
    assert rises(row) == ["+ block"]
