"""Statistics: likelihoods with special functions, mixtures, filters, resampling."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betaln, digamma, gammaln, i0e, ndtri, xlogy

from benchmarks.everyday.table import program


@program(
    lambda r: (
        r.normal(20011, 7),
        r.normal(11, 7),
        r.uniform(11, 7, low=0.5),
        r.uniform(11, low=0.1),
    )
)
def mixture_step(x, mean, var, share):
    """One iteration of expectation-maximisation of diagonal Gaussians."""
    away = x[:, None] - mean
    logp = -0.5 * (away**2 / var + jnp.log(2 * jnp.pi * var)).sum(-1) + jnp.log(share / share.sum())
    whole = jax.nn.logsumexp(logp, -1, keepdims=True)
    part = jnp.exp(logp - whole)
    count = part.sum(0)
    mean = part.T @ x / count[:, None]
    var = part.T @ x**2 / count[:, None] - mean**2
    return mean, jnp.maximum(var, 1e-4), count / x.shape[0], whole.mean()


@program(lambda r: (r.normal(30011, 19), r.integers(30011, high=9), r.normal(19, scale=0.1)))
def poisson_regression(x, y, w):
    """Likelihood, gradient and the curvature of each coefficient."""

    def nll(w):
        eta = x @ w
        return (jnp.exp(eta) - y * eta + gammaln(y + 1.0)).mean()

    value, grad = jax.value_and_grad(nll)(w)
    weight = jnp.exp(x @ w)
    return value, grad, (x**2 * weight[:, None]).mean(0)


@program(
    lambda r: (
        r.integers(7919, 31, high=400),
        r.uniform(31, low=1.0, high=99.0),
        r.uniform(31, low=0.5),
    )
)
def negative_binomial(y, mean, size):
    """Log-gammas of every count, summed by column, and gradients by digamma."""
    y = y.astype(jnp.float32)

    def nll(mean, size):
        p = gammaln(y + size) - gammaln(size) - gammaln(y + 1)
        p = p + size * jnp.log(size / (size + mean)) + xlogy(y, mean / (size + mean))
        return -p.sum()

    return jax.value_and_grad(nll, (0, 1))(mean, size)


@program(lambda r: (r.normal(2003, 3), r.normal(1009, 3), r.uniform(3, low=0.2)))
def kernel_density(points, at, width):
    z = (at[:, None] - points) / width
    logs = -0.5 * (z**2).sum(-1)
    norm = jnp.log(points.shape[0]) + jnp.log(width * jnp.sqrt(2 * jnp.pi)).sum()
    return jax.nn.logsumexp(logs, -1) - norm, logs.argmax(-1)


@program(
    lambda r: (
        r.normal(1013, 23),
        r.chance(0.4, 1013),
        r.normal(64, 23, scale=0.1),
        r.normal(64, 23),
    )
)
def hamiltonian_chains(x, y, w, momentum):
    """Ten leapfrog steps of 64 chains of a logistic regression."""

    def energy(w):
        eta = x @ w
        return (jax.nn.softplus(eta) - y * eta).sum() + 0.5 * (w**2).sum()

    slope = jax.vmap(jax.grad(energy))

    def step(_, state):
        w, p = state
        p = p - 0.005 * slope(w)
        w = w + 0.01 * p
        return w, p - 0.005 * slope(w)

    start = jax.vmap(energy)(w) + 0.5 * (momentum**2).sum(-1)
    w, p = lax.fori_loop(0, 10, step, (w, momentum))
    return w, start - jax.vmap(energy)(w) - 0.5 * (p**2).sum(-1)


@program(lambda r: (r.normal(50, 257, 2),))
def tracking(seen):
    """A Kalman filter of four states for each of 257 objects."""
    move = jnp.eye(4) + 0.1 * jnp.eye(4, k=2)
    look = jnp.eye(2, 4)

    def step(state, z):
        mean, cov = state
        mean, cov = move @ mean, move @ cov @ move.T + 0.01 * jnp.eye(4)
        s = look @ cov @ look.T + 0.1 * jnp.eye(2)
        det = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = jnp.array([[s[1, 1], -s[0, 1]], [-s[1, 0], s[0, 0]]]) / det
        gain = cov @ look.T @ inverse
        mean = mean + gain @ (z - look @ mean)
        return (mean, (jnp.eye(4) - gain @ look) @ cov), mean

    def one(seen):
        return lax.scan(step, (jnp.zeros(4), jnp.eye(4)), seen)[1]

    return jax.vmap(one, 1, 1)(seen)


@program(lambda r: (r.normal(1009, 5), r.key()))
def bootstrap(x, key):
    """Means of 512 samples drawn with replacement, and their quantiles."""
    drawn = jax.random.randint(key, (512, x.shape[0]), 0, x.shape[0])
    means = x[drawn].mean(1)
    ordered = jnp.sort(means, 0)
    return ordered[12], ordered[256], ordered[499], means.std(0)


@program(lambda r: (r.uniform(65537, low=0.01, high=0.99), r.uniform(3, 65537, low=0.5, high=9.0)))
def beta_and_student(p, abc):
    """Densities with log-betas and log-gammas at several places, and a table of moments."""
    a, b, nu = abc
    beta = (a - 1) * jnp.log(p) + (b - 1) * jnp.log1p(-p) - betaln(a, b)
    t = (p - 0.5) * 9
    student = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu * jnp.pi)
    student = student - (nu + 1) / 2 * jnp.log1p(t * t / nu)
    score = digamma(a + b) - digamma(a) + jnp.log(p)
    return beta, student, score, jnp.stack([beta.mean(), student.mean(), (score**2).mean()])


@program(lambda r: (r.uniform(8009, 17), r.uniform(17, low=0.2, high=5.0), r.uniform(17, high=6.0)))
def directions(angle, kappa, centre):
    """Von Mises densities, a uniform to normal transform, column moments of both."""
    turned = 2 * jnp.pi * angle
    logp = kappa * (jnp.cos(turned - centre) - 1) - jnp.log(2 * jnp.pi * i0e(kappa))
    normal = ndtri(jnp.clip(angle, 1e-6, 1 - 1e-6))
    z = normal - normal.mean(0)
    return logp, normal, (z**3).mean(0) / (z**2).mean(0) ** 1.5, logp.sum(0)


@program(lambda r: (r.normal(2011, 157),))
def shrunk_covariance(x):
    """Ledoit and Wolf's shrinkage towards a multiple of the identity."""
    n, p = x.shape
    x = x - x.mean(0)
    s = x.T @ x / n
    mu = jnp.trace(s) / p
    away = ((s - mu * jnp.eye(p)) ** 2).sum() / p
    spread = (((x**2).T @ x**2).sum() / n - (s**2).sum()) / (n * p)
    share = jnp.minimum(spread, away) / away
    return (1 - share) * s + share * mu * jnp.eye(p), share
