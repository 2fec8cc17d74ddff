"""The table under fs.jit inside XLA on a GPU, against jax.jit and float64."""

from __future__ import annotations

import jax
import pytest

from tests.coverage.running import OPTIONS, all_groups

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", [n for n in all_groups() if not n.startswith("others")])
def test_cases_are_as_right_as_under_jax_jit(name: str) -> None:
    # full precision: an error of XLA's own TF32 products would excuse one of ours
    with jax.default_matmul_precision("highest"):
        all_groups()[name].check(OPTIONS.replace(backend="cuda", fallback="error"))
