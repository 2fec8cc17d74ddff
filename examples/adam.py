"""Adam, alone over the 144 block tensors of GPT-2 small: a multi-tensor optimizer step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from common import Random, Workload, size

AdamState = dict[str, Any]


def adam_init(params: Any) -> AdamState:
    """Zero moments of `params` and the step count."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    again = jax.tree.map(jnp.zeros_like, params)
    return {"count": jnp.zeros((), jnp.int32), "m": zeros, "v": again}


def adam_update(
    params: Any,
    state: AdamState,
    grads: Any,
    *,
    rate: float,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[Any, AdamState]:
    """One step in TensorFlow's formulation: the bias corrections are folded into the rate."""
    count = state["count"] + 1
    t = count.astype(jnp.float32)
    corrected = rate * jnp.sqrt(1.0 - b2**t) / (1.0 - b1**t)
    m = jax.tree.map(lambda m, g: b1 * m + (1.0 - b1) * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1.0 - b2) * g * g, state["v"], grads)
    params = jax.tree.map(lambda p, m, v: p - corrected * m / (jnp.sqrt(v) + eps), params, m, v)
    return params, {"count": count, "m": m, "v": v}


def step(state: tuple[Any, AdamState], grads: Any) -> tuple[Any, AdamState]:
    params, moments = state
    return adam_update(params, moments, grads, rate=1e-3)


def block_shapes(width: int) -> list[tuple[int, ...]]:
    """The 12 tensors of one GPT-2 block."""
    norm = [(width,), (width,)]
    attention = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    feed_forward = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [*norm, *attention, *norm, *feed_forward]


def gpt2_small() -> Workload:
    """12 blocks 768 wide, 85,054,464 parameters (small: 2 blocks 16 wide)."""
    draw = Random()
    blocks, width = size((12, 768), (2, 16))
    shapes = block_shapes(width) * blocks
    params = [draw.normal(*shape) for shape in shapes]
    grads = [draw.normal(*shape) for shape in shapes]
    return step, ((params, adam_init(params)), grads)
