"""Loops whose gradients compare numbers with an extremum of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs

pytestmark = pytest.mark.usefixtures("host_compiler")
STEPS, ROWS, WIDTH = 5, 4, 3


def step(h: Any, x: Any) -> Any:
    """A sum of few numbers is inlined where the maximum is found, and stays behind the loop of the
    rows: what is compared reads it there, behind another loop."""
    scaled = lax.map(lambda row: jnp.sin(row) * row.sum(), h)
    found = scaled * jnp.sin(scaled.max(1, keepdims=True))
    found = lax.scan(lambda c, _: (jnp.tanh(c) * 0.7, None), found, None, length=2)[0]
    return jnp.tanh(found + x), None


@pytest.mark.parametrize("numerics", ["default", "strict"])
def test_a_maximum_is_one_of_the_numbers(numerics: str) -> None:
    gradient = jax.grad(lambda h, xs: jnp.sum(lax.scan(step, h, xs)[0] ** 2))
    two = jax.vmap(gradient, (0, None))
    draw = np.random.default_rng(0)
    h = draw.standard_normal((2, ROWS, WIDTH), np.float32)
    xs = draw.standard_normal((STEPS, ROWS, WIDTH), np.float32)
    options = fs.Options(backend="emulate", fallback="error", numerics=numerics)
    np.testing.assert_allclose(
        fs.jit(two, options=options)(h, xs), jax.jit(two)(h, xs), rtol=2e-5, atol=1e-6
    )
