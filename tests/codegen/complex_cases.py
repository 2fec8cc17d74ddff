"""Cases of complex numbers inside of kernels, of which real ones come in and go out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.codegen.kernel_cases import case, normal


def parts(z):
    return z.real, z.imag


@case(normal(50, 40), normal(50, 40))
def complex_quotients(x, y):
    z = lax.complex(x, y)
    return *parts(z / (z * z + 2)), *parts(1j / z), jnp.abs(z), (z / 3).imag


@case(normal(30, 70), normal(30, 70))
def complex_sums(x, y):
    """Along rows, along columns, and of what is computed from them."""
    z = lax.complex(x, y)
    z = z / jnp.sqrt((jnp.abs(z) ** 2).sum(1, keepdims=True))
    return *parts(z.sum(0)), *parts((z * z).mean(1))


@case(normal(24, 8), normal(8, 20))
def complex_products(x, y):
    z, w = lax.complex(x, -x), lax.complex(y, y + 1)
    return parts(z @ w)


@case(normal(20, 12))
def complex_movement(x):
    z = lax.complex(x, jnp.sin(x))
    z = jnp.concatenate([z[:, 3:], jnp.roll(z, 1, 0)], 1)
    z = jnp.pad(jnp.where(z.real > 0, z, -z), ((1, 2), (0, 3)), constant_values=1j)
    return parts(z.T[::-1])


@case(normal(6, 10, 32), normal(10, 16))
def rotated_in_pairs(q, t):
    """Rotary embeddings, as complex numbers."""
    z = lax.complex(q[..., 0::2], q[..., 1::2]) * jnp.exp(1j * t)
    return jnp.stack([z.real, z.imag], -1).reshape(q.shape)


@case(normal(30, 20), normal(30, 20))
def complex_gradient(x, y):
    def loss(x, y):
        z = lax.complex(x, y)
        return (jnp.abs(z * jnp.exp(1j * z.real)) ** 2).sum()

    return jax.grad(loss, (0, 1))(x, y)


@case(normal(3, 70), normal(3, 70))
def running_phases(x, y):
    """Sums of more than a block of them."""
    z = jnp.cumsum(lax.complex(x, y), 1)
    return z.real, jnp.angle(z)
