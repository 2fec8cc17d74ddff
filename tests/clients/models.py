"""Small models of flax, equinox and haiku, each as a loss to be trained: what they are made of is
what trains large ones. Biases without effect (before a batch norm, of keys) are left out, since
their gradients are rounding alone.

`MODELS` maps a name to a function that makes a `Model`, or skips the test where its library is not
there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

BATCH, LENGTH, WORDS, WIDTH = 3, 6, 11, 8


@dataclass(frozen=True)
class Model:
    """`init(key)` gives parameters and state (running means and such); `loss(params, state, batch,
    key)` a scalar and the new state."""

    init: Callable[[Any], tuple[Any, Any]]
    loss: Callable[..., tuple[jax.Array, Any]]
    batch: Callable[[int], tuple[jax.Array, jax.Array]]


MODELS: dict[str, Callable[[], Model]] = {}


def model(make: Callable[[], Model]) -> Callable[[], Model]:
    MODELS[make.__name__] = make
    return make


def words(step: int) -> tuple[jax.Array, jax.Array]:
    """Sequences and what comes next in each."""
    drawn = np.random.default_rng(step).integers(0, WORDS, (BATCH, LENGTH + 1))
    return jnp.asarray(drawn[:, :-1]), jnp.asarray(drawn[:, 1:])


def rows(step: int) -> tuple[jax.Array, jax.Array]:
    """Rows and their classes."""
    draw = np.random.default_rng(step)
    x = draw.standard_normal((BATCH * 4, WIDTH), np.float32)
    return jnp.asarray(x), jnp.asarray(x[:, :3].argmax(1))


def series(step: int) -> tuple[jax.Array, jax.Array]:
    """Series, and each shifted by one."""
    drawn = np.random.default_rng(step).standard_normal((BATCH, LENGTH + 1, WIDTH), np.float32)
    return jnp.asarray(drawn[:, :-1]), jnp.asarray(drawn[:, 1:])


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    optax = pytest.importorskip("optax")
    found: jax.Array = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return found


# --- flax -----------------------------------------------------------------------------------------


def of_linen(module: Any, batch: Callable[..., Any], loss: Callable[..., Any]) -> Model:
    """A linen module that is called with an input, and draws dropout."""

    def init(key: jax.Array) -> tuple[Any, Any]:
        variables = module.init({"params": key, "dropout": key}, batch(0)[0])
        return variables.pop("params"), variables

    def of(params: Any, state: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        out, new = module.apply(
            {"params": params, **state}, batch[0], rngs={"dropout": key}, mutable=list(state)
        )
        return loss(out, batch[1]), new

    return Model(init, of, batch)


@model
def flax_transformer() -> Model:
    """Embeddings, causal attention, gated by layer norms, dropout; logits by the embeddings."""
    nn = pytest.importorskip("flax.linen")

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            mask = nn.make_causal_mask(x[..., 0])
            x = x + nn.MultiHeadDotProductAttention(2, use_bias=False)(nn.LayerNorm()(x), mask=mask)
            h = nn.Dropout(0.1, deterministic=False)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(x))))
            return x + nn.Dense(WIDTH)(h)

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, tokens: jax.Array) -> jax.Array:
            embed = nn.Embed(WORDS, WIDTH)
            place = self.param("place", nn.initializers.normal(), (LENGTH, WIDTH))
            x = embed(tokens) + place
            return embed.attend(nn.LayerNorm()(Layer()(x)))

    return of_linen(Transformer(), words, cross_entropy)


@model
def flax_batch_norm() -> Model:
    nn = pytest.importorskip("flax.linen")

    class Residual(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            h = nn.relu(nn.BatchNorm(use_running_average=False)(nn.Dense(WIDTH, use_bias=False)(x)))
            return nn.Dense(3)(x + nn.Dropout(0.2, deterministic=False)(h))

    return of_linen(Residual(), rows, cross_entropy)


@model
def flax_recurrent() -> Model:
    """Cells over time, in a scan of flax's own."""
    nn = pytest.importorskip("flax.linen")
    optax = pytest.importorskip("optax")
    module = nn.RNN(nn.GRUCell(WIDTH))
    return of_linen(module, series, lambda out, y: optax.huber_loss(out, y).mean())


@model
def flax_nnx() -> Model:
    """An nnx module split into its graph and its state."""
    nnx = pytest.importorskip("flax.nnx")

    class Block(nnx.Module):  # type: ignore[misc, name-defined]
        def __init__(self, rngs: Any):
            self.norm, self.inner = nnx.RMSNorm(WIDTH, rngs=rngs), nnx.Linear(WIDTH, 12, rngs=rngs)
            self.outer = nnx.Linear(12, 3, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.outer(nnx.silu(self.inner(self.norm(x))))

    graph, params = nnx.split(Block(nnx.Rngs(0)))
    return Model(
        lambda key: (params, {}),
        lambda params, state, batch, key: (
            cross_entropy(nnx.merge(graph, params)(batch[0]), batch[1]),
            state,
        ),
        rows,
    )


# --- equinox --------------------------------------------------------------------------------------


def of_equinox(make: Callable[[jax.Array], Any], batch: Any, loss: Callable[..., Any]) -> Model:
    """An equinox module for one example, mapped over the batch; its other fields stay outside."""
    eqx = pytest.importorskip("equinox")
    _, static = eqx.partition(make(jax.random.key(0)), eqx.is_inexact_array)

    def init(key: jax.Array) -> tuple[Any, Any]:
        return eqx.filter(make(key), eqx.is_inexact_array), ()

    def of(params: Any, state: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        return loss(jax.vmap(eqx.combine(params, static))(batch[0]), batch[1]), state

    return Model(init, of, batch)


@model
def equinox_mlp() -> Model:
    eqx = pytest.importorskip("equinox")
    return of_equinox(
        lambda key: eqx.nn.MLP(WIDTH, 3, 12, 1, jax.nn.gelu, key=key), rows, cross_entropy
    )


@model
def equinox_attention() -> Model:
    eqx = pytest.importorskip("equinox")

    class Encoder(eqx.Module):  # type: ignore[misc, name-defined]
        attention: Any
        norm: Any

        def __call__(self, x: jax.Array) -> jax.Array:
            h = jax.vmap(self.norm)(x)
            return x + self.attention(h, h, h)

    def make(key: jax.Array) -> Any:
        return Encoder(eqx.nn.MultiheadAttention(2, WIDTH, key=key), eqx.nn.LayerNorm(WIDTH))

    return of_equinox(make, series, lambda out, y: jnp.mean((out - y) ** 2))


@model
def equinox_recurrent() -> Model:
    """A cell in a scan, rematerialised."""
    eqx = pytest.importorskip("equinox")

    class Recurrent(eqx.Module):  # type: ignore[misc, name-defined]
        cell: Any

        def __call__(self, xs: jax.Array) -> jax.Array:
            def body(h: Any, x: jax.Array) -> Any:
                h = eqx.filter_checkpoint(self.cell)(x, h)
                return h, h[0]

            start = jnp.zeros(WIDTH), jnp.zeros(WIDTH)
            return jax.lax.scan(body, start, xs)[1]

    def make(key: jax.Array) -> Any:
        return Recurrent(eqx.nn.LSTMCell(WIDTH, WIDTH, key=key))

    return of_equinox(make, series, lambda out, y: jnp.mean(jnp.abs(out - y)))


# --- haiku ----------------------------------------------------------------------------------------


def of_haiku(forward: Callable[[Any], Any], batch: Any, loss: Callable[..., Any]) -> Model:
    hk = pytest.importorskip("haiku")
    made = hk.transform_with_state(forward)

    def of(params: Any, state: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, Any]:
        out, state = made.apply(params, state, key, batch[0])
        return loss(out, batch[1]), state

    return Model(lambda key: made.init(key, batch(0)[0]), of, batch)


@model
def haiku_batch_norm() -> Model:
    hk = pytest.importorskip("haiku")

    def forward(x: jax.Array) -> Any:
        h = hk.BatchNorm(True, True, 0.9)(hk.Linear(WIDTH, False)(x), is_training=True)
        return hk.Linear(3)(hk.dropout(hk.next_rng_key(), 0.2, jax.nn.swish(h)))

    return of_haiku(forward, rows, cross_entropy)


@model
def haiku_recurrent() -> Model:
    hk = pytest.importorskip("haiku")

    def forward(xs: jax.Array) -> Any:
        core = hk.GRU(WIDTH)
        return hk.dynamic_unroll(core, xs, core.initial_state(BATCH), time_major=False)[0]

    return of_haiku(forward, series, lambda out, y: jnp.mean((out - y) ** 2))


@model
def haiku_attention() -> Model:
    hk = pytest.importorskip("haiku")

    def forward(tokens: jax.Array) -> Any:
        x = hk.Embed(WORDS, WIDTH)(tokens)
        h = hk.LayerNorm(-1, True, True)(x)
        init = hk.initializers.VarianceScaling(1.0)
        x = x + hk.MultiHeadAttention(2, 4, w_init=init, model_size=WIDTH, with_bias=False)(h, h, h)
        return hk.Linear(WORDS)(hk.LayerNorm(-1, True, True)(x))

    return of_haiku(forward, words, cross_entropy)
