"""equinox with optax: modules as arguments, static parts filtered out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.near import assert_near

eqx = pytest.importorskip("equinox")
optax = pytest.importorskip("optax")

X = jnp.asarray(np.random.default_rng(0).standard_normal((8, 5, 12), np.float32))


class Encoder(eqx.Module):
    """Attention and a gated layer over one sequence."""

    attention: Any
    norm: Any
    gate: Any
    activation: Callable[..., Any] = eqx.field(static=True)

    def __init__(self, key: jax.Array):
        one, two = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(3, 12, key=one)
        self.norm, self.gate = eqx.nn.LayerNorm(12), eqx.nn.Linear(12, 12, key=two)
        self.activation = jax.nn.silu

    def __call__(self, x: jax.Array) -> jax.Array:
        h = jax.vmap(self.norm)(x)
        h = x + self.attention(h, h, h)
        return h * self.activation(jax.vmap(self.gate)(h))


def train(jit: Callable[..., Any]) -> Any:
    params, static = eqx.partition(Encoder(jax.random.key(0)), eqx.is_array)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
    state = optimizer.init(params)

    def step(params: Any, state: Any, x: jax.Array) -> Any:
        def loss(params: Any) -> jax.Array:
            return jnp.mean((jax.vmap(eqx.combine(params, static))(x) - x[:, ::-1]) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return eqx.apply_updates(params, updates), state, value

    jitted, losses = jit(step, donate_argnums=(0, 1)), []
    for _ in range(3):
        params, state, value = jitted(params, state, X)
        losses.append(value)
    return params, losses


def test_training(jit: Callable[..., Any]) -> None:
    ours, theirs = train(jit), train(jax.jit)
    assert_near(ours, theirs, 1e-4)
    assert ours[1][-1] < ours[1][0]


def test_inside_filter_jit_and_filter_grad(jit: Callable[..., Any]) -> None:
    """fs.jit within equinox's own transformations, as jax.jit is."""
    model = Encoder(jax.random.key(1))

    def run(jit: Callable[..., Any]) -> Any:
        inner = jit(lambda x: jax.nn.softmax(x, -1) * x.sum(0))

        @eqx.filter_jit
        @eqx.filter_value_and_grad
        def loss(model: Any, x: jax.Array) -> jax.Array:
            return (inner(model(x)) ** 2).sum()

        return loss(model, X[0])

    assert_near(run(jit), run(jax.jit))
