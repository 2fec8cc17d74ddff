"""Physics: stencils, particles, ensembles, iterated maps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.everyday.table import program


@program(lambda r: (r.uniform(511, 257), r.uniform(511, 257, low=0.1, high=0.2)))
def heat(t, conductivity):
    """Fifty steps of a stencil with fixed borders."""

    def step(_, t):
        mid = t[1:-1, 1:-1]
        around = t[:-2, 1:-1] + t[2:, 1:-1] + t[1:-1, :-2] + t[1:-1, 2:]
        return t.at[1:-1, 1:-1].set(mid + conductivity[1:-1, 1:-1] * (around - 4 * mid))

    return lax.fori_loop(0, 50, step, t)


@program(lambda r: (r.normal(401, 301), r.normal(401, 301), r.uniform(401, 301, low=0.1)))
def waves(now, before, speed):
    """One step that wraps around, with damping near the border, and its energy."""
    lap = sum(jnp.roll(now, s, a) for s in (1, -1) for a in (0, 1)) - 4 * now
    i, j = jnp.arange(now.shape[0])[:, None], jnp.arange(now.shape[1])
    edge = jnp.minimum(jnp.minimum(i, now.shape[0] - 1 - i), jnp.minimum(j, now.shape[1] - 1 - j))
    damp = 1 - 0.02 * jnp.exp(-((edge / 12.0) ** 2))
    after = damp * (2 * now - before + speed**2 * lap)
    return after, 0.5 * ((after - now) ** 2).sum() + 0.5 * (speed**2 * now * -lap).sum()


@program(lambda r: (r.normal(1531, 3), r.normal(1531, 3), r.uniform(1531, low=0.5)))
def bodies(x, v, mass):
    """A leapfrog step of all pairs, and the potential energy."""

    def pull(x):
        away = x[None] - x[:, None]
        square = (away**2).sum(-1) + 1e-2
        return (mass[None, :, None] * away * square[..., None] ** -1.5).sum(1), square

    a, _ = pull(x)
    v = v + 0.005 * a
    x = x + 0.01 * v
    a, square = pull(x)
    energy = -0.5 * (mass[:, None] * mass / jnp.sqrt(square)).sum()
    return x, v + 0.005 * a, energy


@program(lambda r: (r.uniform(4099, 2, low=0.5, high=2.0), r.uniform(4099, 4, low=0.5)))
def predators(start, rates):
    """An ensemble of two equations, Runge-Kutta for sixty steps, all states kept."""
    a, b, c, d = jnp.moveaxis(rates, -1, 0)

    def slope(s):
        x, y = s[:, 0], s[:, 1]
        return jnp.stack([a * x - b * x * y, c * x * y - d * y], -1)

    def step(s, _):
        k1 = slope(s)
        k2 = slope(s + 0.01 * k1)
        k3 = slope(s + 0.01 * k2)
        k4 = slope(s + 0.02 * k3)
        s = s + 0.02 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return s, s

    return lax.scan(step, start, None, length=60)[1]


_WAYS = np.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)])
_SHARES = np.array([4 / 9, *[1 / 9] * 4, *[1 / 36] * 4], np.float32)


@program(lambda r: (r.uniform(257, 193, 9, low=0.05, high=0.15), r.chance(0.05, 257, 193)))
def lattice_gas(f, wall):
    """One step of lattice Boltzmann: collisions, walls, streaming; nine is the minor extent."""
    rho = f.sum(-1)
    u = (f @ jnp.asarray(_WAYS, jnp.float32)) / rho[..., None]
    along = u @ jnp.asarray(_WAYS.T, jnp.float32)
    square = (u**2).sum(-1, keepdims=True)
    rest = rho[..., None] * _SHARES * (1 + 3 * along + 4.5 * along**2 - 1.5 * square)
    f = f + (rest - f) / 0.6
    f = jnp.where(wall[..., None], f[..., jnp.array([0, 3, 4, 1, 2, 7, 8, 5, 6])], f)
    moved = [jnp.roll(f[..., n], way, (0, 1)) for n, way in enumerate(_WAYS.tolist())]
    return jnp.stack(moved, -1)


@program(lambda r: (r.integers(1024, 1024, high=2, dtype=np.int8), r.key(), r.uniform(low=0.3)))
def magnet(spins, key, cold):
    """Both colours of a checkerboard, at random, in bytes."""
    s = 2 * spins - 1
    i, j = jnp.arange(s.shape[0])[:, None], jnp.arange(s.shape[1])
    for colour, k in enumerate(jax.random.split(key)):
        near = sum(jnp.roll(s, n, a) for n in (1, -1) for a in (0, 1))
        gain = 2.0 * s * near
        turn = jax.random.uniform(k, s.shape) < jnp.exp(-cold * gain)
        s = jnp.where(turn & ((i + j) % 2 == colour), -s, s)
    return s, s.astype(jnp.float32).mean()


@program(lambda r: (np.float32(-0.745), np.float32(0.11)))
def julia(re, im):
    """Forty iterations of a complex map, and when each point left."""
    x = jnp.linspace(-1.6, 1.6, 701) + 1j * jnp.linspace(-1.2, 1.2, 501)[:, None]
    c = re + 1j * im

    def step(_, carry):
        z, left = carry
        inside = jnp.abs(z) < 2
        return jnp.where(inside, z * z + c, z), left + inside

    z, left = lax.fori_loop(0, 40, step, (x, jnp.zeros(x.shape, jnp.int32)))
    return left + 1 - jnp.log2(jnp.maximum(jnp.log2(jnp.abs(z) + 1e-6), 1e-3))


@program(lambda r: (r.uniform(997, 3, high=9.0),))
def atoms(x):
    """A cut-off Lennard-Jones energy in a box that wraps, and the forces by its gradient."""

    def energy(x):
        away = x[:, None] - x[None]
        away = away - 9.0 * jnp.round(away / 9.0)
        square = (away**2).sum(-1) + 10.0 * jnp.eye(x.shape[0])
        six = (0.8 / jnp.maximum(square, 0.3)) ** 3
        return 0.5 * jnp.where(square < 6.25, 4 * (six * six - six), 0.0).sum()

    value, grad = jax.value_and_grad(energy)(x)
    return value, -grad
