"""The rank correlation of the model with measured schedules, on made-up times."""

from __future__ import annotations

import json

import pytest

from benchmarks import schedules
from benchmarks.workloads import find
from fusionstitch.codegen.schedule.tuning import DEFAULT, Tuning
from fusionstitch.costmodel.devices import device

H200 = device("h200")


@pytest.fixture(scope="module")
def graph():
    [workload] = find(["softmax.py:rows"])
    return schedules.whole(workload)


def test_schedules_next_to_the_default_one(graph) -> None:
    found = schedules.schedules(graph, H200)
    assert next(iter(found.values())) == DEFAULT
    assert all(len(tuning.to_dict()) <= 1 for tuning in found.values())
    assert len({(kernel.source, kernel.grid) for kernel in found}) == len(found) > 5


def test_a_table_of_ranks(graph) -> None:
    tunings = [Tuning(), Tuning(merge=False), Tuning(block=64)]
    points = [{"tuning": t.to_dict(), "us": 1.0, "registers": 32} for t in tunings]
    entry = {"target": "softmax.py:rows", "points": points}
    modelled = [us for us, _, _ in schedules.ranked(entry, H200)]
    for point, us in zip(points, modelled, strict=True):
        point["us"] = 2 * us
    results = {"command": "c", "kernels": [entry, {"target": "norms.py:forward", "points": []}]}
    assert json.loads(schedules.as_text(results)) == results
    lines = schedules.table(results, H200)
    # the order is the model's own, and all times are twice its
    assert [cell.strip() for cell in lines[2].split("|")[1:5]] == [
        "softmax.py:rows",
        "3",
        "1.00",
        "2.00",
    ]
    assert lines[-1].startswith("| mean")
