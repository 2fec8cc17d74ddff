"""Cases of prefix scans, in the ways in which they are written."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.codegen.kernel_cases import BF16, STRICT, case, integers, normal


def linear(p, q):
    return p[0] * q[0], q[0] * p[1] + q[1]


@case(normal(70, 96))
def scan_of_rows(x):
    return jnp.exp(-jnp.cumsum(jnp.abs(x), 1))


@case(normal(96, 70))
def scan_down_columns(x):
    return jnp.cumsum(x, 0, dtype=x.dtype) * 2


@case(normal(12, 700))
def scan_of_long_rows(x):
    """Two levels of totals, and no divisor for the second."""
    return jnp.cumsum(x, 1)


@case(normal(40, 97))
def scan_of_a_prime(x):
    return lax.cummax(x, axis=1) - x


@case(normal(9, 64, 5), normal(9, 64, 5))
def scan_linear(a, x):
    return lax.associative_scan(linear, (jax.nn.sigmoid(a), x), axis=1)[1]


@case(normal(128, 36), normal(128, 36))
def scan_linear_reversed(a, x):
    """Returns: from the last step to the first, and what is made of them."""
    y = lax.associative_scan(linear, (jax.nn.sigmoid(a), x), reverse=True)[1]
    return (y - y.mean(0)) * x, y


@case(normal(1, 64, 5), normal(1, 64, 5))
def scan_linear_of_one(a, x):
    """A batch of one: its dim is in no row."""
    return lax.associative_scan(linear, (jax.nn.sigmoid(a), x), axis=1)[1]


@case(normal(31, 1), normal(31, 160))
def scan_linear_by_one_factor(a, x):
    """A moving average: one factor a row, whose powers are computed once."""
    return lax.associative_scan(linear, (jnp.broadcast_to(jnp.tanh(a), x.shape), x), axis=1)[1]


@case(normal(31, 160))
def scan_linear_by_a_number(x):
    return lax.associative_scan(linear, (jnp.full(x.shape, 0.9, x.dtype), 0.1 * x), axis=1)[1]


@case(normal(64, 128), normal(64, 128))
def scan_exclusive(x, y):
    """Transmittance: what is left before each sample, and the sums that it weighs."""
    a = 1 - jnp.exp(-jnp.abs(x))
    left = jnp.cumprod(jnp.concatenate([jnp.ones_like(a[:, :1]), 1 - a], 1), 1)[:, :-1]
    return (a * left * y).sum(1), a * left


@case(normal(64, 80))
def scan_and_gradient(x):
    return jax.grad(lambda x: (jnp.cumsum(jnp.sin(x), 1) ** 2).sum())(x)


@case(integers(50, 75), integers(50, 75, high=2))
def scans_of_integers(x, y):
    return jnp.cumsum(x, 1), lax.cummin(x, axis=1, reverse=True), jnp.cumprod(y, 1)


@case(normal(50, 64, dtype=BF16))
def scan_of_16_bits(x):
    return jnp.cumsum(x.astype(jnp.float32), 1).astype(BF16)


@case(normal(33, 64))
def scan_of_decisions(x):
    return lax.associative_scan(jnp.logical_or, x > 2, axis=1), x * 2


@case(normal(40, 64))
def scan_by_shifts(x):
    """Shifted copies, twice as far each time."""
    for k in (1, 2, 4, 8, 16, 32):
        x = x + jnp.pad(x, ((0, 0), (k, 0)))[:, :-k]
    return x


@case(normal(40, 96), options=STRICT)
def scan_in_strict_numerics(x):
    return jnp.cumsum(x, 1)


@case(normal(24, 60, 3))
def scans_that_are_summed(x):
    """Sums of a scan along it and across it, and the index of its largest element."""
    y = jnp.cumsum(x, 1)
    return y.sum(1), y.sum(2), y[..., 0].argmax(1), np.float32(2) * y


@case(normal(24, 50))
def scan_read_where_it_was(x):
    """Moving sums as differences of a running sum, of which one is read eight elements later."""
    y = jnp.pad(x, ((0, 0), (8, 14))).reshape(24, 9, 8)
    y = jnp.cumsum(y, 2)
    before = jnp.pad(jnp.cumsum(y[..., -1], 1), ((0, 0), (1, 0)))[:, :-1]
    y = (y + before[..., None]).reshape(24, 72)
    return (y[:, 8:58] - y[:, :50]) * 0.125, y[:, 8:58] * x
