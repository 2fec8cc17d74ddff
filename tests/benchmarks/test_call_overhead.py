"""The benchmark of what a wrapper costs: its sides give the results that jax.jit gives."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks import call_overhead

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", call_overhead.cases())
def test_sides_agree(name: str) -> None:
    case = call_overhead.cases()[name]
    results = {}
    for side, function in call_overhead.sides(case).items():
        given = call_overhead._given(case)
        found = case.calls(function, 1, *given, *case.named.values())
        results[side] = jax.tree.map(np.asarray, found)
    for found in results.values():
        jax.tree.map(np.testing.assert_array_equal, found, results["jax.jit"])


def test_a_row_has_a_figure_for_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_overhead, "CALLS", 2)
    case = call_overhead.cases()["1 array"]
    assert set(call_overhead.measured(case, 1)) == set(call_overhead.sides(case))
