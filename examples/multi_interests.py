"""Multi-interest recommendation: a stand-in for the paper's multi-interests, after ComiRec-SA.

A user's history of items attends to itself with several heads, each an interest; the interest
nearest to the next item is trained by a softmax over sampled items. Adam 0.001. Products keep all
of f32: in TF32 which interest is nearest would depend on how they were rounded.
The model also holds the block of the paper's Figure 1, which is `figure1.py:original`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from adam import AdamState, adam_init, adam_update
from common import Random, Workload, size
from word2vec import log_uniform

Params = dict[str, jax.Array]
State = tuple[Params, AdamState, jax.Array]
#: Negatives drawn per user of the batch.
NEGATIVES_PER_USER = 10
MASKED = -1e9


def interests(params: Params, history: jax.Array, lengths: jax.Array) -> jax.Array:
    """[batch, heads, width] from item ids [batch, length] and how many of them count.

    The heads have no bias: a softmax over the history takes no notice of one.
    """
    items = params["items"][history]
    hidden = jnp.tanh((items + params["position"]) @ params["hidden_w"] + params["hidden_b"])
    scores = jnp.swapaxes(hidden @ params["heads_w"], 1, 2)
    alive = jnp.arange(history.shape[1]) < lengths[:, None]
    weights = jax.nn.softmax(jnp.where(alive[:, None], scores, MASKED), axis=-1)
    return jnp.einsum("bkl,bld->bkd", weights, items)


def log_count(items: jax.Array, drawn: int, count: int) -> jax.Array:
    """Logarithm of how often each of `items` turns up among `drawn` log-uniform ones."""
    rank = items.astype(jnp.float32)
    return jnp.log(drawn * jnp.log((rank + 2.0) / (rank + 1.0)) / jnp.log(count + 1.0))


def cost(
    params: Params, key: jax.Array, history: jax.Array, lengths: jax.Array, targets: jax.Array
) -> jax.Array:
    """Mean sampled softmax cross-entropy of the next items `targets` [batch]."""
    batch, count = targets.shape[0], params["items"].shape[0]
    drawn = NEGATIVES_PER_USER * batch
    target = params["items"][targets]
    several = interests(params, history, lengths)
    nearest = jnp.argmax(jnp.einsum("bkd,bd->bk", several, target), axis=1)
    user = several[jnp.arange(batch), nearest]

    negatives = log_uniform(key, drawn, count)
    true = jnp.sum(user * target, axis=1) + params["bias"][targets]
    noise = user @ params["items"][negatives].T + params["bias"][negatives]
    true -= log_count(targets, drawn, count)
    noise -= log_count(negatives, drawn, count)
    logits = jnp.concatenate([true[:, None], noise], axis=1)
    return -jnp.mean(jax.nn.log_softmax(logits)[:, 0])


@jax.default_matmul_precision("float32")
def step(
    state: State, history: jax.Array, lengths: jax.Array, targets: jax.Array
) -> tuple[State, jax.Array]:
    params, moments, key = state
    key, draw = jax.random.split(key)
    loss, grads = jax.value_and_grad(cost)(params, draw, history, lengths, targets)
    params, moments = adam_update(params, moments, grads, rate=0.001)
    return (params, moments, key), loss


def train_step() -> Workload:
    """100,000 items 64 wide, 4 heads, history 94, batch 256 (small: 200 items 16 wide, 12, 8)."""
    draw = Random()
    items, width, heads, length, batch = size((100_000, 64, 4, 94, 256), (200, 16, 2, 12, 8))
    params = {
        "items": draw.normal(items, width),
        "bias": jnp.zeros(items),
        "position": draw.normal(length, width),
        "hidden_w": draw.glorot(width, 4 * width),
        "hidden_b": jnp.zeros(4 * width),
        "heads_w": draw.glorot(4 * width, heads),
    }
    state = (params, adam_init(params), jax.random.key(0))
    history = draw.integers(batch, length, high=items)
    lengths = draw.integers(batch, low=1, high=length + 1)
    return step, (state, history, lengths, draw.integers(batch, high=items))
