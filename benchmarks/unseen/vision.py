"""Images: augmentation, warping, losses, edges, structural similarity, masked autoencoding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.unseen.inputs import Draw, Program


def jitter(images: Any, brightness: Any, contrast: Any, saturation: Any) -> Any:
    """Colour jitter and normalization of uint8 images, in bf16 for the network."""
    x = images.astype(jnp.float32) / 255.0
    x = jnp.clip(x * brightness[:, None, None, None], 0.0, 1.0)
    gray = x @ jnp.array([0.299, 0.587, 0.114])
    mean = jnp.mean(gray, axis=(1, 2))[:, None, None, None]
    x = jnp.clip(mean + contrast[:, None, None, None] * (x - mean), 0.0, 1.0)
    gray = (x @ jnp.array([0.299, 0.587, 0.114]))[..., None]
    x = jnp.clip(gray + saturation[:, None, None, None] * (x - gray), 0.0, 1.0)
    mean = jnp.array([0.485, 0.456, 0.406])
    std = jnp.array([0.229, 0.224, 0.225])
    return ((x - mean) / std).astype(jnp.bfloat16)


def color_jitter() -> Program:
    draw = Draw(1)
    images = draw.integers(64, 224, 224, 3, high=256, dtype=np.uint8)
    return jitter, (images, *(draw.uniform(64, low=0.6, high=1.4) for _ in range(3)))


def sample(image: Any, theta: Any) -> Any:
    """One image under an affine map, bilinear, zeros outside."""
    height, width, _ = image.shape
    ys, xs = jnp.meshgrid(jnp.linspace(-1, 1, height), jnp.linspace(-1, 1, width), indexing="ij")
    points = jnp.stack([xs, ys, jnp.ones_like(xs)], axis=-1) @ theta.T
    x = (points[..., 0] + 1) * (width - 1) / 2
    y = (points[..., 1] + 1) * (height - 1) / 2
    x0, y0 = jnp.floor(x), jnp.floor(y)
    out = 0.0
    for dy in (0, 1):
        for dx in (0, 1):
            xi, yi = x0 + dx, y0 + dy
            inside = (xi >= 0) & (xi < width) & (yi >= 0) & (yi < height)
            weight = (1 - jnp.abs(x - xi)) * (1 - jnp.abs(y - yi)) * inside
            xi = jnp.clip(xi, 0, width - 1).astype(jnp.int32)
            yi = jnp.clip(yi, 0, height - 1).astype(jnp.int32)
            out = out + weight[..., None] * image[yi, xi]
    return out


def affine_warp() -> Program:
    draw = Draw(2)
    theta = np.eye(2, 3, dtype=np.float32) + draw.normal(32, 2, 3, scale=0.1)
    return jax.vmap(sample), (draw.uniform(32, 223, 223, 3), theta)


def iou(a: Any, b: Any) -> Any:
    """Intersection over union of all pairs of [n, 4] and [m, 4] corners."""
    top_left = jnp.maximum(a[:, None, :2], b[None, :, :2])
    bottom_right = jnp.minimum(a[:, None, 2:], b[None, :, 2:])
    width, height = jnp.moveaxis(jnp.maximum(bottom_right - top_left, 0.0), -1, 0)
    inter = width * height
    area = lambda box: (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])  # noqa: E731
    return inter / (area(a)[:, None] + area(b)[None, :] - inter + 1e-9)


def match(anchors: Any, boxes: Any, valid: Any, predicted: Any) -> tuple[Any, Any, Any]:
    """Labels of all anchors of one image, and the smooth L1 loss of the positive ones."""
    overlap = jnp.where(valid[None, :], iou(anchors, boxes), -1.0)
    best = jnp.max(overlap, axis=1)
    chosen = jnp.argmax(overlap, axis=1)
    labels = jnp.where(best > 0.5, 1, jnp.where(best < 0.4, 0, -1)).astype(jnp.int8)
    target = boxes[chosen]
    size = anchors[:, 2:] - anchors[:, :2]
    offset = (target[:, :2] - anchors[:, :2]) / size
    scale = jnp.log((target[:, 2:] - target[:, :2]) / size)
    error = jnp.abs(predicted - jnp.concatenate([offset, scale], axis=1))
    smooth = jnp.where(error < 1.0, 0.5 * error**2, error - 0.5).sum(axis=1)
    positive = labels == 1
    loss = jnp.sum(smooth * positive) / jnp.maximum(jnp.sum(positive), 1)
    return labels, chosen, loss


def anchor_matching() -> Program:
    draw = Draw(3)

    def boxes(*shape: int) -> np.ndarray:
        corner = draw.uniform(*shape, 2, high=500.0)
        return np.concatenate([corner, corner + draw.uniform(*shape, 2, low=10, high=120)], -1)

    fun = jax.vmap(match, in_axes=(None, 0, 0, 0))
    valid = np.arange(101)[None] < draw.integers(8, 1, low=5, high=101)
    return fun, (boxes(8649), boxes(8, 101), valid, draw.normal(8, 8649, 4))


def dice_and_focal(logits: Any, labels: Any) -> Any:
    """Segmentation loss; 255 marks pixels without a label."""
    valid = labels != 255
    target = jax.nn.one_hot(jnp.where(valid, labels, 0), logits.shape[-1]) * valid[..., None]
    log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
    p = jnp.exp(log_p)
    focal = -jnp.sum(target * (1 - p) ** 2 * log_p) / jnp.sum(valid)
    axes = (1, 2)
    overlap = jnp.sum(p * target, axis=axes)
    total = jnp.sum(p * valid[..., None], axis=axes) + jnp.sum(target, axis=axes)
    return focal + jnp.mean(1 - (2 * overlap + 1) / (total + 1))


def segmentation_loss() -> Program:
    draw = Draw(4)
    labels = draw.integers(8, 257, 257, high=20, dtype=np.uint8)
    labels = np.where(labels == 19, np.uint8(255), labels)
    logits = draw.normal(8, 257, 257, 19, dtype=jnp.bfloat16)
    return jax.value_and_grad(dice_and_focal), (logits, labels)


def edges(images: Any) -> tuple[Any, Any]:
    """Edges of smoothed images by two thresholds, and histograms of oriented gradients."""
    x = images.astype(jnp.float32) / 255.0
    conv = lambda x, k: lax.conv_general_dilated(  # noqa: E731
        x, k[:, :, None, :], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    binomial = jnp.array([1.0, 4.0, 6.0, 4.0, 1.0]) / 16.0
    x = conv(x, jnp.outer(binomial, binomial)[..., None])
    sobel = jnp.array([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])
    gradient = conv(x, jnp.stack([sobel, sobel.T], axis=-1))
    size = jnp.sqrt(jnp.sum(gradient**2, axis=-1) + 1e-12)
    angle = jnp.arctan2(gradient[..., 1], gradient[..., 0])
    size = size / jnp.max(size, axis=(1, 2), keepdims=True)
    strong, weak = size > 0.3, size > 0.1
    near = lax.reduce_window(strong, False, lax.bitwise_or, (1, 3, 3), (1, 1, 1), "SAME")
    kept = jnp.where(strong | (weak & near), size, 0.0)
    turn = jnp.mod(angle * (4 / jnp.pi) - jnp.arange(8)[:, None, None, None], 8.0)
    share = jnp.maximum(1.0 - jnp.minimum(turn, 8.0 - turn), 0.0) * size
    cells = share.reshape(8, size.shape[0], size.shape[1] // 8, 8, -1, 8).sum(axis=(3, 5))
    return kept, cells / (jnp.sqrt(jnp.sum(cells**2, axis=0)) + 1e-5)


def oriented_edges() -> Program:
    return edges, (Draw(5).integers(16, 480, 640, 1, high=256, dtype=np.uint8),)


def similarity(a: Any, b: Any) -> tuple[Any, Any]:
    """Mean structural similarity (7 by 7 windows) and its map."""

    def window(x: Any) -> Any:
        return lax.reduce_window(x, 0.0, lax.add, (1, 7, 7, 1), (1, 1, 1, 1), "VALID") / 49.0

    mean_a, mean_b = window(a), window(b)
    var_a = window(a * a) - mean_a**2
    var_b = window(b * b) - mean_b**2
    covariance = window(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    top = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    bottom = (mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2)
    ssim = top / bottom
    return jnp.mean(ssim, axis=(1, 2, 3)), ssim


def structural_similarity() -> Program:
    draw = Draw(6)
    a = draw.uniform(24, 255, 255, 3)
    return similarity, (a, np.clip(a + draw.normal(24, 255, 255, 3, scale=0.05), 0.0, 1.0))


def masked_patches(images: Any, key: Any, predicted: Any) -> tuple[Any, Any]:
    """The loss of a masked autoencoder on the patches that were hidden, and the mask."""
    n, height, width, channels = images.shape
    rows, columns = height // 16, width // 16
    x = images.reshape(n, rows, 16, columns, 16, channels)
    patches = x.transpose(0, 1, 3, 2, 4, 5).reshape(n, rows * columns, -1)
    mean = jnp.mean(patches, axis=-1, keepdims=True)
    var = jnp.var(patches, axis=-1, keepdims=True)
    target = (patches - mean) * lax.rsqrt(var + 1e-6)
    noise = jax.random.uniform(jax.random.wrap_key_data(key), (n, rows * columns))
    rank = jnp.argsort(jnp.argsort(noise, axis=1), axis=1)
    mask = (rank >= rows * columns // 4).astype(jnp.float32)
    error = jnp.mean((predicted.astype(jnp.float32) - target) ** 2, axis=-1)
    return jnp.sum(error * mask) / jnp.sum(mask), mask


def masked_autoencoder() -> Program:
    draw = Draw(7)
    predicted = draw.normal(32, 196, 768, dtype=jnp.bfloat16)
    return masked_patches, (draw.uniform(32, 224, 224, 3), draw.key(), predicted)
