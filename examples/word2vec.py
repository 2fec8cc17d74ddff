"""Skip-gram word2vec with noise-contrastive estimation, SGD 0.1, batch 128, 64 negatives.

Negatives are drawn inside the step from the log-uniform (Zipf) distribution over word ranks, with
replacement; each logit is corrected by the logarithm of its expected count.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from common import Random, Workload, sgd, size

Params = dict[str, jax.Array]
State = tuple[Params, jax.Array]
NEGATIVES = 64


def log_uniform(key: jax.Array, count: int, vocabulary: int) -> jax.Array:
    """`count` word ranks below `vocabulary`; rank k has weight log((k + 2) / (k + 1))."""
    drawn = jnp.exp(jax.random.uniform(key, (count,)) * jnp.log(vocabulary + 1.0)) - 1.0
    return jnp.minimum(drawn.astype(jnp.int32), vocabulary - 1)


def expected_count(words: jax.Array, vocabulary: int) -> jax.Array:
    """How often each of `words` turns up among the negatives."""
    rank = words.astype(jnp.float32)
    return NEGATIVES * jnp.log((rank + 2.0) / (rank + 1.0)) / jnp.log(vocabulary + 1.0)


def sigmoid_cross_entropy(logits: jax.Array, label: float) -> jax.Array:
    return jnp.maximum(logits, 0.0) - logits * label + jnp.log1p(jnp.exp(-jnp.abs(logits)))


def nce_loss(params: Params, key: jax.Array, centers: jax.Array, contexts: jax.Array) -> jax.Array:
    vocabulary = params["embedding"].shape[0]
    negatives = log_uniform(key, NEGATIVES, vocabulary)
    embedded = params["embedding"][centers]

    true = jnp.sum(embedded * params["nce_w"][contexts], axis=1) + params["nce_b"][contexts]
    true -= jnp.log(expected_count(contexts, vocabulary))
    noise = embedded @ params["nce_w"][negatives].T + params["nce_b"][negatives]
    noise -= jnp.log(expected_count(negatives, vocabulary))
    per_word = sigmoid_cross_entropy(true, 1.0) + jnp.sum(sigmoid_cross_entropy(noise, 0.0), axis=1)
    return jnp.mean(per_word)


def step(state: State, centers: jax.Array, contexts: jax.Array) -> tuple[State, jax.Array]:
    params, key = state
    key, draw = jax.random.split(key)
    loss, grads = jax.value_and_grad(nce_loss)(params, draw, centers, contexts)
    return (sgd(params, grads, 0.1), key), loss


def similarity(params: Params, words: jax.Array) -> jax.Array:
    """[words, vocabulary] cosine scores as the original computes them: the words' embeddings are
    divided by the norm of all of them together."""
    embedding = params["embedding"]
    chosen = embedding[words]
    chosen = chosen / jnp.sqrt(jnp.sum(chosen**2))
    rows = embedding / jnp.sqrt(jnp.sum(embedding**2, axis=1, keepdims=True))
    return chosen @ rows.T


def _params(draw: Random) -> Params:
    vocabulary, width = size((50_000, 200), (500, 40))
    return {
        "embedding": draw.normal(vocabulary, width),
        "nce_w": draw.normal(vocabulary, width),
        "nce_b": jnp.zeros(vocabulary),
    }


def train_step() -> Workload:
    """Vocabulary 50,000, width 200 (small: 500, 40), batch 128."""
    draw = Random()
    params = _params(draw)
    words = params["embedding"].shape[0]
    state = (params, jax.random.key(0))
    return step, (state, draw.integers(128, high=words), draw.integers(128, high=words))


def evaluation() -> Workload:
    """Cosine scores of six words against the vocabulary."""
    draw = Random()
    params = _params(draw)
    return similarity, (params, draw.integers(6, high=params["embedding"].shape[0]))
