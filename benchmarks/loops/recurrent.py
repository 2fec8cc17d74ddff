"""Recurrent networks: forward, and training steps by gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


def _lstm(params: Any, xs: Any) -> Any:
    """The last hidden state of [steps, batch, width]."""
    hidden = params["u"].shape[0]

    def step(carry: Any, x: Any) -> tuple[Any, None]:
        h, c = carry
        gates = x @ params["w"] + h @ params["u"] + params["b"]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zero = jnp.zeros((xs.shape[1], hidden))
    return lax.scan(step, (zero, zero), xs)[0][0]


def _gru_state(params: Any, h: Any, x: Any) -> Any:
    a, b = x @ params["w"] + params["b"], h @ params["u"]
    (zx, rx, nx), (zh, rh, nh) = jnp.split(a, 3, -1), jnp.split(b, 3, -1)
    z = jax.nn.sigmoid(zx + zh)
    new = jnp.tanh(nx + jax.nn.sigmoid(rx + rh) * nh)
    return (1 - z) * new + z * h


def _gru(params: Any, xs: Any) -> Any:
    """All hidden states of [steps, batch, width]."""

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = _gru_state(params, h, x)
        return h, h

    return lax.scan(step, jnp.zeros((xs.shape[1], params["u"].shape[0])), xs)[1]


def _last_gru(params: Any, xs: Any) -> Any:
    """The last hidden state of [steps, batch, width]."""

    def step(h: Any, x: Any) -> tuple[Any, None]:
        return _gru_state(params, h, x), None

    return lax.scan(step, jnp.zeros((xs.shape[1], params["u"].shape[0])), xs)[0]


def _weights(draw: Draw, width: int, hidden: int, gates: int) -> dict[str, Any]:
    return {
        "w": draw.weight(width, gates * hidden),
        "u": draw.weight(hidden, gates * hidden),
        "b": draw.normal(gates * hidden, scale=0.1),
    }


def classifying(last: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A training step of (params, xs, labels), by the last hidden state of a network."""

    def loss(params: Any, xs: Any, labels: Any) -> Any:
        log_p = jax.nn.log_softmax(last(params, xs) @ params["out"])
        return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=1))

    def train(params: Any, xs: Any, labels: Any) -> tuple[Any, Any]:
        value, slope = jax.value_and_grad(loss)(params, xs, labels)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, slope), value

    return train


@loop("rows", batch=3, hidden=4, steps=3)
def lstm_forward(batch: int = 128, hidden: int = 64, steps: int = 20) -> Program:
    draw = Draw(51)
    return _lstm, (_weights(draw, hidden, hidden, 4), draw.normal(steps, batch, hidden))


@loop("rows", batch=3, hidden=4, steps=3)
def gru_forward(batch: int = 128, hidden: int = 128, steps: int = 50) -> Program:
    draw = Draw(52)
    return _gru, (_weights(draw, 32, hidden, 3), draw.normal(steps, batch, 32))


@loop("rows", donated=1, batch=3, hidden=4, steps=3)
def lstm_train(batch: int = 128, hidden: int = 64, steps: int = 20) -> Program:
    """A step of gradient descent on a classifier of sequences; the parameters are donated."""
    draw = Draw(53)
    params = {**_weights(draw, hidden, hidden, 4), "out": draw.weight(hidden, 10)}
    return classifying(_lstm), (
        params,
        draw.normal(steps, batch, hidden),
        draw.integers(batch, high=10),
    )


@loop("rows", batch=3, hidden=4, steps=3)
def lstm_train_128(batch: int = 128, hidden: int = 128, steps: int = 100) -> Program:
    """The same at hidden 128, whose weights no one block holds."""
    return lstm_train(batch, hidden, steps)


@loop("rows", donated=1, batch=3, hidden=4, steps=3)
def gru_train(batch: int = 128, hidden: int = 64, steps: int = 50) -> Program:
    """A step of training on the next value of series."""

    def loss(params: Any, xs: Any) -> Any:
        guess = _gru(params, xs[:-1]) @ params["out"]
        return jnp.mean((guess - xs[1:]) ** 2)

    def train(params: Any, xs: Any) -> tuple[Any, Any]:
        value, slope = jax.value_and_grad(loss)(params, xs)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, slope), value

    draw = Draw(54)
    params = {**_weights(draw, 16, hidden, 3), "out": draw.weight(hidden, 16)}
    return train, (params, draw.normal(steps + 1, batch, 16))


def _own_cell(params: Any, xs: Any, mask: Any) -> Any:
    """A cell of the user's own: a norm, a gate with memory and a mask for padding."""

    def step(carry: Any, given: Any) -> tuple[Any, Any]:
        h, memory = carry
        x, there = given
        z = jnp.concatenate([x, h], axis=-1) @ params["w"]
        z = (z - z.mean(-1, keepdims=True)) * lax.rsqrt(z.var(-1, keepdims=True) + 1e-5)
        a, b = jnp.split(z * params["scale"], 2, axis=-1)
        keep = jax.nn.sigmoid(a)
        new = keep * memory + (1 - keep) * jax.nn.gelu(b)
        memory = jnp.where(there[:, None], new, memory)
        h = jnp.where(there[:, None], jnp.tanh(memory), h)
        return (h, memory), h

    zero = jnp.zeros((xs.shape[1], params["w"].shape[1] // 2))
    return lax.scan(step, (zero, zero), (xs, mask))[1]


def _own(batch: int, hidden: int, steps: int) -> tuple[Any, ...]:
    draw = Draw(55)
    params = {"w": draw.weight(24 + hidden, 2 * hidden), "scale": draw.normal(2 * hidden)}
    return params, draw.normal(steps, batch, 24), draw.chance(0.9, steps, batch)


@loop("rows", batch=3, hidden=4, steps=3)
def own_cell(batch: int = 256, hidden: int = 64, steps: int = 60) -> Program:
    return _own_cell, _own(batch, hidden, steps)


@loop("rows", batch=3, hidden=4, steps=3)
def own_cell_gradient(batch: int = 256, hidden: int = 64, steps: int = 60) -> Program:
    def loss(params: Any, xs: Any, mask: Any) -> Any:
        return jnp.mean(_own_cell(params, xs, mask) ** 2)

    return jax.value_and_grad(loss), _own(batch, hidden, steps)


@loop("rows", batch=2, hidden=4, steps=3)
def both_directions(batch: int = 64, hidden: int = 64, steps: int = 80) -> Program:
    """A GRU forwards and one backwards over the same series."""

    def run(one: Any, other: Any, xs: Any) -> Any:
        back = _gru(other, xs[::-1])[::-1]
        return jnp.concatenate([_gru(one, xs), back], axis=-1)

    draw = Draw(56)
    one, other = (_weights(draw, 32, hidden, 3) for _ in range(2))
    return run, (one, other, draw.normal(steps, batch, 32))
