"""Programs whose roundings add up: many steps, or one after another in a tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = Any

#: The tableau of Tsitouras 5(4): the rows of the stages, and the weights of the step.
STAGES = (
    (0.161,),
    (-0.008480655492356989, 0.335480655492357),
    (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
    (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
    (
        5.86145544294642,
        -12.92096931784711,
        8.159367898576159,
        -0.071584973281401,
        -0.028269050394068383,
    ),
)
WEIGHTS = (
    0.09646076681806523,
    0.01,
    0.4798896504144996,
    1.379008574103742,
    -3.290069515436081,
    2.324710524099774,
)


@dataclass(frozen=True)
class Simulation:
    """A function, and its arguments in f32."""

    run: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]


def _bent(u: Array) -> Array:
    return jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)


def leapfrog(before: Array, now: Array) -> Array:
    """A wave equation on a ring, by its last two states."""

    def step(_: Any, both: Any) -> Any:
        before, now = both
        return now, 2 * now - before + 0.1 * _bent(now)

    return lax.fori_loop(0, 1000, step, (before, now))


def verlet(u: Array, v: Array) -> Array:
    """The same by its state and speed."""

    def step(_: Any, both: Any) -> Any:
        u, v = both
        v = v + 0.1 * _bent(u)
        return u + 0.1 * v, v

    return lax.fori_loop(0, 1000, step, (u, v))


def membrane(before: Array, now: Array) -> Array:
    """A wave equation in a square with fixed edges."""

    def step(_: Any, both: Any) -> Any:
        before, now = both
        inner = now[1:-1, 1:-1]
        around = now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] + now[1:-1, :-2]
        after = 2 * inner - before[1:-1, 1:-1] + 0.1 * (around - 4 * inner)
        return now, jnp.pad(after, 1)

    return lax.fori_loop(0, 1000, step, (before, now))


def lorenz(y: Array) -> Array:
    """Lorenz's equations by Tsit5 of fixed steps, each of which is saved."""

    def slope(y: Array) -> Array:
        return jnp.stack(
            [10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]
        )

    def step(y: Array, _: Any) -> Any:
        slopes = [slope(y)]
        for row in STAGES:
            slopes.append(slope(y + 0.01 * sum(a * k for a, k in zip(row, slopes, strict=True))))
        y = y + 0.01 * sum(b * k for b, k in zip(WEIGHTS, slopes, strict=True))
        return y, y

    return lax.scan(step, y, length=200)[1]


def _solved(a: Array, b: Array) -> Array:
    return jnp.linalg.solve(a, b)


def _turned(a: Array) -> Array:
    return jnp.swapaxes(a, -1, -2)


def smoother(seen: Array, move: Array, show: Array, noise: Array, blur: Array) -> Array:
    """A Kalman filter and smoother as two associative scans (Särkkä and García-Fernández)."""
    one, count = jnp.eye(len(move), dtype=move.dtype), len(seen)
    spread = show @ noise @ show.T + blur
    gain = _solved(spread, show @ noise).T
    info = _solved(spread, show @ move)

    def all_of(a: Array) -> Array:
        return jnp.broadcast_to(a, (count, *a.shape))

    def filtered(one_: Any, two: Any) -> Any:
        a, b, c, e, j = one_
        a2, b2, c2, e2, j2 = two
        left = _turned(_solved(_turned(one + c @ j2), _turned(a2)))
        right = _turned(_solved(_turned(one + j2 @ c), a))
        return (
            left @ a,
            left @ (b + c @ e2) + b2,
            left @ c @ a2.T + c2,
            right @ (e2 - j2 @ b) + e,
            right @ j2 @ a + j,
        )

    moves = all_of((one - gain @ show) @ move).at[0].set(0)
    elements = (
        moves,
        seen @ gain.T,
        all_of((one - gain @ show) @ noise),
        seen @ info,
        all_of(move.T @ show.T @ info),
    )
    _, mean, cov, _, _ = lax.associative_scan(jax.vmap(filtered), elements)
    ahead = move @ cov @ move.T + noise
    back = _turned(_solved(ahead, move @ cov))
    rest = mean - jnp.einsum("tij,tj->ti", back, mean @ move.T)
    left = cov - back @ ahead @ _turned(back)

    def smoothed(one_: Any, two: Any) -> Any:
        (e, g, c), (e2, g2, c2) = one_, two
        return e2 @ e, e2 @ g + g2, e2 @ c @ e2.T + c2

    last = (back.at[-1].set(0), rest.at[-1].set(mean[-1]), left.at[-1].set(cov[-1]))
    return lax.associative_scan(jax.vmap(smoothed), last, reverse=True)[1:]


def transport(x: Array, y: Array) -> Array:
    """The gradient of a Sinkhorn distance: a loop magnifies what a product is off by."""

    def cost(x: Array, y: Array) -> Array:
        far = (x * x).sum(1)[:, None] + (y * y).sum(1) - 2 * x @ y.T

        def step(both: Any, _: Any) -> Any:
            f, g = both
            f = f - 0.1 * jax.nn.logsumexp((f[:, None] + g - far) / 0.1, axis=1)
            g = g - 0.1 * jax.nn.logsumexp((f[:, None] + g - far) / 0.1, axis=0)
            return (f, g), None

        zero = jnp.zeros(len(x), x.dtype)
        (f, g), _ = lax.scan(step, (zero, zero), length=20)
        return (jnp.exp((f[:, None] + g - far) / 0.1) * far).sum() / len(x)

    return jax.value_and_grad(cost, (0, 1))(x, y)


def _ring() -> np.ndarray:
    return np.exp(-10 * (np.linspace(0, 2 * np.pi, 256, endpoint=False) - 3) ** 2)


def _square() -> np.ndarray:
    along = np.linspace(-1, 1, 32)
    return np.exp(-20 * (along[:, None] ** 2 + along**2))


def _draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def _of(run: Callable[..., Any], *arguments: Any) -> Simulation:
    return Simulation(run, tuple(np.asarray(one, np.float32) for one in arguments))


SIMULATIONS = {
    "leapfrog": _of(leapfrog, _ring(), _ring()),
    "verlet": _of(verlet, _ring(), 0 * _ring()),
    "membrane": _of(membrane, _square(), _square()),
    "lorenz": _of(lorenz, _draw(0, 3, 64) / 2 + np.array([[1], [1], [20]])),
    "smoother": _of(
        smoother,
        _draw(1, 16, 1).cumsum(0),
        [[1, 0.1], [0, 1]],
        [[1, 0]],
        0.01 * np.eye(2),
        [[0.1]],
    ),
    "transport": _of(transport, _draw(2, 48, 4), _draw(3, 48, 4) + 1),
}
