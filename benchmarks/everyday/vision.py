"""Images: normalisation, augmentation, losses of detection and segmentation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.everyday.table import program


@program(lambda r: (r.normal(32, 57, 57, 31), r.normal(31), r.normal(31)))
def batch_norm_leaky(x, gamma, beta):
    """Batch statistics of an odd number of channels, which are the minor axis."""
    mean = x.mean((0, 1, 2))
    var = ((x - mean) ** 2).mean((0, 1, 2))
    y = (x - mean) * jax.lax.rsqrt(var + 1e-3) * gamma + beta
    return jax.nn.leaky_relu(y, 0.1), 0.9 * mean, 0.9 * var


@program(lambda r: (r.normal(16, 33, 33, 96), r.normal(96), r.normal(96)))
def group_norm_swish(x, gamma, beta):
    n, h, w, c = x.shape
    g = x.reshape(n, h, w, 8, c // 8)
    mean = g.mean((1, 2, 4), keepdims=True)
    var = g.var((1, 2, 4), keepdims=True)
    y = ((g - mean) / jnp.sqrt(var + 1e-5)).reshape(x.shape) * gamma + beta
    return jax.nn.swish(y) + x


@program(lambda r: (r.integers(24, 241, 321, 3, high=256, dtype=np.uint8),))
def edges(image):
    """Grey values of bytes, Sobel by shifted differences, the magnitude as bytes."""
    grey = image.astype(jnp.float32) @ jnp.array([0.299, 0.587, 0.114])
    p = jnp.pad(grey, ((0, 0), (1, 1), (1, 1)), mode="edge")
    gx = p[:, :-2, 2:] + 2 * p[:, 1:-1, 2:] + p[:, 2:, 2:]
    gx -= p[:, :-2, :-2] + 2 * p[:, 1:-1, :-2] + p[:, 2:, :-2]
    gy = p[:, 2:, :-2] + 2 * p[:, 2:, 1:-1] + p[:, 2:, 2:]
    gy -= p[:, :-2, :-2] + 2 * p[:, :-2, 1:-1] + p[:, :-2, 2:]
    size = jnp.sqrt(gx**2 + gy**2)
    scaled = size / size.max((1, 2), keepdims=True)
    return jnp.round(255 * scaled).astype(jnp.uint8)


def _focal(logits, labels):
    p = jax.nn.sigmoid(logits)
    hot = jax.nn.one_hot(labels, logits.shape[-1])
    ce = jnp.maximum(logits, 0) - logits * hot + jnp.log1p(jnp.exp(-jnp.abs(logits)))
    pt = p * hot + (1 - p) * (1 - hot)
    alpha = 0.25 * hot + 0.75 * (1 - hot)
    return (alpha * (1 - pt) ** 2 * ce).sum() / jnp.maximum((labels > 0).sum(), 1)


@program(lambda r: (r.normal(8, 5003, 91), r.integers(8, 5003, high=91)))
def focal_loss(logits, labels):
    return jax.value_and_grad(_focal)(logits, labels)


def _dice(logits, mask):
    p = jax.nn.softmax(logits)
    hot = jax.nn.one_hot(mask, logits.shape[-1])
    both, all_ = (p * hot).sum((1, 2)), (p + hot).sum((1, 2))
    ce = -(hot * jax.nn.log_softmax(logits)).sum(-1).mean()
    return ce + (1 - (2 * both + 1) / (all_ + 1)).mean()


@program(lambda r: (r.normal(8, 129, 129, 19), r.integers(8, 129, 129, high=19, dtype=np.uint8)))
def dice_loss(logits, mask):
    """Cross-entropy and dice of a segmentation: a scalar beside a large gradient."""
    return jax.value_and_grad(_dice)(logits, mask)


@program(lambda r: (r.uniform(1500, 4, high=400.0), r.uniform(1500)))
def soft_suppression(boxes, scores):
    """The decay of soft non-maximum suppression, from all pairs of boxes."""
    low, high = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    side = jnp.minimum(high[:, None], high) - jnp.maximum(low[:, None], low)
    inter = jnp.maximum(side, 0).prod(-1)
    area = boxes[:, 2:].prod(-1)
    iou = inter / (area[:, None] + area - inter)
    better = scores[None] > scores[:, None]
    worst = jnp.where(better, iou, 0).max(0)
    decay = jnp.where(better, jnp.exp(-(iou**2 - worst[None] ** 2) / 0.5), 1.0).min(1)
    return scores * decay


@program(lambda r: (r.integers(32, 96, 96, 3, high=256, dtype=np.uint8), r.key()))
def jitter(image, key):
    """Brightness, contrast, flips and noise at random, of bytes."""
    a, b, c, d = jax.random.split(key, 4)
    x = image.astype(jnp.bfloat16) / 255
    n = x.shape[0]
    x = jnp.where(jax.random.bernoulli(a, 0.5, (n, 1, 1, 1)), x[:, :, ::-1], x)
    mean = x.mean((1, 2, 3), keepdims=True)
    x = (x - mean) * jax.random.uniform(b, (n, 1, 1, 1), x.dtype, 0.6, 1.4) + mean
    x = x + jax.random.uniform(c, (n, 1, 1, 1), x.dtype, -0.2, 0.2)
    x = x + 0.05 * jax.random.normal(d, x.shape, x.dtype)
    return jnp.clip(x, 0, 1)
