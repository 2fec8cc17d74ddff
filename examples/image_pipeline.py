"""Augmentation of a batch of images: crop, flip, colour jitter, blur, normalise.

All of it moves bytes and computes little. The gathers of crops, the mean of each image (contrast)
and the blur (a depthwise convolution) part it into many kernels under XLA.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from common import Random, Workload, size

MEAN = jnp.array([0.485, 0.456, 0.406])  # of ImageNet
STD = jnp.array([0.229, 0.224, 0.225])
GRAY = jnp.array([0.299, 0.587, 0.114])


def jitter(key: jax.Array, image: jax.Array) -> jax.Array:
    """Brightness, contrast and saturation, each changed by up to 40%."""
    bright, contrast, saturation = jax.random.uniform(key, (3,), minval=0.6, maxval=1.4)
    image = jnp.clip(image * bright, 0, 1)
    mean = (image @ GRAY).mean()
    image = jnp.clip(mean + contrast * (image - mean), 0, 1)
    gray = (image @ GRAY)[..., None]
    return jnp.clip(gray + saturation * (image - gray), 0, 1)


def blur(sigma: jax.Array, image: jax.Array) -> jax.Array:
    """A Gaussian blur over 5 x 5 pixels, along columns and then along rows."""
    weights = jax.nn.softmax(-0.5 * (jnp.arange(-2.0, 3.0) / sigma) ** 2)
    for axis in (0, 1):
        padded = jnp.pad(image, [(2, 2) if i == axis else (0, 0) for i in range(3)], "edge")
        shifted = [
            jax.lax.slice_in_dim(padded, i, i + image.shape[axis], axis=axis) for i in range(5)
        ]
        image = sum(w * part for w, part in zip(weights, shifted, strict=True))
    return image


def augment(key: jax.Array, image: jax.Array, side: int) -> jax.Array:
    """f32[side, side, 3] from one u8[height, width, 3]."""
    keys = jax.random.split(key, 4)
    corner = jax.random.randint(keys[0], (2,), 0, jnp.array(image.shape[:2]) - side + 1)
    image = jax.lax.dynamic_slice(image, (*corner, 0), (side, side, 3)) / 255.0
    image = jnp.where(jax.random.bernoulli(keys[1]), image[:, ::-1], image)
    image = blur(jax.random.uniform(keys[2], minval=0.1, maxval=2.0), jitter(keys[3], image))
    return (image - MEAN) / STD


def batch() -> Workload:
    """128 images of 256 x 256 cropped to 224 (small: 4 of 20 x 20 to 16)."""
    count, whole, side = size((128, 256, 224), (4, 20, 16))
    images = Random().integers(count, whole, whole, 3, high=256).astype(jnp.uint8)
    keys = jax.random.split(jax.random.key(0), count)
    return jax.vmap(functools.partial(augment, side=side)), (keys, images)
