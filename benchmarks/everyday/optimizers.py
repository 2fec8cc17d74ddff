"""Steps of optimisers over many tensors, written out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.everyday.table import program

tree_map = jax.tree.map


def _network(r, dtype=np.float32):
    """Forty-odd tensors of a small convolutional network."""
    shapes = [(3, 3, 3, 19), (19,), (19,)]
    for a, b in ((19, 37), (37, 37), (37, 61), (61, 61), (61, 113), (113, 113)):
        shapes += [(3, 3, a, b), (b,), (b,), (1, 1, a, b), (b,), (b,)]
    shapes += [(113, 101), (101,)]
    return {f"p{n}": r.normal(*shape, dtype=dtype, scale=0.1) for n, shape in enumerate(shapes)}


@program(lambda r: (_network(r), _network(r), _network(r), _network(r), np.float32(100)))
def layerwise_adam(params, grads, m, v, count):
    """LAMB: two norms per tensor decide its step."""
    v = tree_map(jnp.abs, v)
    m = tree_map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)

    def new(p, m, v):
        update = m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-6) + 0.01 * p
        size, step = jnp.linalg.norm(p), jnp.linalg.norm(update)
        trust = jnp.where((size > 0) & (step > 0), size / step, 1.0)
        return p - 1e-3 * trust * update

    return tree_map(new, params, m, v), m, v


@program(
    lambda r: (
        [r.normal(1021, 769), r.normal(769, 1021), r.normal(4001, 97)],
        [r.normal(1021, 769), r.normal(769, 1021), r.normal(4001, 97)],
        [r.uniform(n, low=0.1) for n in (1021, 769, 4001)],
        [r.uniform(n, low=0.1) for n in (769, 1021, 97)],
    )
)
def factored_moments(params, grads, rows, columns):
    """Adafactor: second moments kept by rows and columns, updates clipped by their size."""
    out = []
    for p, g, r, c in zip(params, grads, rows, columns, strict=True):
        square = g * g + 1e-30
        r = 0.99 * r + 0.01 * square.mean(1)
        c = 0.99 * c + 0.01 * square.mean(0)
        update = g * lax.rsqrt(r / r.mean())[:, None] * lax.rsqrt(c)
        update = update / jnp.maximum(1.0, jnp.sqrt((update**2).mean()))
        step = 1e-2 * jnp.maximum(1e-3, jnp.sqrt((p**2).mean()))
        out.append((p - step * update, r, c))
    return out


@program(lambda r: (_network(r, jnp.bfloat16), _network(r, jnp.bfloat16), _network(r)))
def sign_momentum(params, grads, m):
    """Lion on parameters of sixteen bits with a moment of thirty-two."""
    wide = tree_map(lambda g: g.astype(jnp.float32), grads)
    update = tree_map(lambda m, g: jnp.sign(0.9 * m + 0.1 * g), m, wide)
    new = tree_map(
        lambda p, u: (p - 1e-4 * (u + 0.1 * p.astype(jnp.float32))).astype(p.dtype), params, update
    )
    return new, tree_map(lambda m, g: 0.99 * m + 0.01 * g, m, wide)


@program(lambda r: (r.layers(61, 127, 127, 10), r.normal(256, 61), r.integers(256, high=10)))
def sharpness_aware(layers, x, y):
    """A step to where the loss is worst nearby, and the gradient taken there."""

    def loss(layers):
        h = x
        for layer in layers[:-1]:
            h = jax.nn.relu(h @ layer["w"] + layer["b"])
        logp = jax.nn.log_softmax(h @ layers[-1]["w"] + layers[-1]["b"])
        return -jnp.take_along_axis(logp, y[:, None], 1).mean()

    value, grads = jax.value_and_grad(loss)(layers)
    norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grads)))
    up = tree_map(lambda p, g: p + 0.05 * g / (norm + 1e-12), layers, grads)
    return value, tree_map(lambda p, g: p - 0.1 * g, layers, jax.grad(loss)(up))


@program(lambda r: (_network(r), _network(r), _network(r), _network(r), np.int32(500)))
def averaged_weights(params, grads, momentum, average, count):
    """Nesterov, a global clip, a cosine schedule, decay, and a running average of the weights."""
    norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grads)))
    clip = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    rate = 0.05 * (1 + jnp.cos(jnp.pi * jnp.minimum(count / 1000, 1.0)))
    grads = tree_map(lambda g, p: g * clip + 1e-4 * p, grads, params)
    momentum = tree_map(lambda m, g: 0.9 * m + g, momentum, grads)
    params = tree_map(lambda p, m, g: p - rate * (g + 0.9 * m), params, momentum, grads)
    keep = jnp.minimum(0.999, (1 + count) / (10 + count))
    average = tree_map(lambda a, p: keep * a + (1 - keep) * p, average, params)
    return params, momentum, average, norm


@program(
    lambda r: (
        r.normal(997, 2048),
        r.normal(997, 2048),
        *(r.integers(997 * 16, 128, high=127, dtype=np.int8) for _ in "mv"),
        *(r.uniform(997 * 16, low=0.01) for _ in "mv"),
    )
)
def eight_bit_moments(p, g, m, v, m_scale, v_scale):
    """Adam whose moments are bytes, with a scale for every 128 of them."""
    m = (m.astype(jnp.float32) / 127 * m_scale[:, None]).reshape(p.shape)
    v = (v.astype(jnp.float32) / 127 * v_scale[:, None]).reshape(p.shape)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v**2 + 0.001 * g * g
    p = p - 1e-3 * m / (jnp.sqrt(v) + 1e-8)

    def packed(x):
        x = x.reshape(-1, 128)
        scale = jnp.abs(x).max(1)
        code = jnp.round(x / jnp.maximum(scale, 1e-12)[:, None] * 127).astype(jnp.int8)
        return code, scale

    return p, packed(m), packed(jnp.sqrt(v))


@program(lambda r: (r.normal(384, 1000), r.normal(384, 1000)))
def orthogonal_momentum(g, m):
    """Five Newton-Schulz iterations on a momentum."""
    m = 0.95 * m + g
    x = m / (jnp.linalg.norm(m) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return m, x * jnp.sqrt(jnp.maximum(1.0, 384 / 1000))
