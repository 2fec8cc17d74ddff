"""Workers: what they measured, and what happens to those that fail."""

from __future__ import annotations

import os

import pytest

from benchmarks.runner import PARTS, Settings, measure
from benchmarks.workloads import Workload, find


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "small")
    monkeypatch.setenv("FUSIONSTITCH_BACKEND", "auto")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.delenv("FUSIONSTITCH_CACHE_DIR", raising=False)
    monkeypatch.chdir(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))


def test_a_row_of_a_chained_step_and_one_of_a_target_that_is_not_there() -> None:
    said: list[str] = []
    workloads = (*find(["rmsprop"]), Workload("softmax.py:columns"))
    row, missing = measure(workloads, Settings(jobs=2, rounds=2), said.append)
    assert row["step"] == "done"
    assert "failure" not in row
    assert "failed_parts" not in row
    assert row["check"]["reference"] == "float64"
    assert row["check"]["outputs"] == 20
    assert row["check"]["wrong"] == []
    assert set(row["wall_us"]) == {"xla", "fusionstitch"}
    assert row["profile"] == {"xla": None, "fusionstitch": None, "unfused": None}
    assert row["ops"] > 100
    assert row["modelled"]["unfused"]["kernels"] == 90
    # three lists of ten tensors in and two out, f32
    assert row["floor_bytes"] == 5 * 4 * sum(range(64, 144, 8))
    assert set(row["warm_s"]) == {"xla", "fusionstitch"}
    assert missing["failure"] == "exit code 1 in step 'start'"
    assert "No target is called softmax.py:columns" in missing["output"]
    assert said == [
        "rmsprop.py:rmsprop100: measured",
        "softmax.py:columns: exit code 1 in step 'start'",
    ]


def test_a_worker_is_stopped_at_its_limit() -> None:
    settings = Settings(limit=0.0, without=frozenset({"op-by-op", "inductor"}))
    [row] = measure(find(["softmax"]), settings, lambda text: None)
    assert row["target"] == "softmax.py:rows"
    assert row["failure"].startswith("stopped after 0 s in step ")


def test_a_run_that_is_over_says_so_in_every_row() -> None:
    settings = Settings(total=0.0, without=frozenset({"op-by-op", "inductor"}))
    rows = list(measure(find(["softmax", "lorenz"]), settings, lambda text: None))
    assert [row["target"] for row in rows] == ["softmax.py:rows", "lorenz.py:scan"]
    assert {row["failure"] for row in rows} == {
        "not begun within 0 s of the whole run in step 'start'"
    }


def test_programs_that_take_long_may_be_left_out() -> None:
    settings = Settings(without=frozenset({"long"}))
    assert list(measure(find(["rokid"]), settings, lambda text: None)) == []


def test_parts_that_are_left_out() -> None:
    [softmax], [lorenz] = find(["softmax"]), find(["lorenz"])
    assert Settings(without=frozenset({"inductor"})).parts(softmax) == ["compiled", "op-by-op"]
    assert "inductor" not in Settings().parts(lorenz)
    assert Settings(without=frozenset(PARTS) - {"compiled"}).parts(softmax) == ["compiled"]
