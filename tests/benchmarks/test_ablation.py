"""The ladder of compositions."""

from __future__ import annotations

import pytest

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


def test_slices_of_values_on_the_way_cost_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "full")
    [variant] = find(["figure1.py:variant"])
    row = ladder(variant, "h200")
    assert row["steps"]["+ block"]["kernels"] == 1


def test_a_rise_is_named() -> None:
    row = {"steps": {"thread": {"kernels": 3}, "+ warp": {"kernels": 2}, "+ block": {"kernels": 4}}}
    assert rises(row) == ["+ block"]
