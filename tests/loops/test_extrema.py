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
    """A sum of few numbers is inlined where the maximum is found, and stays after the loop of the
    rows: what is compared reads it there, after another loop."""
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


def test_a_maximum_that_another_kernel_compares_is_one_of_the_numbers() -> None:
    def numbers(a: Any, b: Any) -> Any:
        return jnp.stack([a * b, a + b, b * 0.7], -1).sum(-1)

    def step(c: Any, t: Any, a: Any, b: Any) -> Any:
        x = numbers(a * (1 + c * 0.001) + t * 0.1, b)
        found = (jnp.sin(x.max(keepdims=True)) * jnp.cos(x.mean())).sum()
        return c * 0.9 + found + jax.nn.softmax(x, 1)[:, 0].sum() * 0.1, None

    def loss(a: Any, b: Any) -> Any:
        return lax.scan(lambda c, t: step(c, t, a, b), 0.0, jnp.arange(3.0))[0]

    options = fs.Options(backend="emulate", fallback="error", scorer="paper")
    gradient = fs.jit(jax.grad(loss, (0, 1)), options=options)
    both = fs.jit(lambda a, b: (numbers(a, b), numbers(a, b).max()), options=options)
    for seed in range(6):
        draw = np.random.default_rng(seed)
        a, b = (draw.standard_normal((5, 60), np.float32) for _ in "ab")
        assert np.isfinite(gradient(a, b)).all()
        x, largest = both(a, b)
        assert (np.asarray(x) == np.asarray(largest)).any()


def test_a_barrier_before_the_maximum_loses_no_hit() -> None:
    def hits(a: Any, b: Any) -> Any:
        x = (a.reshape(8, 256, 4) * b.reshape(8, 256, 4)).sum(-1)
        return (x == lax.optimization_barrier(x.max(1, keepdims=True))).any(1)

    draw = np.random.default_rng(1)
    a, b = (draw.standard_normal((8, 1024), np.float32) for _ in "ab")
    options = fs.Options(backend="emulate", fallback="error")
    assert np.asarray(fs.jit(hits, options=options)(a, b)).all()
