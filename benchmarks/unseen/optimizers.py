"""Optimizers written by hand over trees of parameters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.unseen.inputs import Draw, Program


def tree(draw: Draw, layers: int, width: int, dtype: Any = jnp.float32) -> dict[str, Any]:
    """Parameters of a small transformer."""

    def layer() -> dict[str, np.ndarray]:
        return {
            "qkv": draw.weight(width, 3 * width, dtype),
            "out": draw.weight(width, width, dtype),
            "up": draw.weight(width, 4 * width, dtype),
            "down": draw.weight(4 * width, width, dtype),
            "scale1": draw.normal(width, dtype=dtype),
            "scale2": draw.normal(width, dtype=dtype),
            "bias": draw.normal(4 * width, dtype=dtype),
        }

    return {"layers": [layer() for _ in range(layers)], "embed": draw.weight(997, width, dtype)}


def lion(params: Any, momentum: Any, grads: Any, rate: Any) -> tuple[Any, Any]:
    """Lion with decoupled weight decay for matrices."""

    def update(p: Any, m: Any, g: Any) -> Any:
        step = jnp.sign(0.9 * m + 0.1 * g)
        decay = 0.1 * p if p.ndim > 1 else 0.0
        return p - rate * (step + decay)

    new = jax.tree.map(update, params, momentum, grads)
    return new, jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g, momentum, grads)


def lion_step() -> Program:
    draw = Draw(81)
    return lion, (*(tree(draw, 6, 192) for _ in range(3)), np.float32(1e-4))


def adafactor(params: Any, rows: Any, columns: Any, grads: Any, step: Any) -> tuple[Any, ...]:
    """Adafactor: factored second moments of matrices, clipped updates, relative step sizes."""
    decay = 1.0 - jnp.power(step + 1.0, -0.8)
    leaves, structure = jax.tree.flatten(params)
    found = []
    flat = (jax.tree.leaves(t) for t in (rows, columns, grads))
    for p, r, c, g in zip(leaves, *flat, strict=True):
        square = g * g + 1e-30
        if p.ndim == 2:
            r = decay * r + (1 - decay) * jnp.mean(square, axis=1)
            c = decay * c + (1 - decay) * jnp.mean(square, axis=0)
            update = g * jax.lax.rsqrt(r / jnp.mean(r))[:, None] * jax.lax.rsqrt(c)[None, :]
        else:
            r = decay * r + (1 - decay) * square
            update = g * jax.lax.rsqrt(r)
        update = update / jnp.maximum(1.0, jnp.sqrt(jnp.mean(update**2)))
        size = jnp.maximum(1e-3, jnp.sqrt(jnp.mean(p * p)))
        found.append((p - 0.01 * size * update, r, c))
    return tuple(jax.tree.unflatten(structure, list(part)) for part in zip(*found, strict=True))


def adafactor_step() -> Program:
    draw = Draw(82)
    params, grads = tree(draw, 2, 256), tree(draw, 2, 256)
    rows = jax.tree.map(lambda p: np.square(p).mean(1) if p.ndim == 2 else p * p, params)
    columns = jax.tree.map(lambda p: np.square(p).mean(0), params)
    return adafactor, (params, rows, columns, grads, np.float32(10))


def lamb(params: Any, m: Any, v: Any, grads: Any, step: Any) -> tuple[Any, Any, Any]:
    """LAMB in mixed precision: gradients in bf16, clipped by their global norm, trust ratios."""
    grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), grads)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)

    def update(p: Any, m: Any, v: Any) -> Any:
        u = m / (1 - 0.9**step) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-6) + 0.01 * p
        p_norm, u_norm = jnp.linalg.norm(p), jnp.linalg.norm(u)
        trust = jnp.where((p_norm > 0) & (u_norm > 0), p_norm / u_norm, 1.0)
        return p - 1e-3 * jnp.clip(trust, 0.0, 10.0) * u

    return jax.tree.map(update, params, m, v), m, v


def lamb_step() -> Program:
    draw = Draw(83)
    params, m = tree(draw, 5, 256), tree(draw, 5, 256)
    v = jax.tree.map(np.square, tree(draw, 5, 256))
    return lamb, (params, m, v, tree(draw, 5, 256, jnp.bfloat16), np.float32(7))


def blockwise(params: Any, codes: Any, scales: Any, grads: Any) -> tuple[Any, Any, Any]:
    """Momentum kept in int8 blocks of 128 values, a scale each; Nesterov's update."""

    def update(p: Any, code: Any, scale: Any, g: Any) -> tuple[Any, Any, Any]:
        m = (code.astype(jnp.float32) * scale[:, None]).reshape(p.shape)
        m = 0.9 * m + g
        blocks = m.reshape(code.shape)
        scale = jnp.max(jnp.abs(blocks), axis=1) / 127.0
        code = jnp.round(blocks / jnp.maximum(scale, 1e-12)[:, None]).astype(jnp.int8)
        return p - 0.01 * (g + 0.9 * m), code, scale

    found = [update(p, c, s, g) for p, c, s, g in zip(params, codes, scales, grads, strict=True)]
    return tuple(list(part) for part in zip(*found, strict=True))  # type: ignore[return-value]


def int8_momentum() -> Program:
    draw = Draw(84)
    shapes = [(1000, 512), (512, 512), (512, 2048), (2048, 512), (512, 384)]
    params, grads = ([draw.normal(*shape) for shape in shapes] for _ in range(2))
    blocks = [rows * columns // 128 for rows, columns in shapes]
    codes = [draw.integers(n, 128, low=-127, high=128, dtype=np.int8) for n in blocks]
    return blockwise, (params, codes, [draw.uniform(n, high=0.01) for n in blocks], grads)


def private_step(params: Any, x: Any, y: Any, key: Any) -> tuple[Any, Any]:
    """A step with gradients clipped per example, and noise (DP-SGD), of a small classifier."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        h = jnp.tanh(x @ params["w1"] + params["b1"])
        return -jax.nn.log_softmax(h @ params["w2"] + params["b2"])[y]

    losses, grads = jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0, 0))(params, x, y)
    squares = [jnp.sum(g.reshape(g.shape[0], -1) ** 2, axis=1) for g in jax.tree.leaves(grads)]
    factor = jnp.minimum(1.0, 1.0 / (jnp.sqrt(sum(squares)) + 1e-6))
    total = jax.tree.map(lambda g: jnp.tensordot(factor, g, 1), grads)
    leaves, structure = jax.tree.flatten(total)
    keys = jax.random.split(jax.random.wrap_key_data(key), len(leaves))
    noisy = [g + jax.random.normal(k, g.shape) for g, k in zip(leaves, keys, strict=True)]
    step = jax.tree.unflatten(structure, noisy)
    new = jax.tree.map(lambda p, g: p - 0.1 * g / x.shape[0], params, step)
    return new, jnp.mean(losses)


def private_training() -> Program:
    draw = Draw(85)
    params = {
        "w1": draw.weight(59, 64),
        "b1": draw.normal(64, scale=0.1),
        "w2": draw.weight(64, 10),
        "b2": draw.normal(10, scale=0.1),
    }
    args = (draw.normal(1021, 59), draw.integers(1021, high=10), draw.key())
    return private_step, (params, *args)


def newton_schulz(momentum: Any, grads: Any, params: Any) -> tuple[Any, Any]:
    """Muon: the momentum of stacked matrices made orthogonal by five iterations."""
    momentum = 0.95 * momentum + grads
    x = (grads + 0.95 * momentum).astype(jnp.bfloat16)
    norm = jnp.sqrt(jnp.sum(jnp.square(x.astype(jnp.float32)), axis=(1, 2), keepdims=True))
    x = x / (norm + 1e-7).astype(jnp.bfloat16)
    for _ in range(5):
        a = x @ x.transpose(0, 2, 1)
        b = -4.7750 * a + 2.0315 * (a @ a)
        x = 3.4445 * x + b @ x
    scale = 0.02 * max(1.0, params.shape[1] / params.shape[2]) ** 0.5
    return params * (1 - 0.02 * 0.01) - scale * x.astype(jnp.float32), momentum


def muon_step() -> Program:
    draw = Draw(86)
    return newton_schulz, tuple(draw.normal(12, 256, 384, scale=0.05) for _ in range(3))
