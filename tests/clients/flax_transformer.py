"""A transformer in flax, and its training step: gradients clipped by their norm, then AdamW."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

#: (params, optimizer state), the loss.
Step = Callable[[Any, jax.Array], tuple[Any, jax.Array]]


@dataclass(frozen=True)
class Sizes:
    layers: int
    width: int
    heads: int
    words: int
    batch: int
    length: int


FULL = Sizes(layers=2, width=512, heads=8, words=1000, batch=16, length=256)
SMALL = Sizes(layers=1, width=32, heads=4, words=61, batch=2, length=12)


def by_name(tree: Any) -> dict[str, jax.Array]:
    """The arrays of a state or of gradients, but for what follows rounding alone: the biases of
    keys change no weight of attention."""
    leaves = ((jax.tree_util.keystr(path), x) for path, x in jax.tree.leaves_with_path(tree))
    return {name: leaf for name, leaf in leaves if "['key']['bias']" not in name}


class Layer(nn.Module):
    """Pre-norm attention and an MLP."""

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        h = nn.LayerNorm()(x)
        causal = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(num_heads=self.heads)(h, h, mask=causal)
        h = nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))
        return x + nn.Dense(x.shape[-1])(h)


class Transformer(nn.Module):
    """Logits of the next words."""

    sizes: Sizes

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        width, length = self.sizes.width, tokens.shape[1]
        place = self.param("place", nn.initializers.normal(0.02), (length, width))
        x = nn.Embed(self.sizes.words, width)(tokens) + place
        for _ in range(self.sizes.layers):
            x = Layer(self.sizes.heads)(x)
        return nn.Dense(self.sizes.words)(nn.LayerNorm()(x))


def training(sizes: Sizes, norm: bool = False) -> tuple[Step, Callable[[], tuple[Any, jax.Array]]]:
    """The step, and what makes its first arguments; with the `norm` of the gradients beside the
    loss, if told so."""
    model = Transformer(sizes)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))

    def first() -> tuple[Any, jax.Array]:
        dims = sizes.batch, sizes.length + 1
        tokens = jax.random.randint(jax.random.key(1), dims, 0, sizes.words)
        params = model.init(jax.random.key(0), tokens[:, 1:])
        return (params, optimizer.init(params)), tokens

    def step(state: Any, tokens: jax.Array) -> tuple[Any, Any]:
        params, optimizer_state = state

        def loss(params: Any) -> jax.Array:
            logits = model.apply(params, tokens[:, :-1])
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
            return losses.mean()

        value, gradients = jax.value_and_grad(loss)(params)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state, params)
        shown = (value, optax.tree.norm(gradients)) if norm else value
        return (optax.apply_updates(params, updates), optimizer_state), shown

    return step, first


def full() -> tuple[Step, tuple[Any, jax.Array]]:
    """The full size, for `fusionstitch report tests/clients/flax_transformer.py:full`."""
    step, first = training(FULL)
    return step, first()
