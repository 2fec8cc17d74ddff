"""Cases of sums over pairs, and of items of a few components each, which a thread has all of."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tests.codegen.kernel_cases import BF16, STRICT, case, normal
from tests.codegen.piece_cases import SUNK


@case(normal(1100, 3), normal(1050, 3), normal(1050), shows=SUNK)
def pairs_of_points(x, y, m):
    """Forces: three sums from one distance, in one loop."""
    d = y[None] - x[:, None]
    r2 = (d * d).sum(-1) + 0.1
    return (m[None, :, None] * d * (r2**-1.5)[..., None]).sum(1)


@case(normal(700), normal(600), normal(600), shows="FsAdd, FsMax")
def pairs_of_numbers(x, y, m):
    """Sums and maxima over the same pairs share what they compute of them."""
    d = jnp.exp(-jnp.square(x[:, None] - y))
    return (d * m).sum(1), d.max(1), (d * d).sum(1)


@case(normal(1100, 5), normal(1030, 5), shows=SUNK)
def pairs_both_ways(x, y):
    """A kernel's mean and its gradient: sums along rows and along columns of the same pairs."""

    def mean(x, y):
        return jnp.exp(-((x[:, None] - y) ** 2).sum(-1) / 8).mean()

    return jax.value_and_grad(mean, (0, 1))(x, y)


@case(normal(520, 5), normal(515, 5), options=STRICT)
def pairs_in_strict_numerics(x, y):
    return jnp.exp(-((x[:, None] - y) ** 2).sum(-1)).sum(1)


@case(normal(513, 4), normal(514, 4))
def pairs_of_boxes(a, b):
    """Overlaps: the best of each row with its index, and the best of each column."""
    a, b = jnp.abs(a), jnp.abs(b)
    low = jnp.maximum(a[:, None, :2], b[None, :, :2])
    high = jnp.minimum(a[:, None, :2] + a[:, None, 2:], b[None, :, :2] + b[None, :, 2:])
    side = jnp.clip(high - low, 0)
    inside = side[..., 0] * side[..., 1]
    overlap = inside / ((a[:, 2] * a[:, 3])[:, None] + b[:, 2] * b[:, 3] - inside)
    return overlap.argmax(1), overlap.max(1), overlap.max(0)


@case(normal(40, 64), normal(40, 70))
def pairs_in_a_batch(q, t):
    """Quantile regression: pairs of each row's own numbers."""

    def loss(q):
        d = t[:, None] - q[:, :, None]
        return jnp.where(jnp.abs(d) <= 1, 0.5 * d * d, jnp.abs(d) - 0.5).mean(2).sum(1).mean()

    return jax.value_and_grad(loss)(q)


@case(normal(1500, dtype=BF16), normal(900, dtype=BF16))
def pairs_of_16_bits(x, y):
    return jnp.tanh(x[:, None] * y).max(1), jnp.abs(x[:, None] - y).sum(1)


@case(normal(3000, 4), normal(3000, 3), shows=SUNK)
def components_of_quaternions(q, p):
    """Rotated points: what a gradient of norms and cross products sums up stays with the item."""

    def loss(q, p):
        q = q / jnp.linalg.norm(q, axis=-1, keepdims=True)
        v = q[:, 1:]
        r = p + 2 * jnp.cross(v, jnp.cross(v, p) + q[:, :1] * p)
        return (r * jnp.sin(r)).sum()

    return jax.grad(loss, (0, 1))(q, p)


@case(normal(2000, 12), shows=SUNK)
def components_of_a_softmax(x):
    """A row of twelve belongs to one thread."""
    return jax.nn.softmax(x, -1) * jax.nn.logsumexp(x, -1, keepdims=True)


@case(normal(1100, 3, 3))
def components_of_matrices(m):
    """Two short dims."""
    square = (m[:, :, :, None] * m[:, None]).sum(2)
    return square / jnp.sqrt((square * square).sum((1, 2), keepdims=True))


@case(normal(1200, 6, dtype=BF16))
def components_of_16_bits(x):
    return x / (1 + jnp.abs(x).sum(-1, keepdims=True)), jnp.abs(x).max(-1)


@case(normal(3000, 7))
def sums_of_components(x):
    """Columns of a few components: each thread carries all of them down its rows."""
    y = jnp.exp(-x)
    return (y * y.sum(1, keepdims=True)).sum(0), y.max(0)


@case(normal(3000))
def half_powers(x):
    x = jnp.abs(x) + 0.01
    return x**1.5 + x**-1.5, x**2.5 / (1 + x**-3.5)
