"""An Equinox training step: the noise predictor of a small diffusion model, Adam by optax.

XLA gives the matrix products to cuBLAS. It splits the rest into many small kernels: random draws,
layer norms, activations and their gradients, and the optimizer's update of each weight.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from common import Random, Workload, size

State = tuple[Any, optax.OptState, jax.Array]  # parameters, moments, key


class Denoiser(eqx.Module):
    """Residual layers that predict the noise in one sample x [width] at a time from 0 to 1."""

    inner: list[eqx.nn.Linear]
    outer: list[eqx.nn.Linear]
    norms: list[eqx.nn.LayerNorm]

    def __init__(self, width: int, layers: int, key: jax.Array) -> None:
        keys = jax.random.split(key, (2, layers))
        self.inner = [eqx.nn.Linear(width + 1, 2 * width, key=k) for k in keys[0]]
        self.outer = [eqx.nn.Linear(2 * width, width, key=k) for k in keys[1]]
        self.norms = [eqx.nn.LayerNorm(width) for _ in range(layers)]

    def __call__(self, x: jax.Array, time: jax.Array) -> jax.Array:
        for inner, outer, norm in zip(self.inner, self.outer, self.norms, strict=True):
            h = inner(jnp.append(norm(x), time))
            x = x + outer(jax.nn.silu(h))
        return x


def loss_of(model: Denoiser, data: jax.Array, key: jax.Array) -> jax.Array:
    for_time, for_noise = jax.random.split(key)
    time = jax.random.uniform(for_time, data.shape[:1])
    noise = jax.random.normal(for_noise, data.shape)
    signal, level = jnp.cos(time * jnp.pi / 2)[:, None], jnp.sin(time * jnp.pi / 2)[:, None]
    return jnp.mean((jax.vmap(model)(signal * data + level * noise, time) - noise) ** 2)


def train_step() -> Workload:
    """4 layers of width 256, batch 1024 (small: 2 of width 8, batch 16)."""
    layers, width, batch = size((4, 256, 1024), (2, 8, 16))
    optimizer = optax.adam(1e-3)
    params, static = eqx.partition(Denoiser(width, layers, jax.random.key(0)), eqx.is_array)

    def step(state: State, data: jax.Array) -> tuple[State, jax.Array]:
        params, moments, key = state
        key, draw = jax.random.split(key)
        model = eqx.combine(params, static)
        loss, grads = eqx.filter_value_and_grad(loss_of)(model, data, draw)
        updates, moments = optimizer.update(grads, moments, params)
        return (eqx.apply_updates(params, updates), moments, key), loss

    state = (params, optimizer.init(params), jax.random.key(1))
    return step, (state, Random().normal(batch, width))
