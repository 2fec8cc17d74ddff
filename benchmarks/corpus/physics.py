"""Physics: one step, or a few, of particles, fluids, fields, waves and quantum states."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


@template
def smoothed_particles(draw: Draw):
    """Densities, pressures and forces of a fluid of particles from all pairs."""
    n, d, h = draw.size(500, 3000), draw.choice(2, 3), draw.number(0.05, 0.3)
    fields_first = draw.choice(True, False)

    def fun(x, v):
        x, v = (x.T, v.T) if fields_first else (x, v)
        apart = x[:, None] - x
        r = jnp.sqrt((apart**2).sum(-1) + 1e-12)
        q = r / h
        norm = 10 / (7 * jnp.pi * h**2) if d == 2 else 1 / (jnp.pi * h**3)
        near, far = 1 - 1.5 * q**2 + 0.75 * q**3, 0.25 * (2 - q) ** 3
        w = norm * jnp.where(q < 1, near, jnp.where(q < 2, far, 0))
        slope = jnp.where(q < 1, -3 * q + 2.25 * q**2, jnp.where(q < 2, -0.75 * (2 - q) ** 2, 0))
        slope = norm * slope / h
        rho = w.sum(1) / n
        p = 20 * ((rho / rho.mean()) ** 7 - 1)
        both = p / rho**2
        speed = ((v[:, None] - v) * apart).sum(-1)
        mu = jnp.where(speed < 0, h * speed / (r**2 + 0.01 * h**2), 0)
        viscous = -0.1 * 10 * mu / (0.5 * (rho[:, None] + rho))
        factor = (both[:, None] + both + viscous) * slope / r
        force = -(factor[..., None] * apart).sum(1) / n
        return (force.T if fields_first else force), rho

    shape = (d, n) if fields_first else (n, d)
    return fun, (draw.uniform(*shape), draw.normal(*shape))


@template
def lennard_jones_gradient(draw: Draw):
    """Forces by the gradient of the energy over a list of neighbours in a periodic box."""
    n, near, side = draw.size(8000, 160000), draw.size(16, 64), draw.number(5, 20)
    cutoff, shifted = draw.number(2.2, 3), draw.choice(True, False)

    def energy(x, neighbour):
        apart = x[:, None] - x[neighbour]
        apart = apart - side * jnp.round(apart / side)
        square = (apart**2).sum(-1)
        valid = (neighbour != jnp.arange(n)[:, None]) & (square < cutoff**2)
        inverse = jnp.where(valid, 1 / jnp.maximum(square, 0.64), 0) ** 3
        level = 4 * (cutoff**-12 - cutoff**-6) if shifted else 0.0
        return 0.5 * jnp.where(valid, 4 * (inverse**2 - inverse) - level, 0).sum()

    def fun(x, v, neighbour):
        e, slope = jax.value_and_grad(energy)(x, neighbour)
        v = v - 0.002 * jnp.clip(slope, -100, 100)
        return jnp.mod(x + 0.002 * v, side), v, e + 0.5 * (v**2).sum()

    args = (draw.uniform(n, 3, high=side), draw.normal(n, 3))
    return fun, (*args, draw.integers(n, near, high=n))


@template
def lattice_of_nineteen(draw: Draw):
    """A lattice fluid in space: nineteen directions stream, meet and bounce back at walls."""
    nx, ny, nz = draw.size(16, 96), draw.odd_size(17, 95), draw.size(16, 96)
    first, omega = draw.choice(True, False), draw.number(0.6, 1.9)
    around = [(x, y, z) for x in (0, 1, -1) for y in (0, 1, -1) for z in (0, 1, -1)]
    c = [v for v in around if sum(map(abs, v)) < 3]
    weights = [{0: 1 / 3, 1: 1 / 18, 2: 1 / 36}[sum(map(abs, v))] for v in c]
    back = [c.index((-x, -y, -z)) for x, y, z in c]

    def fun(f, wall):
        axis = 0 if first else -1
        f = f if first else jnp.moveaxis(f, -1, 0)
        f = jnp.stack([jnp.roll(f[i], v, (0, 1, 2)) for i, v in enumerate(c)])
        rho = f.sum(0)
        directions = jnp.array(c, jnp.float32)
        u = jnp.einsum("iabc,id->dabc", f, directions) / rho
        along = jnp.einsum("id,dabc->iabc", directions, u)
        w = jnp.array(weights)[:, None, None, None]
        equal = w * rho * (1 + 3 * along + 4.5 * along**2 - 1.5 * (u**2).sum(0))
        out = jnp.where(wall, f[jnp.array(back)], f + omega * (equal - f))
        return jnp.moveaxis(out, 0, axis), rho

    shape = (19, nx, ny, nz) if first else (nx, ny, nz, 19)
    return fun, (draw.uniform(*shape, low=0.9, high=1.1), draw.mask(nx, ny, nz, share=0.1))


@template
def gas_dynamics(draw: Draw):
    """A compressible gas in the plane: limited slopes, two waves at each border, one step."""
    h, w = draw.size(256, 2800), draw.odd_size(129, 1399)
    gamma, limiter = draw.choice(1.4, 5 / 3), draw.choice("minmod", "van leer")

    def primitive(u):
        rho = jnp.maximum(u[0], 1e-3)
        vx, vy = u[1] / rho, u[2] / rho
        p = jnp.maximum((gamma - 1) * (u[3] - 0.5 * rho * (vx**2 + vy**2)), 1e-3)
        return rho, vx, vy, p

    def flux(u):
        _, vx, _, p = primitive(u)
        return jnp.stack([u[1], u[1] * vx + p, u[2] * vx, (u[3] + p) * vx])

    def limited(u, axis):
        a, b = u - jnp.roll(u, 1, axis), jnp.roll(u, -1, axis) - u
        if limiter == "minmod":
            return jnp.where(a * b > 0, jnp.sign(a) * jnp.minimum(jnp.abs(a), jnp.abs(b)), 0)
        return jnp.where(a * b > 0, 2 * a * b / jnp.where(a * b > 0, a + b, 1), 0)

    def change(u, axis):
        s = limited(u, axis)
        left, right = u + s / 2, jnp.roll(u - s / 2, -1, axis)
        (rl, vl, _, pl), (rr, vr, _, pr) = primitive(left), primitive(right)
        cl, cr = jnp.sqrt(gamma * pl / rl), jnp.sqrt(gamma * pr / rr)
        low, high = jnp.minimum(vl - cl, vr - cr), jnp.maximum(vl + cl, vr + cr)
        fl, fr = flux(left), flux(right)
        middle = (high * fl - low * fr + low * high * (right - left)) / (high - low)
        f = jnp.where(low >= 0, fl, jnp.where(high <= 0, fr, middle))
        return f - jnp.roll(f, 1, axis)

    def fun(u, ratio):
        turn = jnp.array([0, 2, 1, 3])
        return u - ratio * (change(u, 1) + change(u[turn], 2)[turn])

    def start(r, s):
        u = 0.1 * r.standard_normal(s)
        u[0], u[3] = 1 + 0.3 * r.random(s[1:]), 2.5 + r.random(s[1:])
        return u

    ratio = draw.leaf((), "float32", lambda r, s: r.uniform(0.05, 0.2, s))
    return fun, (draw.leaf((4, h, w), "float32", start), ratio)


@template
def maxwell_step(draw: Draw):
    """Electric and magnetic fields on shifted grids, with losses in an absorbing layer."""
    nx, ny, nz = draw.size(32, 160), draw.size(32, 160), draw.odd_size(33, 159)
    first, ratio = draw.choice(True, False), draw.number(0.2, 0.5)

    def curl(f, shift):
        def d(i, axis):
            return (jnp.roll(f[i], -shift, axis) - f[i]) * shift

        return d(2, 1) - d(1, 2), d(0, 2) - d(2, 0), d(1, 0) - d(0, 1)

    def fun(e, h, eps, loss):
        e, h = (e, h) if first else (jnp.moveaxis(e, -1, 0), jnp.moveaxis(h, -1, 0))
        h = h - ratio * jnp.stack(curl(e, 1))
        half = 0.5 * ratio * loss / eps
        e = (1 - half) / (1 + half) * e + ratio / eps / (1 + half) * jnp.stack(curl(h, -1))
        energy = 0.5 * (eps * (e**2).sum(0) + (h**2).sum(0)).sum()
        out = (e, h) if first else (jnp.moveaxis(e, 0, -1), jnp.moveaxis(h, 0, -1))
        return *out, energy

    shape = (3, nx, ny, nz) if first else (nx, ny, nz, 3)
    args = (draw.normal(*shape), draw.normal(*shape))
    return fun, (*args, draw.uniform(nx, ny, nz, low=1, high=4), draw.uniform(nx, ny, nz, high=0.1))


@template
def phase_separation(draw: Draw):
    """A mixture that separates: a step in Fourier space, and its free energy."""
    n, side, dt = draw.size(2, 32), draw.size(64, 768, 2), draw.number(0.01, 0.1)
    other = draw.odd_size(65, 700)

    def fun(c, mobility):
        kx = 2 * jnp.pi * jnp.fft.fftfreq(other)[:, None]
        ky = 2 * jnp.pi * jnp.fft.rfftfreq(side)
        k2 = kx**2 + ky**2
        f = jnp.fft.rfft2(c)
        force = jnp.fft.rfft2(c**3 - c)
        f = (f - dt * mobility * k2 * force) / (1 + dt * mobility * k2**2 * 0.5)
        new = jnp.fft.irfft2(f, (other, side))
        gx = jnp.fft.irfft2(1j * kx * f, (other, side))
        gy = jnp.fft.irfft2(1j * ky * f, (other, side))
        energy = (0.25 * (new**2 - 1) ** 2 + 0.25 * (gx**2 + gy**2)).mean((1, 2))
        return new, energy

    return fun, (draw.normal(n, other, side, scale=0.3), draw.uniform(n, 1, 1))


@template
def vorticity_step(draw: Draw):
    """Turbulence in the plane: products in space, derivatives in Fourier space, a filter."""
    n, side, form = (
        draw.size(8, 96),
        draw.choice(64, 128, 192, 256),
        draw.choice("advective", "flux"),
    )
    viscosity, forcing = draw.number(1e-4, 1e-2), draw.choice(2, 4)
    side = 32 if draw.small else side

    def fun(f, dt):
        kx = jnp.fft.fftfreq(side, 1 / side)[:, None]
        ky = jnp.fft.rfftfreq(side, 1 / side)
        k2 = kx**2 + ky**2
        stream = f / jnp.where(k2 == 0, 1, k2)
        back = lambda g: jnp.fft.irfft2(g, (side, side))  # noqa: E731
        u, v, w = back(1j * ky * stream), back(-1j * kx * stream), back(f)
        if form == "flux":
            moved = 1j * kx * jnp.fft.rfft2(u * w) + 1j * ky * jnp.fft.rfft2(v * w)
        else:
            moved = jnp.fft.rfft2(u * back(1j * kx * f) + v * back(1j * ky * f))
        kept = (jnp.abs(kx) < side / 3) & (ky < side / 3)
        y = 2 * jnp.pi * jnp.arange(side) / side
        push = jnp.fft.rfft2(jnp.broadcast_to(jnp.cos(forcing * y), (side, side)))
        new = (f + dt * jnp.where(kept, push - moved, 0)) / (1 + dt * viscosity * k2)
        return new, 0.5 * (u**2 + v**2).mean((1, 2)), w.max((1, 2))

    def spectrum(r, s):
        return r.standard_normal(s) + 1j * r.standard_normal(s)

    start = draw.leaf((n, side, side // 2 + 1), "complex64", spectrum)
    return fun, (start, draw.leaf((), "float32", lambda r, s: r.uniform(1e-3, 1e-2, s)))


@template
def hanging_cloth(draw: Draw):
    """Springs along a sheet by shifts or by lists of ends, gravity, a ball, a Verlet step."""
    h, w, lists = draw.size(80, 1400), draw.odd_size(81, 1399), draw.choice(True, False)
    stiff, dt = draw.number(50, 500), draw.number(0.001, 0.01)

    def pull(a, b, rest):
        d = b - a
        length = jnp.sqrt((d**2).sum(-1, keepdims=True) + 1e-12)
        return stiff * (length - rest) * d / length

    def fun(x, v, fixed):
        if lists:
            i = jnp.arange(h * w).reshape(h, w)
            one = jnp.concatenate([i[:-1].ravel(), i[:, :-1].ravel()])
            other = jnp.concatenate([i[1:].ravel(), i[:, 1:].ravel()])
            flat = x.reshape(-1, 3)
            f = pull(flat[one], flat[other], 1.0)
            force = jnp.zeros_like(flat).at[one].add(f).at[other].add(-f).reshape(h, w, 3)
        else:
            down, right = pull(x[:-1], x[1:], 1.0), pull(x[:, :-1], x[:, 1:], 1.0)
            force = jnp.pad(down, ((0, 1), (0, 0), (0, 0))) - jnp.pad(
                down, ((1, 0), (0, 0), (0, 0))
            )
            force += jnp.pad(right, ((0, 0), (0, 1), (0, 0))) - jnp.pad(
                right, ((0, 0), (1, 0), (0, 0))
            )
        v = 0.99 * (v + dt * (force + jnp.array([0, 0, -9.8])))
        v = jnp.where(fixed[..., None], 0, v)
        new = x + dt * v
        r = jnp.linalg.norm(new, axis=-1, keepdims=True)
        return jnp.where(r < 5, new * 5 / jnp.maximum(r, 1e-6), new), v

    place = draw.leaf((h, w, 3), "float32", lambda r, s: 0.1 * r.standard_normal(s) + _sheet(s))
    return fun, (place, draw.normal(h, w, 3), draw.mask(h, w, share=0.01))


def _sheet(shape):
    import numpy as np

    rows, columns = np.indices(shape[:2])
    return np.stack([rows - shape[0] / 2, columns - shape[1] / 2, np.full(shape[:2], 6.0)], -1)


@template
def pressure_sweeps(draw: Draw):
    """A few weighted sweeps of a Poisson equation with obstacles, and the residual."""
    n, h, w = draw.size(2, 16), draw.size(128, 1024), draw.odd_size(129, 1023)
    sweeps, omega = draw.choice(2, 3, 4), draw.number(0.6, 1)
    order = draw.choice("all", "red and black")

    def around(p):
        q = jnp.pad(p, ((0, 0), (1, 1), (1, 1)), mode="edge")
        return q[:, :-2, 1:-1] + q[:, 2:, 1:-1] + q[:, 1:-1, :-2] + q[:, 1:-1, 2:]

    def fun(p, divergence, open_):
        black = (jnp.arange(h)[:, None] + jnp.arange(w)) % 2 == 0
        for _ in range(sweeps):
            for half in (black, ~black) if order != "all" else (True,):
                new = (around(p) - divergence) / 4
                p = jnp.where(open_ & half, (1 - omega) * p + omega * new, p)
        residual = jnp.where(open_, around(p) - 4 * p - divergence, 0)
        return p, jnp.abs(residual).max((1, 2)), (residual**2).mean((1, 2))

    args = (draw.normal(n, h, w), draw.normal(n, h, w))
    return fun, (*args, draw.mask(n, h, w, share=0.9))


@template
def quantum_gates(draw: Draw):
    """Turned qubits, controlled phases, and an expected value of a state of many qubits."""
    qubits, n = draw.choice(14, 16, 18, 20), draw.choice(1, 4)
    qubits = 7 if draw.small else qubits
    targets = [draw.axis(qubits) for _ in range(4)]
    pairs = [(draw.axis(qubits), draw.axis(qubits)) for _ in range(3)]

    def fun(state, angle):
        psi = state.reshape(n, *[2] * qubits)
        for k, target in enumerate(targets):
            c, s = jnp.cos(angle[k] / 2), jnp.sin(angle[k] / 2)
            gate = (
                jnp.array([[c, -1j * s], [-1j * s, c]]) if k % 2 else jnp.array([[c, -s], [s, c]])
            )
            psi = jnp.moveaxis(
                jnp.tensordot(psi, gate.astype(jnp.complex64), ((target + 1,), (1,))),
                -1,
                target + 1,
            )
        flat = psi.reshape(n, -1)
        index = jnp.arange(2**qubits)
        phase = jnp.zeros(2**qubits)
        for k, (a, b) in enumerate(pairs):
            both = (index >> (qubits - 1 - a)) & (index >> (qubits - 1 - b)) & 1
            phase = phase + angle[4 + k] * both
        flat = flat * jnp.exp(1j * phase)
        p = flat.real**2 + flat.imag**2
        parity = 1 - 2.0 * (lax.population_count(index.astype(jnp.uint32)) % 2)
        return flat, (p * parity).sum(-1) / p.sum(-1)

    def state(r, s):
        v = r.standard_normal(s) + 1j * r.standard_normal(s)
        return v / abs(v).max()

    return fun, (draw.leaf((n, 2**qubits), "complex64", state), draw.normal(7))


@template
def radiation_columns(draw: Draw):
    """Heating of columns of air: absorption by bands, optical depths summed up and down."""
    columns, levels = draw.size(500, 16000), draw.odd_size(19, 91)
    bands, minor = draw.size(3, 14), draw.choice(True, False)
    axis = -1 if minor else 0

    def fun(t, humidity, pressure, k):
        k = k[:, None, None]
        thick = jnp.abs(jnp.diff(pressure, axis=axis)) / 9.81
        q = humidity * thick
        tau = k * q[None] * (1 + 0.01 * (t[None] - 250))
        down = jnp.cumsum(tau, 2 if minor else 1)
        up = down[..., -1:] - down if minor else down[:, -1:] - down
        source = 5.67e-8 * t**4
        emitted = (1 - jnp.exp(-1.66 * tau)) * source[None]
        to_space = (emitted * jnp.exp(-1.66 * up)).sum(0)
        to_ground = (emitted * jnp.exp(-1.66 * down)).sum(0)
        solar = jnp.exp(-down / 0.6).mean(0) * 340
        heating = (solar * jnp.maximum(q, 0) - to_space - to_ground) / (1004 * thick)
        return heating, to_space.sum(axis), to_ground.sum(axis)

    def shape(k):
        return (columns, k) if minor else (k, columns)

    pressure = draw.leaf(
        shape(levels + 1), "float32", lambda r, s: _levels(r, s, 1 if minor else 0)
    )
    air = (draw.uniform(*shape(levels), low=200, high=300), draw.uniform(*shape(levels), high=0.01))
    return fun, (*air, pressure, draw.uniform(bands, low=1e-3, high=0.1))


def _levels(random, shape, axis):
    return 100 + 1000 * (1 + random.random(shape)).cumsum(axis)
