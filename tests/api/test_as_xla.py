"""Where a formula overflows or is undefined, fs.jit computes the same values as jax.jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs

P = np.array([[0.5, 0.0, 0.25, 0.0], [1.0, np.inf, np.nan, 2.0]], np.float32)
X = np.array([200.0, -200.0, 60.0, 0.0, 1e30, -3.0], np.float32)
POINTS = np.arange(12, dtype=np.float32).reshape(6, 2)


def masked_mean(p, m):
    return (m * jnp.log(p)).sum(-1) / m.sum(-1)


def energy(points, m):
    return (m * jnp.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))).sum()


def steps(x, m):
    """Rules hold in the bodies of loops, too."""

    def step(carry, _):
        carry = m * (1 / carry) + x / 1e20 / 1e-20
        return carry, jnp.log(jnp.exp(carry))

    return lax.scan(step, x, length=3)


def branches(x, m):
    return lax.cond(m[0], lambda x: m * (x / 0.0), lambda x: x * 1e30 * 1e-30, x)


def ratios(x, m):
    return (
        jnp.exp(x) * jnp.exp(-x),
        jnp.exp(x) / jnp.exp(x),
        jnp.sqrt(x * x),
        jnp.log(jnp.exp(x)),
        x * 1e30 * 1e30 * 1e-30 * 1e-30,
        lax.pow(jnp.exp(x), m * 2.0),
        (x / 1e30) / (1e30 * x),
        jnp.abs(x) >= 0,
    )


PROGRAMS = {
    "a masked mean": (masked_mean, P, P > 0),
    "its gradient": (jax.grad(lambda p, m: masked_mean(p, m).sum()), P, P > 0),
    "a gradient at a distance of 0": (jax.grad(energy), POINTS, ~np.eye(6, dtype=bool)),
    "a loop": (steps, X, X > 0),
    "a branch": (branches, X, X > 0),
    "the other branch": (branches, X, X < 0),
    "ratios and roots": (ratios, X, X > 0),
}


@pytest.mark.parametrize("scorer", ["model", "paper"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_jit(name, scorer):
    fun, *args = PROGRAMS[name]
    options = fs.Options(backend="emulate", scorer=scorer, fallback="error")
    want, got = jax.jit(fun)(*args), fs.jit(fun, options=options)(*args)
    for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-30)


def test_a_report_compares_with_float64_of_the_same_program():
    """A reference that multiplies by a mask would be NaN where both sides are numbers."""
    report = fs.report(masked_mean, P[:1], P[:1] > 0, options=fs.Options(backend="emulate"))
    assert report.max_rel_error < 1e-6


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_quotients_of_16_bits_are_as_exact_as_those_of_jit(dtype):
    """1 / 255 in 16 bits is off by the same for all of them."""

    def fun(x):
        y = x.astype(dtype) / 255
        return y - 0.5, (y[::-1] * 2).sum()

    x = np.arange(256, dtype=np.uint8)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    ours = fs.jit(fun, options=options).lower(x).compile()
    assert ours.kernels
    wide = x / np.float64(255)
    wanted = wide - 0.5, (wide[::-1] * 2).sum()
    for got, their, right in zip(ours(x), jax.jit(fun)(x), wanted, strict=True):
        error, xla = (np.linalg.norm(np.float64(a) - right) for a in (got, their))
        assert error <= max(2 * xla, float(jnp.finfo(dtype).eps) / 2 * np.linalg.norm(right))
