"""A GPT block, forward and gradient, and the training step of a small transformer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from common import Random, Workload, sgd, size
from cross_entropy import cost as cross_entropy
from norms import layer_norm

Block = dict[str, jax.Array]
Params = dict[str, Any]


def block_params(draw: Random, width: int, dtype: jax.typing.DTypeLike = jnp.float32) -> Block:
    """The weights of one block, scaled by 1 / sqrt(fan-in); norms start at the identity."""

    def weight(rows: int, columns: int) -> jax.Array:
        return (draw.normal(rows, columns) * rows**-0.5).astype(dtype)

    return {
        "ln1_g": jnp.ones(width, dtype),
        "ln1_b": jnp.zeros(width, dtype),
        "qkv_w": weight(width, 3 * width),
        "qkv_b": jnp.zeros(3 * width, dtype),
        "proj_w": weight(width, width),
        "proj_b": jnp.zeros(width, dtype),
        "ln2_g": jnp.ones(width, dtype),
        "ln2_b": jnp.zeros(width, dtype),
        "up_w": weight(width, 4 * width),
        "up_b": jnp.zeros(4 * width, dtype),
        "down_w": weight(4 * width, width),
        "down_b": jnp.zeros(width, dtype),
    }


def attention(p: Block, x: jax.Array, heads: int) -> jax.Array:
    """Causal self-attention; the softmax in f32."""
    batch, length, width = x.shape
    qkv = (x @ p["qkv_w"] + p["qkv_b"]).reshape(batch, length, 3, heads, width // heads)
    q, k, v = (qkv[:, :, i] for i in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // heads) ** -0.5
    causal = jnp.tril(jnp.ones((length, length), bool))
    scores = jnp.where(causal, scores.astype(jnp.float32), -1e30)
    weights = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, width)
    return mixed @ p["proj_w"] + p["proj_b"]


def block(p: Block, x: jax.Array, heads: int) -> jax.Array:
    """One pre-norm GPT block on x [batch, length, width]."""
    x = x + attention(p, layer_norm(x, p["ln1_g"], p["ln1_b"]), heads)
    hidden = jax.nn.gelu(layer_norm(x, p["ln2_g"], p["ln2_b"]) @ p["up_w"] + p["up_b"])
    return x + hidden @ p["down_w"] + p["down_b"]


def cost(params: Params, tokens: jax.Array, heads: int) -> jax.Array:
    """Next-token cross-entropy of tokens [batch, length + 1]."""
    embedding, position = params["embedding"], params["position"]
    x = embedding[tokens[:, :-1]] + position
    for p in params["blocks"]:
        x = block(p, x, heads)
    logits = layer_norm(x, params["ln_g"], params["ln_b"]) @ embedding.T
    return cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


def step(params: Params, tokens: jax.Array, heads: int = 4) -> tuple[Params, jax.Array]:
    loss, grads = jax.value_and_grad(cost)(params, tokens, heads)
    return sgd(params, grads, 0.1), loss


def init(draw: Random, layers: int, width: int, length: int, words: int) -> Params:
    return {
        "embedding": draw.normal(words, width) * 0.02,
        "position": draw.normal(length, width) * 0.02,
        "blocks": [block_params(draw, width) for _ in range(layers)],
        "ln_g": jnp.ones(width),
        "ln_b": jnp.zeros(width),
    }


def _block_args() -> tuple[int, Block, jax.Array]:
    draw = Random()
    batch, length, width, heads = size((8, 512, 768, 12), (2, 16, 32, 4))
    p = block_params(draw, width, jnp.bfloat16)
    return heads, p, draw.normal(batch, length, width, dtype=jnp.bfloat16)


def block_forward() -> Workload:
    """bf16[8, 512, 768], 12 heads (small: bf16[2, 16, 32], 4 heads)."""
    heads, p, x = _block_args()

    def forward(p: Block, x: jax.Array) -> jax.Array:
        return block(p, x, heads)

    return forward, (p, x)


def block_gradient() -> Workload:
    """Gradient of the mean square of the same block with respect to weights and input."""
    heads, p, x = _block_args()

    def objective(p: Block, x: jax.Array) -> jax.Array:
        return jnp.mean(block(p, x, heads).astype(jnp.float32) ** 2)

    return jax.grad(objective, argnums=(0, 1)), (p, x)


def train_step() -> Workload:
    """4 layers 64 wide, 4 heads, 256 words, batch 4 x 32, SGD (small: 1 layer 32 wide, 2 x 8)."""
    draw = Random()
    layers, width, batch, length, words = size((4, 64, 4, 32, 256), (1, 32, 2, 8, 64))
    params = init(draw, layers, width, length, words)
    return step, (params, draw.integers(batch, length + 1, high=words))
