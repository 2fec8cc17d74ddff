"""A Flax training step: a vision transformer on images of CIFAR-10's size, AdamW by optax.

XLA gives the matrix products to cuBLAS. It splits the rest into many small kernels: layer norms,
softmax, GELU, dropout and their gradients, and the optimizer's update of each weight.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import optax
from common import Random, Workload, size
from flax.training.train_state import TrainState


class Block(nn.Module):
    """Attention and two dense layers, each after a layer norm and added to its input."""

    heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + nn.MultiHeadDotProductAttention(self.heads, use_bias=False)(nn.LayerNorm()(x))
        h = nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))
        return x + nn.Dropout(0.1, deterministic=False)(nn.Dense(x.shape[-1])(h))


class VisionTransformer(nn.Module):
    """Logits [batch, 10] of images [batch, side, side, 3], from patches of 4 x 4 pixels."""

    layers: int
    width: int

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        batch, side = images.shape[:2]
        patches = images.reshape(batch, side // 4, 4, side // 4, 4, 3).swapaxes(2, 3)
        x = nn.Dense(self.width)(patches.reshape(batch, -1, 48))
        x = x + self.param("position", nn.initializers.normal(0.02), x.shape[1:])
        for _ in range(self.layers):
            x = Block(heads=max(self.width // 64, 1))(x)
        return nn.Dense(10)(nn.LayerNorm()(x).mean(axis=1))


def step(
    state: TrainState, images: jax.Array, labels: jax.Array, key: jax.Array
) -> tuple[TrainState, jax.Array]:
    def loss_of(params: optax.Params) -> jax.Array:
        dropout = {"dropout": jax.random.fold_in(key, state.step)}
        logits = state.apply_fn({"params": params}, images, rngs=dropout)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), loss


def train_step() -> Workload:
    """4 layers of width 192, batch 256, 32 x 32 images (small: 1 of width 16, batch 4, 8 x 8)."""
    layers, width, batch, side = size((4, 192, 256, 32), (1, 16, 4, 8))
    draw, key = Random(), jax.random.key(0)
    images = draw.normal(batch, side, side, 3)
    model = VisionTransformer(layers, width)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))

    @jax.jit
    def create() -> TrainState:
        params = model.init({"params": key, "dropout": key}, images)["params"]
        return TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)

    return step, (create(), images, draw.integers(batch, high=10), key)
