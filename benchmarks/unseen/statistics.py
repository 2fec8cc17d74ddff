"""Statistics: likelihoods with special functions, mixtures, resampling, Monte Carlo, tests."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from benchmarks.unseen.inputs import Draw, Program


def beta_binomial(logits: Any, log_size: Any, hits: Any, trials: Any) -> Any:
    """Mean negative log-likelihood of overdispersed counts."""
    size = jnp.exp(log_size)
    mean = jax.nn.sigmoid(logits)
    a, b = mean * size, (1.0 - mean) * size
    log_beta = lambda x, y: (  # noqa: E731
        special.gammaln(x) + special.gammaln(y) - special.gammaln(x + y)
    )
    choose = -jnp.log1p(trials) - log_beta(trials - hits + 1.0, hits + 1.0)
    return -jnp.mean(choose + log_beta(hits + a, trials - hits + b) - log_beta(a, b))


def overdispersed_counts() -> Program:
    draw = Draw(71)
    trials = draw.integers(100003, low=1, high=200).astype(np.float32)
    hits = np.floor(trials * draw.uniform(100003)).astype(np.float32)
    fun = jax.value_and_grad(beta_binomial, argnums=(0, 1))
    return fun, (draw.normal(100003), draw.normal(100003, scale=0.5) + 2.0, hits, trials)


def student_mixture(x: Any, weight: Any, mean: Any, scale: Any, freedom: Any) -> tuple[Any, ...]:
    """An expectation-maximization step of a mixture of t-distributions; and log-likelihood."""
    z = (x[:, None, :] - mean) / scale
    square = jnp.sum(z * z, axis=-1)
    d = x.shape[1]
    constant = special.gammaln((freedom + d) / 2) - special.gammaln(freedom / 2)
    constant = constant - 0.5 * d * jnp.log(freedom * jnp.pi) - jnp.sum(jnp.log(scale), axis=-1)
    log_p = constant - 0.5 * (freedom + d) * jnp.log1p(square / freedom) + jnp.log(weight)
    total = jax.nn.logsumexp(log_p, axis=1, keepdims=True)
    r = jnp.exp(log_p - total)
    u = r * (freedom + d) / (freedom + square)
    mass = jnp.sum(u, axis=0)[:, None]
    new_mean = u.T @ x / mass
    second = u.T @ (x * x) / mass
    new_scale = jnp.sqrt(jnp.maximum(second - new_mean**2, 1e-6))
    return jnp.mean(r, axis=0), new_mean, new_scale, jnp.mean(total)


def robust_mixture() -> Program:
    draw = Draw(72)
    weight = np.full(11, 1 / 11, np.float32)
    state = (weight, draw.normal(11, 7), draw.uniform(11, 7, low=0.5, high=1.5))
    return student_mixture, (draw.normal(100003, 7), *state, draw.uniform(11, low=3, high=9))


def marginal_likelihood(log_params: Any, x: Any, y: Any) -> Any:
    """The log marginal likelihood of a Gaussian process with a Matern kernel."""
    scale, noise, lengths = jnp.exp(log_params[0]), jnp.exp(log_params[1]), jnp.exp(log_params[2:])
    z = x / lengths
    square = jnp.sum((z[:, None] - z[None, :]) ** 2, axis=-1)
    r = jnp.sqrt(5.0 * square + 1e-10)
    kernel = scale * (1.0 + r + r * r / 3.0) * jnp.exp(-r)
    kernel = kernel + (noise + 1e-4) * jnp.eye(x.shape[0])
    factor = jnp.linalg.cholesky(kernel)
    half = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
    return -0.5 * half @ half - jnp.sum(jnp.log(jnp.diagonal(factor)))


def gaussian_process() -> Program:
    draw = Draw(73)
    x = draw.normal(509, 5)
    y = np.sin(x).sum(1) + draw.normal(509, scale=0.1)
    return jax.value_and_grad(marginal_likelihood), (draw.normal(7, scale=0.1), x, y)


def bootstrap(x: Any, key: Any) -> tuple[Any, Any]:
    """500 resamples: intervals of mean, deviation, skewness and a trimmed mean."""
    count = x.shape[0]
    draws = jax.random.randint(jax.random.wrap_key_data(key), (500, count), 0, count)
    y = x[draws]
    mean = jnp.mean(y, axis=1)
    std = jnp.std(y, axis=1)
    skew = jnp.mean(((y - mean[:, None]) / std[:, None]) ** 3, axis=1)
    low, high = jnp.quantile(x, jnp.array([0.05, 0.95]))
    inside = (y >= low) & (y <= high)
    trimmed = jnp.sum(y * inside, axis=1) / jnp.sum(inside, axis=1)
    found = jnp.stack([mean, std, skew, trimmed])
    return jnp.quantile(found, jnp.array([0.025, 0.5, 0.975]), axis=1), found


def bootstrap_intervals() -> Program:
    draw = Draw(75)
    return bootstrap, (np.exp(draw.normal(4001, scale=0.5)), draw.key())


def t_tests(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Welch's test of every row by the incomplete beta function, and adjusted p-values."""
    n, m = a.shape[1], b.shape[1]
    var_a, var_b = jnp.var(a, axis=1, ddof=1) / n, jnp.var(b, axis=1, ddof=1) / m
    t = (jnp.mean(a, axis=1) - jnp.mean(b, axis=1)) / jnp.sqrt(var_a + var_b)
    freedom = (var_a + var_b) ** 2 / (var_a**2 / (n - 1) + var_b**2 / (m - 1))
    p = special.betainc(freedom / 2, 0.5, freedom / (freedom + t**2))
    order = jnp.argsort(p)
    count = p.shape[0]
    scaled = p[order] * count / jnp.arange(1, count + 1)
    smallest = lax.cummin(scaled, reverse=True)
    adjusted = jnp.zeros_like(p).at[order].set(jnp.minimum(smallest, 1.0))
    return t, p, adjusted


def gene_expression() -> Program:
    draw = Draw(76)
    return t_tests, (draw.normal(50021, 13) + np.float32(0.3), draw.normal(50021, 17))


def hamiltonian(q: Any, p: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
    """Ten leapfrog steps of 64 chains of a logistic regression, and who is accepted by energy."""

    def energy(q: Any) -> Any:
        logits = x @ q
        return jnp.sum(jax.nn.softplus(logits) - y * logits) + 0.5 * jnp.sum(q * q)

    slope = jax.grad(energy)

    def chain(q: Any, p: Any) -> tuple[Any, Any]:
        def step(_: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            q, p = carry
            p = p - 0.01 * slope(q)
            q = q + 0.02 * p
            return q, p - 0.01 * slope(q)

        return lax.fori_loop(0, 10, step, (q, p))

    new_q, new_p = jax.vmap(chain)(q, p)
    total = lambda q, p: jax.vmap(energy)(q) + 0.5 * jnp.sum(p * p, axis=1)  # noqa: E731
    drift = total(new_q, new_p) - total(q, p)
    return new_q, new_p, jnp.exp(jnp.minimum(-drift, 0.0))


def hamiltonian_monte_carlo() -> Program:
    draw = Draw(77)
    x = draw.normal(1009, 23)
    y = (draw.uniform(1009) < 0.5).astype(np.float32)
    return hamiltonian, (draw.normal(64, 23, scale=0.1), draw.normal(64, 23), x, y)


def concentration(angles: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Von Mises fits of many weighted series: Newton's method on ratios of Bessel functions."""
    total = jnp.sum(weights, axis=1)
    c = jnp.sum(weights * jnp.cos(angles), axis=1) / total
    s = jnp.sum(weights * jnp.sin(angles), axis=1) / total
    mean, r = jnp.arctan2(s, c), jnp.sqrt(c * c + s * s)
    kappa = r * (2.0 - r * r) / (1.0 - r * r)

    def step(_: Any, kappa: Any) -> Any:
        ratio = special.i1e(kappa) / special.i0e(kappa)
        return kappa - (ratio - r) / (1.0 - ratio * ratio - ratio / kappa)

    kappa = lax.fori_loop(0, 5, step, kappa)
    log_z = jnp.log(2 * jnp.pi * special.i0e(kappa)) + kappa
    log_p = kappa[:, None] * jnp.cos(angles - mean[:, None]) - log_z[:, None]
    return mean, kappa, jnp.sum(weights * log_p, axis=1)


def von_mises() -> Program:
    draw = Draw(78)
    angles = draw.normal(20011, 101) + draw.uniform(20011, 1, high=6.0)
    return concentration, (angles.astype(np.float32), draw.uniform(20011, 101, low=0.1))
