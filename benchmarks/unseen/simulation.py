"""Simulation: stencils, particles, lattices, waves, spins, paths of prices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.unseen.inputs import Draw, Program


def reaction_diffusion(u: Any, v: Any) -> tuple[Any, Any]:
    """20 steps of Gray and Scott's reaction on a periodic grid."""

    def laplacian(x: Any) -> Any:
        sides = jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1)
        return sides - 4.0 * x

    def step(_: Any, fields: tuple[Any, Any]) -> tuple[Any, Any]:
        u, v = fields
        reaction = u * v * v
        new_u = u + 0.16 * laplacian(u) - reaction + 0.06 * (1.0 - u)
        new_v = v + 0.08 * laplacian(v) + reaction - 0.122 * v
        return new_u, new_v

    return lax.fori_loop(0, 20, step, (u, v))


def gray_scott() -> Program:
    draw = Draw(61)
    spot = draw.uniform(509, 509) < 0.1
    u = np.where(spot, 0.5, 1.0) + draw.normal(509, 509, scale=0.01)
    return reaction_diffusion, (u.astype(np.float32), np.where(spot, 0.25, 0.0).astype(np.float32))


def leapfrog(position: Any, velocity: Any, mass: Any) -> tuple[Any, Any, Any]:
    """Five steps of softened gravity among all pairs, and the energy after each."""

    def pull(x: Any) -> tuple[Any, Any]:
        away = x[None, :, :] - x[:, None, :]
        square = jnp.sum(away**2, axis=-1) + 1e-2
        inverse = lax.rsqrt(square)
        force = jnp.einsum("ijk,ij,j->ik", away, inverse**3, mass)
        energy = -0.5 * jnp.einsum("ij,i,j->", inverse, mass, mass)
        return force, energy

    def step(carry: tuple[Any, Any, Any], _: None) -> tuple[tuple[Any, Any, Any], Any]:
        x, v, a = carry
        v = v + 0.005 * a
        x = x + 0.01 * v
        a, potential = pull(x)
        v = v + 0.005 * a
        return (x, v, a), potential + 0.5 * jnp.sum(mass[:, None] * v**2)

    start = position, velocity, pull(position)[0]
    (position, velocity, _), energy = lax.scan(step, start, None, length=5)
    return position, velocity, energy


def n_body() -> Program:
    draw = Draw(62)
    mass = draw.uniform(2039, low=0.5, high=1.5) / 2039
    return leapfrog, (draw.normal(2039, 3), draw.normal(2039, 3, scale=0.1), mass)


def lattice_boltzmann(f: Any, wall: Any) -> tuple[Any, Any]:
    """A D2Q9 step: stream, bounce back at walls, collide; and the vorticity."""
    cx = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1])
    cy = np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
    weight = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)
    back = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])
    f = jnp.stack([jnp.roll(f[n], (cy[n], cx[n]), (0, 1)) for n in range(9)])
    bounced = f[back]
    density = jnp.sum(f, axis=0)
    ux = jnp.tensordot(jnp.asarray(cx, jnp.float32), f, 1) / density
    uy = jnp.tensordot(jnp.asarray(cy, jnp.float32), f, 1) / density
    along = cx[:, None, None] * ux + cy[:, None, None] * uy
    square = ux**2 + uy**2
    equal = density * weight[:, None, None] * (1 + 3 * along + 4.5 * along**2 - 1.5 * square)
    f = jnp.where(wall, bounced, f + (equal - f) / 0.6)
    curl = (jnp.roll(uy, -1, 1) - jnp.roll(uy, 1, 1)) - (jnp.roll(ux, -1, 0) - jnp.roll(ux, 1, 0))
    return f, jnp.where(wall, 0.0, curl)


def fluid_step() -> Program:
    draw = Draw(63)
    y, x = np.mgrid[:800, :2039]
    wall = (y - 400) ** 2 + (x - 500) ** 2 < 80**2
    return lattice_boltzmann, (1.0 + draw.normal(9, 800, 2039, scale=0.01), wall)


def particle_in_cell(x: Any, v: Any) -> tuple[Any, Any, Any]:
    """Charges to a grid, the field by a Fourier solve, the field back to the particles."""
    cells = 256
    place = x * cells
    left = jnp.floor(place)
    part = place - left
    i = left.astype(jnp.int32) % cells
    j = (i + 1) % cells
    density = jnp.zeros(cells).at[i].add(1.0 - part).at[j].add(part)
    density = density * (cells / x.shape[0]) - 1.0
    wave = 2 * jnp.pi * jnp.fft.rfftfreq(cells, 1 / cells)
    spectrum = jnp.fft.rfft(density)
    field = jnp.fft.irfft(jnp.where(wave > 0, -1j * spectrum / jnp.where(wave > 0, wave, 1.0), 0.0))
    force = field[i] * (1.0 - part) + field[j] * part
    v = v - 0.05 * force
    return (x + 0.05 * v) % 1.0, v, 0.5 * jnp.mean(field**2)


def plasma_step() -> Program:
    draw = Draw(64)
    return particle_in_cell, (draw.uniform(200003), draw.normal(200003, scale=0.3))


def shallow_water(h: Any, u: Any, v: Any, ground: Any) -> tuple[Any, Any, Any]:
    """A step of the shallow-water equations on a staggered grid with friction and rotation."""
    dx, dt, gravity, coriolis = 1000.0, 2.0, 9.81, 1e-4
    level = h + ground
    east = jnp.pad(level[:, 1:] - level[:, :-1], ((0, 0), (0, 1)))
    north = jnp.pad(level[1:] - level[:-1], ((0, 1), (0, 0)))
    speed = jnp.sqrt(u * u + v * v)
    v_at_u = 0.25 * (v + jnp.roll(v, 1, 0) + jnp.roll(v, -1, 1) + jnp.roll(v, (1, -1), (0, 1)))
    u_at_v = 0.25 * (u + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 0) + jnp.roll(u, (-1, 1), (0, 1)))
    drag = 1.0 / (1.0 + dt * 2.5e-3 * speed / jnp.maximum(h, 0.1))
    new_u = (u - dt * (gravity * east / dx - coriolis * v_at_u)) * drag
    new_v = (v - dt * (gravity * north / dx + coriolis * u_at_v)) * drag
    flow_x = new_u * 0.5 * (h + jnp.roll(h, -1, 1))
    flow_y = new_v * 0.5 * (h + jnp.roll(h, -1, 0))
    out = (flow_x - jnp.roll(flow_x, 1, 1)) + (flow_y - jnp.roll(flow_y, 1, 0))
    return jnp.maximum(h - dt / dx * out, 0.0), new_u, new_v


def ocean_step() -> Program:
    draw = Draw(65)
    shape = (2047, 2559)
    h = 50.0 + draw.normal(*shape, scale=0.2)
    fields = (draw.normal(*shape, scale=0.1) for _ in range(2))
    return shallow_water, (h, *fields, draw.uniform(*shape, high=10.0))


def ising(spins: Any, key: Any) -> tuple[Any, Any]:
    """Ten sweeps of checkerboard Metropolis over int8 spins, and the magnetization."""
    rows, columns = spins.shape
    black = (jnp.arange(rows)[:, None] + jnp.arange(columns)[None, :]) % 2 == 0
    key = jax.random.wrap_key_data(key)

    def half(spins: Any, key: Any, colour: Any) -> Any:
        near = jnp.roll(spins, 1, 0) + jnp.roll(spins, -1, 0)
        near = near + jnp.roll(spins, 1, 1) + jnp.roll(spins, -1, 1)
        energy = 2.0 * (spins * near).astype(jnp.float32)
        draw = jax.random.uniform(key, spins.shape)
        flip = colour & (draw < jnp.exp(-0.44 * energy))
        return jnp.where(flip, -spins, spins)

    def sweep(number: Any, spins: Any) -> Any:
        first, second = jax.random.split(jax.random.fold_in(key, number))
        return half(half(spins, first, black), second, ~black)

    spins = lax.fori_loop(0, 10, sweep, spins)
    return spins, jnp.mean(spins.astype(jnp.float32))


def ising_model() -> Program:
    draw = Draw(66)
    spins = (2 * draw.integers(510, 514, high=2) - 1).astype(np.int8)
    return ising, (spins, draw.key())


def heston(key: Any, spot: Any, variance: Any) -> tuple[Any, Any]:
    """Asian options under stochastic volatility: 64 steps of a path per element, antithetic."""
    paths = 50021
    key = jax.random.wrap_key_data(key)
    dt = 1.0 / 64

    def step(carry: tuple[Any, Any, Any], number: Any) -> tuple[tuple[Any, Any, Any], None]:
        log_s, v, total = carry
        z = jax.random.normal(jax.random.fold_in(key, number), (2, paths))
        z = jnp.concatenate([z, -z], axis=1)
        w = -0.7 * z[0] + jnp.sqrt(1 - 0.49) * z[1]
        positive = jnp.maximum(v, 0.0)
        log_s = log_s + (0.02 - 0.5 * positive) * dt + jnp.sqrt(positive * dt) * z[0]
        v = v + 2.0 * (0.04 - positive) * dt + 0.3 * jnp.sqrt(positive * dt) * w
        return (log_s, v, total + jnp.exp(log_s)), None

    start = jnp.full(2 * paths, jnp.log(spot)), jnp.full(2 * paths, variance), jnp.zeros(2 * paths)
    (_, _, total), _ = lax.scan(step, start, jnp.arange(64))
    payoff = jnp.maximum(total / 64 - spot, 0.0) * jnp.exp(-0.02)
    return jnp.mean(payoff), jnp.std(payoff) / jnp.sqrt(2 * paths)


def stochastic_volatility() -> Program:
    return heston, (Draw(67).key(), np.float32(100.0), np.float32(0.04))


def split_step(psi: Any, potential: Any) -> tuple[Any, Any]:
    """Eight split steps of Schroedinger's equation on a grid, and the mean place."""
    rows, columns = psi.shape
    ky = 2 * jnp.pi * jnp.fft.fftfreq(rows, 0.1)
    kx = 2 * jnp.pi * jnp.fft.fftfreq(columns, 0.1)
    kinetic = jnp.exp(-0.5j * 0.01 * (ky[:, None] ** 2 + kx[None, :] ** 2))
    half = jnp.exp(-0.5j * 0.01 * potential)

    def step(_: Any, psi: Any) -> Any:
        psi = jnp.fft.ifft2(jnp.fft.fft2(psi * half) * kinetic) * half
        return psi / jnp.sqrt(jnp.sum(jnp.abs(psi) ** 2) * 0.01)

    psi = lax.fori_loop(0, 8, step, psi)
    density = jnp.abs(psi) ** 2
    return psi, jnp.sum(density * jnp.arange(columns)) * 0.001


def wave_packet() -> Program:
    y, x = (np.mgrid[:384, :500].astype(np.float32) - 200) * 0.1
    packet = np.exp(-0.5 * ((x + 5) ** 2 + y**2) + 2j * x).astype(np.complex64)
    return split_step, (packet, (0.05 * x**2 + 2.0 * np.exp(-(x**2) - y**2)).astype(np.float32))
