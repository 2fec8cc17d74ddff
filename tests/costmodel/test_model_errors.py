"""The table of the model's errors is that of committed measurements."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from benchmarks.model_error import CONFIDENCE, SHARE, proven_of, shares_of
from fusionstitch.costmodel.model_errors import errors

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_it_is_what_the_measured_rows_give() -> None:
    table = json.loads(
        (resources.files("fusionstitch.costmodel") / "model_errors.json").read_text("utf-8")
    )
    rows = []
    for source in table["from"]:
        measured = json.loads((RESULTS / source["file"]).read_text())
        assert source["environment"] == measured["environment"]
        rows += measured["rows"]
    assert table["shares"] == shares_of(rows)


def test_every_class_of_pattern_has_an_error() -> None:
    assert set(errors()) == {"elemwise", "reduction", "gemm"}
    assert all(0 <= error.usual <= error.proven for error in errors().values())


@pytest.mark.parametrize(("count", "rank"), [(1, None), (58, None), (59, 59), (92, 92), (93, 92)])
def test_what_is_proven_takes_many(count: int, rank: int | None) -> None:
    """The chance that all of 59 errors are below the 95% quantile is less than 5%."""
    assert (SHARE, CONFIDENCE) == (0.95, 0.95)
    shares = [float(n) for n in range(1, count + 1)]
    assert proven_of(shares[::-1]) == rank
