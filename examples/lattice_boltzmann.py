"""Lattice Boltzmann: a channel with a cylinder in it, nine directions in two dimensions (D2Q9).

A step sums over the directions, relaxes towards equilibrium and moves each population by one cell.
XLA has separate kernels for sums, collision and moves, in each iteration of the loop.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from common import Workload, size

X = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1])
Y = np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
WEIGHT = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)
OPPOSITE = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])
RELAXATION, INFLOW = 1.7, 0.1


def equilibrium(density: jax.Array, u: jax.Array, v: jax.Array) -> jax.Array:
    """f32[9, height, width] of density and velocity [height, width]."""
    along = X[:, None, None] * u + Y[:, None, None] * v
    terms = 1 + 3 * along + 4.5 * along**2 - 1.5 * (u**2 + v**2)
    return WEIGHT[:, None, None] * density * terms


def step(f: jax.Array, solid: jax.Array) -> jax.Array:
    density = f.sum(axis=0)
    u = jnp.tensordot(X.astype(np.float32), f, 1) / density
    v = jnp.tensordot(Y.astype(np.float32), f, 1) / density
    f = jnp.where(solid, f[OPPOSITE], f + RELAXATION * (equilibrium(density, u, v) - f))
    f = jnp.stack([jnp.roll(f[i], (Y[i], X[i]), axis=(0, 1)) for i in range(9)])
    inflow = equilibrium(jnp.ones(f.shape[1]), jnp.full(f.shape[1], INFLOW), jnp.zeros(f.shape[1]))
    return f.at[:, :, 0].set(inflow[:, 0])


def channel() -> Workload:
    """200 steps of 100 x 400 cells (small: 4 of 12 x 24)."""
    steps, height, width = size((200, 100, 400), (4, 12, 24))
    rows, columns = np.indices((height, width))
    solid = (rows - height / 2) ** 2 + (columns - width / 4) ** 2 < (height / 8) ** 2
    zero = jnp.zeros((height, width))
    start = equilibrium(zero + 1, zero + INFLOW, zero)

    def flow(f: jax.Array, solid: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, steps, lambda _, f: step(f, solid), f)

    return flow, (start, jnp.asarray(solid))
