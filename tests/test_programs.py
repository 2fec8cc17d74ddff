"""The table itself: every program compiles, and its f32 result is near its f64 result."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.programs import PROGRAMS, precision, reference, reference64

#: Relative L2 error that XLA's own CPU code may have against f64, by dtype.
BOUNDS = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}


def test_the_table_is_large_enough_and_named_uniquely() -> None:
    assert len(PROGRAMS) >= 80
    assert all(name == entry.name for name, entry in PROGRAMS.items())


@pytest.mark.parametrize("name", PROGRAMS)
def test_reference_is_near_its_f64_run(name: str) -> None:
    entry = PROGRAMS[name]
    narrow, wide = reference(entry.fun, entry.args), reference64(entry.fun, entry.args)
    assert len(narrow) == len(wide)
    for one, other in zip(narrow, wide, strict=True):
        assert one.shape == other.shape
        if not jnp.issubdtype(one.dtype, np.floating):
            np.testing.assert_array_equal(one, other.astype(one.dtype))
            continue
        one64 = one.astype(np.float64)
        same = np.isfinite(other)
        np.testing.assert_array_equal(one64[~same], other[~same])
        error = np.linalg.norm(one64[same] - other[same])
        assert error <= BOUNDS[one.dtype.name] * max(np.linalg.norm(other[same]), 1e-30)


@pytest.mark.parametrize(
    "name", [n for n, p in PROGRAMS.items() if p.donate or p.keywords is not dict]
)
def test_donation_and_layouts_change_no_value(name: str) -> None:
    entry = PROGRAMS[name]
    expected = reference(entry.fun, entry.args)
    with precision(entry.args):
        jitted = jax.jit(entry.fun, donate_argnums=entry.donate, **entry.keywords())
        actual = jax.tree.leaves(jitted(*jax.tree.map(jnp.array, entry.args)))
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-6, atol=1e-6)
