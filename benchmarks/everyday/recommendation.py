"""Clicks and items: embeddings, crosses, losses over samples."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.everyday.table import program


def _log_loss(logit, label):
    return (jax.nn.softplus(logit) - label * logit).mean()


@program(
    lambda r: (
        {"w": r.normal(60013, scale=0.1), "v": r.normal(60013, 17, scale=0.1), "b": r.normal()},
        r.integers(4096, 39, high=60013),
        r.chance(0.3, 4096),
    )
)
def factorization_machine(params, fields, clicked):
    def loss(p):
        v = p["v"][fields]
        pairs = 0.5 * (v.sum(1) ** 2 - (v**2).sum(1)).sum(-1)
        return _log_loss(p["b"] + p["w"][fields].sum(1) + pairs, clicked)

    return jax.value_and_grad(loss)(params)


@program(
    lambda r: (
        r.normal(40009, 33),
        r.normal(70001, 33),
        *(r.integers(8192, high=40009) for _ in "uij"),
    )
)
def ranked_pairs(users, items, u, i, j):
    """Bayesian personalised ranking: gradients of three gathers."""

    def loss(users, items):
        p, a, b = users[u], items[i], items[j]
        penalty = (p**2).sum() + (a**2).sum() + (b**2).sum()
        return jax.nn.softplus((p * (b - a)).sum(-1)).mean() + 1e-4 * penalty

    value, (du, di) = jax.value_and_grad(loss, (0, 1))(users, items)
    return value, users - 0.05 * du, items - 0.05 * di


@program(
    lambda r: (r.normal(8192, 213), [(r.normal(213, scale=0.1), r.normal(213)) for _ in range(3)])
)
def crossed_features(x, layers):
    """Three layers of a cross network, and the gradient of their sum of squares."""

    def out(x, layers):
        y = x
        for w, b in layers:
            y = x * (y @ w)[:, None] + b + y
        return y

    y = out(x, layers)
    return y, jax.grad(lambda layers: (out(x, layers) ** 2).mean())(layers)


@program(lambda r: (r.normal(1021, 64), r.normal(1021, 64), r.uniform(1021, low=0.01)))
def two_towers(user, item, share):
    """Softmax over the batch, corrected for how often items are drawn."""

    def loss(user, item):
        a = user / jnp.linalg.norm(user, axis=-1, keepdims=True)
        b = item / jnp.linalg.norm(item, axis=-1, keepdims=True)
        logits = a @ b.T / 0.05 - jnp.log(share)
        return -jnp.diagonal(jax.nn.log_softmax(logits)).mean()

    return jax.value_and_grad(loss, (0, 1))(user, item)


@program(lambda r: (r.integers(65537, 13, high=10000, low=-5), jnp.linspace(0.0, 9.0, 31)))
def counts_to_features(counts, borders):
    """Logarithms, buckets, flags of what is missing, standardised columns."""
    missing = counts < 0
    x = jnp.log1p(jnp.maximum(counts, 0).astype(jnp.float32))
    bucket = jnp.searchsorted(borders, x).astype(jnp.int8)
    mean = jnp.where(missing, 0.0, x).sum(0) / (~missing).sum(0)
    x = jnp.where(missing, mean, x)
    return (x - mean) / x.std(0), bucket, missing.mean(0)
