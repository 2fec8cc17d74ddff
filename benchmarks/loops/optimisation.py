"""Optimisation: descents until a tolerance, Newton's method, one problem and many."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


@loop("grid", rows=32, width=4)
def logistic_descent(rows: int = 4096, width: int = 32) -> Program:
    """Gradient descent with momentum until the gradient is small."""

    def run(x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.mean(jnp.logaddexp(0.0, -y * (x @ w))) + 0.005 * jnp.sum(w * w)

        def go_on(carry: Any) -> Any:
            return (carry[2] > 1e-3) & (carry[3] < 300)

        def step(carry: Any) -> Any:
            w, v, _, n = carry
            slope = jax.grad(loss)(w)
            v = 0.9 * v - 0.5 * slope
            return w + v, v, jnp.sqrt(jnp.sum(slope * slope)), n + 1

        zero = jnp.zeros(width)
        return lax.while_loop(go_on, step, (zero, zero, jnp.inf, 0))[0]

    draw = Draw(91)
    return run, (draw.normal(rows, width), 2.0 * draw.chance(0.5, rows).astype("float32") - 1.0)


@loop("block", size=6, steps=4)
def lbfgs(size: int = 64, steps: int = 100) -> Program:
    """L-BFGS of Rosenbrock's function with a memory of eight and backtracking inside."""

    def value(x: Any) -> Any:
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def direction(slope: Any, s: Any, y: Any, rho: Any) -> Any:
        def back(q: Any, given: Any) -> tuple[Any, Any]:
            s, y, rho = given
            alpha = rho * (s @ q)
            return q - alpha * y, alpha

        def forth(r: Any, given: Any) -> tuple[Any, None]:
            s, y, rho, alpha = given
            return r + s * (alpha - rho * (y @ r)), None

        q, alphas = lax.scan(back, slope, (s, y, rho), reverse=True)
        scale = jnp.where(rho[-1] > 0, 1 / (rho[-1] * (y[-1] @ y[-1]) + 1e-12), 1e-3)
        return -lax.scan(forth, scale * q, (s, y, rho, alphas))[0]

    def run(start: Any) -> Any:
        def step(carry: Any, _: Any) -> tuple[Any, Any]:
            x, slope, s, y, rho = carry
            along = direction(slope, s, y, rho)
            here, down = value(x), slope @ along

            def too_far(t: Any) -> Any:
                return (value(x + t * along) > here + 1e-4 * t * down) & (t > 1e-6)

            t = lax.while_loop(too_far, lambda t: 0.5 * t, jnp.float32(1.0))
            new = x + t * along
            new_slope = jax.grad(value)(new)
            ds, dy = new - x, new_slope - slope
            curved = ds @ dy
            good = curved > 1e-10
            s = jnp.concatenate([s[1:], jnp.where(good, ds, 0.0)[None]])
            y = jnp.concatenate([y[1:], jnp.where(good, dy, 0.0)[None]])
            last = jnp.where(good, 1.0 / jnp.where(good, curved, 1.0), 0.0)
            return (new, new_slope, s, y, jnp.concatenate([rho[1:], last[None]])), here

        memory = jnp.zeros((8, size))
        carry = start, jax.grad(value)(start), memory, memory, jnp.zeros(8)
        carry, values = lax.scan(step, carry, None, length=steps)
        return value(carry[0]), values[0]

    return run, (Draw(92).normal(size, scale=0.1),)


@loop("rows", problems=9)
def newton_batch(problems: int = 65536) -> Program:
    """Kepler's equation by Newton's method, a while per problem."""

    def one(mean: Any, eccentricity: Any) -> Any:
        def go_on(carry: Any) -> Any:
            return (jnp.abs(carry[1]) > 1e-5) & (carry[2] < 30)

        def step(carry: Any) -> Any:
            e, _, n = carry
            change = (e - eccentricity * jnp.sin(e) - mean) / (1 - eccentricity * jnp.cos(e))
            return e - change, change, n + 1

        return lax.while_loop(go_on, step, (mean, jnp.float32(1.0), 0))[0]

    draw = Draw(93)
    return jax.vmap(one), (draw.uniform(problems, high=6.28), draw.uniform(problems, high=0.8))


@loop("rows", problems=3, rows=6)
def gauss_newton(problems: int = 2048, rows: int = 32) -> Program:
    """Decaying curves fitted by damped Gauss-Newton, two parameters each, solved by hand."""

    def one(t: Any, y: Any, start: Any) -> Any:
        def step(_: Any, p: Any) -> Any:
            model = jnp.exp(-p[1] * t)
            off = y - p[0] * model
            j0, j1 = model, -p[0] * t * model
            a, b, c = j0 @ j0 + 0.1, j0 @ j1, j1 @ j1 + 0.1
            g0, g1 = j0 @ off, j1 @ off
            det = a * c - b * b
            return p + jnp.stack([c * g0 - b * g1, a * g1 - b * g0]) / det

        return lax.fori_loop(0, 25, step, start)

    draw = Draw(94)
    t = draw.uniform(problems, rows, high=3.0)
    y = 2 * np.exp(-1.1 * t) + draw.normal(problems, rows, scale=0.05)
    return jax.vmap(one), (t, y, draw.uniform(problems, 2, low=0.8, high=1.5))


@loop("rows", problems=4, size=4, steps=5)
def proximal_gradient(problems: int = 512, size: int = 64, steps: int = 200) -> Program:
    """Sparse regressions by accelerated proximal steps; the Gram matrix is shared."""

    def run(gram: Any, targets: Any) -> Any:
        def step(n: Any, carry: Any) -> Any:
            x, z = carry
            moved = z - 0.2 * (z @ gram - targets)
            new = jnp.sign(moved) * jnp.maximum(jnp.abs(moved) - 0.01, 0.0)
            return new, new + n / (n + 3.0) * (new - x)

        zero = jnp.zeros_like(targets)
        return lax.fori_loop(0, steps, step, (zero, zero))[0]

    draw = Draw(95)
    g = draw.weight(size, size)
    return run, (g @ g.T, draw.normal(problems, size))


@loop("rows", members=4, rows=8, steps=3)
def ensemble_adam(members: int = 256, rows: int = 64, steps: int = 200) -> Program:
    """Many small networks trained at once by Adam, each inside one scan."""

    def one(params: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            h = jnp.tanh(x @ params[0]["w"] + params[0]["b"])
            return jnp.mean((h @ params[1]["w"] + params[1]["b"] - y) ** 2)

        def step(carry: Any, n: Any) -> tuple[Any, Any]:
            params, m, v = carry
            value, slope = jax.value_and_grad(loss)(params)
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, slope)
            v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, slope)
            root = jnp.sqrt(1 - 0.99**n) / (1 - 0.9**n)
            params = jax.tree.map(
                lambda p, m, v: p - 0.01 * root * m / (jnp.sqrt(v) + 1e-8), params, m, v
            )
            return (params, m, v), value

        zero = jax.tree.map(jnp.zeros_like, params)
        return lax.scan(step, (params, zero, zero), jnp.arange(1.0, steps + 1.0))[1]

    draw = Draw(96)
    params = [
        {"w": draw.normal(members, 4, 16, scale=0.5), "b": draw.normal(members, 16, scale=0.1)},
        {"w": draw.normal(members, 16, 1, scale=0.25), "b": draw.normal(members, 1, scale=0.1)},
    ]
    fun = jax.vmap(one, in_axes=(0, None, None))
    return fun, (params, draw.normal(rows, 4), draw.normal(rows, 1))
