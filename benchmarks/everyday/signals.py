"""Arrays of numbers: filters, quantisation, windows, orders."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.everyday.table import program


@program(lambda r: (r.normal(512, 1031, dtype=jnp.bfloat16), r.normal(1031, 509, scale=0.05)))
def quantized_product(x, w):
    """Bytes with a scale per row and per column, their product as integers, back to floats."""
    wide = x.astype(jnp.float32)
    sx = jnp.abs(wide).max(1, keepdims=True) / 127
    sw = jnp.abs(w).max(0, keepdims=True) / 127
    qx = jnp.round(wide / sx).astype(jnp.int8)
    qw = jnp.round(w / sw).astype(jnp.int8)
    y = lax.dot(qx, qw, preferred_element_type=jnp.int32)
    return (y.astype(jnp.float32) * sx * sw).astype(jnp.bfloat16)


@program(
    lambda r: (
        r.normal(6144, 515, dtype=jnp.bfloat16),
        r.normal(6144, 515, dtype=jnp.bfloat16),
        r.normal(515),
        r.normal(515),
        r.key(),
    )
)
def dropout_residual_norm(x, residual, scale, shift, key):
    kept = jax.random.bernoulli(key, 0.9, x.shape)
    h = residual + jnp.where(kept, x / 0.9, 0).astype(x.dtype)
    y = h.astype(jnp.float32)
    mean = y.mean(-1, keepdims=True)
    var = ((y - mean) ** 2).mean(-1, keepdims=True)
    return ((y - mean) * lax.rsqrt(var + 1e-5) * scale + shift).astype(x.dtype), h


@program(lambda r: (r.normal(256, 4000), r.uniform(2001)))
def spectral_filter(x, gain):
    """A window, a transform, a gain with a soft threshold, the way back."""
    window = jnp.hanning(x.shape[-1])
    f = jnp.fft.rfft((x - x.mean(-1, keepdims=True)) * window)
    size = jnp.abs(f)
    floor = jnp.median(size, -1, keepdims=True)
    kept = jnp.maximum(size - floor, 0) / (size + 1e-9) * gain
    return jnp.fft.irfft(f * kept, x.shape[-1]), 10 * jnp.log10(size**2 + 1e-12)


@program(lambda r: (r.integers(40, 331, 499, high=65535, dtype=np.uint16),))
def tone_mapping(raw):
    """Sixteen bits to eight with a curve, an average of logarithms and a histogram's share."""
    x = raw.astype(jnp.float32) / 65535
    grey = jnp.exp(jnp.log(x + 1e-4).mean((1, 2), keepdims=True))
    y = 0.18 / grey * x
    y = y * (1 + y / 9.0) / (1 + y)
    y = jnp.where(y < 0.0031308, 12.92 * y, 1.055 * jnp.maximum(y, 1e-9) ** (1 / 2.4) - 0.055)
    return jnp.round(jnp.clip(y, 0, 1) * 255).astype(jnp.uint8), (y > 1).mean((1, 2))


@program(lambda r: (r.normal(16, 401, 303),))
def box_filter(x):
    """Local means and deviations through running sums along both axes."""

    def summed(y):
        total = jnp.pad(jnp.cumsum(jnp.cumsum(y, 1), 2), ((0, 0), (1, 0), (1, 0)))
        return total[:, 9:, 9:] - total[:, :-9, 9:] - total[:, 9:, :-9] + total[:, :-9, :-9]

    mean = summed(x) / 81
    var = jnp.maximum(summed(x * x) / 81 - mean**2, 0)
    return (x[:, 4:-4, 4:-4] - mean) * lax.rsqrt(var + 1e-3), mean


@program(lambda r: (r.normal(2003, 251), r.chance(0.1, 2003, 251)))
def robust_scale(x, missing):
    """Medians that skip what is missing, clipped and scaled columns, ranks."""
    filled = jnp.where(missing, jnp.nan, x)
    centre = jnp.nanmedian(filled, 0)
    spread = jnp.nanmedian(jnp.abs(filled - centre), 0) * 1.4826
    z = jnp.clip((jnp.where(missing, centre, x) - centre) / (spread + 1e-9), -3, 3)
    rank = jnp.argsort(jnp.argsort(z, 0), 0) / (x.shape[0] - 1)
    return z, rank - rank.mean(0), missing.sum(0)


@program(lambda r: (r.normal(64, 20001), r.uniform(64, low=0.01, high=0.2)))
def moving_averages(price, share):
    """An exponential average along a scan in blocks, differences, signs that change."""
    decay = 1 - share[:, None]

    def join(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    weights = jnp.broadcast_to(decay, price.shape)
    _, slow = lax.associative_scan(join, (weights, share[:, None] * price), axis=1)
    above = price > slow
    crossed = above[:, 1:] != above[:, :-1]
    gain = jnp.where(above[:, :-1], price[:, 1:] - price[:, :-1], 0.0)
    return slow, crossed.sum(1), gain.sum(1), gain.std(1)


@program(lambda r: (r.normal(3, 127, 127, 64), r.normal(64, 3, scale=0.2), r.normal(3)))
def radiance(samples, colour, light):
    """Densities along rays to weights by running products, and the colours that are seen."""
    density = jax.nn.softplus(samples[..., :1].mean(-1))
    rgb = jax.nn.sigmoid(samples @ colour)
    alpha = 1 - jnp.exp(-0.05 * density)
    clear = jnp.cumprod(1 - alpha + 1e-10, axis=2)
    weight = alpha * jnp.pad(clear, ((0, 0), (0, 0), (1, 0)), constant_values=1.0)[:, :, :-1]
    seen = (weight[..., None] * rgb).sum(2)
    return seen * jax.nn.sigmoid(light), weight.sum(2), (weight * jnp.arange(127.0)).sum(2)
