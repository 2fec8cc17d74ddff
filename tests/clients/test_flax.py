"""flax (linen and nnx) with optax: a classifier with batch norm and dropout is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.clients.near import assert_near

linen = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
optax = pytest.importorskip("optax")

DRAW = np.random.default_rng(0)
X = jnp.asarray(DRAW.standard_normal((16, 12), np.float32))
Y = jnp.asarray(DRAW.integers(0, 3, 16))


class Classifier(linen.Module):
    """A residual block with batch norm, dropout and layer norm."""

    @linen.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        x = linen.Dense(24)(x)
        h = linen.gelu(linen.BatchNorm(use_running_average=not train)(x))
        h = linen.Dropout(0.25, deterministic=not train)(linen.Dense(24)(h))
        return linen.Dense(3)(linen.LayerNorm()(x + h))


def train(jit: Callable[..., Any]) -> Any:
    model, optimizer = Classifier(), optax.adamw(1e-2)
    variables = model.init(jax.random.key(0), X, train=False)
    params, stats = variables["params"], variables["batch_stats"]
    state = optimizer.init(params)

    def step(params: Any, stats: Any, state: Any, key: jax.Array) -> Any:
        def loss(params: Any) -> Any:
            logits, updated = model.apply(
                {"params": params, "batch_stats": stats},
                *(X, True),
                rngs={"dropout": key},
                mutable=["batch_stats"],
            )
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, Y)
            return losses.mean(), updated["batch_stats"]

        (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state_ = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), new, state_, value

    jitted, losses = jit(step, donate_argnums=(0, 1, 2)), []
    for i in range(4):
        params, stats, state, value = jitted(params, stats, state, jax.random.key(i))
        losses.append(value)
    evaluate = jit(model.apply, static_argnames="train")
    variables = {"params": params, "batch_stats": stats}
    return losses, stats, evaluate(variables, X, train=False)


def test_linen(jit: Callable[..., Any]) -> None:
    ours, theirs = train(jit), train(jax.jit)
    assert_near(ours, theirs, 1e-4)
    assert ours[0][-1] < ours[0][0]


class Block(nnx.Module):
    def __init__(self, rngs: Any):
        self.norm, self.dense = nnx.LayerNorm(12, rngs=rngs), nnx.Linear(12, 3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.dense(jnp.tanh(self.norm(x)))


def test_nnx(jit: Callable[..., Any]) -> None:
    """A functional step: the graph is static, the state an argument."""

    def train(jit: Callable[..., Any]) -> Any:
        graph, state = nnx.split(Block(nnx.Rngs(0)))

        def step(state: Any) -> Any:
            def loss(state: Any) -> jax.Array:
                logits = nnx.merge(graph, state)(X)
                return optax.softmax_cross_entropy_with_integer_labels(logits, Y).mean()

            value, grads = jax.value_and_grad(loss)(state)
            return jax.tree.map(lambda p, g: p - 0.1 * g, state, grads), value

        jitted, losses = jit(step), []
        for _ in range(3):
            state, value = jitted(state)
            losses.append(value)
        return state, losses

    ours, theirs = train(jit), train(jax.jit)
    assert_near(ours, theirs)
