"""The table of the model's errors is that of a committed measurement."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import numpy as np

from benchmarks.model_error import PROVEN, errors_of
from costmodel.model_errors import errors

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_it_is_what_the_measured_rows_give() -> None:
    table = json.loads((resources.files("costmodel") / "model_errors.json").read_text("utf-8"))
    measured = json.loads((RESULTS / table["from"]["file"]).read_text())
    assert table["from"]["environment"] == measured["environment"]
    found = errors_of(measured["rows"])
    assert errors() == {
        kind: round(float(np.quantile(shares, PROVEN)), 2) for kind, shares in found.items()
    }


def test_every_class_of_pattern_has_a_share() -> None:
    assert set(errors()) == {"elemwise", "reduction", "gemm"}
    assert all(0 <= share < 1 for share in errors().values())
