"""Roundings that add up over steps leave results as near to float64 as XLA's are."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.accuracy import limit
from tests.numbers.simulations import SIMULATIONS


def far(results: Any, exact: Any) -> list[float]:
    """The relative L2 error of each result."""
    pairs = zip(jax.tree.leaves(results), jax.tree.leaves(exact), strict=True)
    return [
        float(np.linalg.norm(np.asarray(a, np.float64) - b) / np.linalg.norm(b)) for a, b in pairs
    ]


def in_float64(name: str, arguments: Any) -> Any:
    with jax.enable_x64(True):
        wide = [one.astype(np.float64) for one in arguments]
        return jax.tree.map(np.asarray, jax.jit(SIMULATIONS[name].run)(*wide))


#: The smoother has many kernels, and `"strict"` changes none of them.
CASES = [(name, "default") for name in SIMULATIONS]
CASES += [(name, "strict") for name in SIMULATIONS if name != "smoother"]


@pytest.mark.parametrize(("name", "numerics"), CASES)
def test_errors_are_at_most_twice_xla_s(name: str, numerics: str) -> None:
    given = SIMULATIONS[name]
    options = fs.Options(backend="emulate", scorer="paper", numerics=numerics)
    compiled = fs.jit(given.run, options=options).lower(*given.arguments).compile()
    assert compiled.kernels
    exact = in_float64(name, given.arguments)
    ours = far(compiled(*given.arguments), exact)
    theirs = far(jax.jit(given.run)(*given.arguments), exact)
    for own, their in zip(ours, theirs, strict=True):
        assert own <= limit(np.dtype(np.float32), their)
