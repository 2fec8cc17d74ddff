"""Sound: features, quantisation, alignment."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.everyday.table import program


@program(lambda r: (r.normal(16, 311, 400), r.uniform(201, 80)))
def log_mel(frames, mel):
    """Windowed frames to normalised logarithms of mel bands."""
    window = 0.5 - 0.5 * jnp.cos(2 * jnp.pi * jnp.arange(400) / 400)
    emphasised = frames - 0.97 * jnp.pad(frames, ((0, 0), (0, 0), (1, 0)))[..., :-1]
    power = jnp.abs(jnp.fft.rfft(emphasised * window)) ** 2
    x = jnp.log(jnp.maximum(power @ mel, 1e-10))
    mean, std = x.mean(1, keepdims=True), x.std(1, keepdims=True)
    return (x - mean) / (std + 1e-5)


@program(
    lambda r: (
        r.normal(48, 411, 80),
        r.integers(48, 2, high=411),
        r.integers(48, 2, high=80),
        r.key(),
    )
)
def masked_spectra(x, time, band, key):
    """Stripes of time and of bands set to the mean, and noise."""
    t, f = jnp.arange(x.shape[1])[:, None], jnp.arange(x.shape[2])[None]
    mean = x.mean((1, 2), keepdims=True)
    for stripe in range(2):
        at, low = time[:, stripe, None, None], band[:, stripe, None, None]
        x = jnp.where((t >= at) & (t < at + 40) | (f >= low) & (f < low + 15), mean, x)
    return x + 0.1 * jax.random.normal(key, x.shape)


@program(lambda r: (r.integers(128, 16000, high=32767, dtype=np.int16, low=-32768),))
def mu_law(wave):
    """There and back, with the error of each recording."""
    x = wave.astype(jnp.float32) / 32768
    y = jnp.sign(x) * jnp.log1p(255 * jnp.abs(x)) / jnp.log1p(255.0)
    code = jnp.floor((y + 1) / 2 * 255 + 0.5).astype(jnp.uint8)
    back = 2 * code.astype(jnp.float32) / 255 - 1
    again = jnp.sign(back) / 255 * (256.0 ** jnp.abs(back) - 1)
    return code, jnp.sqrt(((again - x) ** 2).mean(1))


@program(lambda r: (r.normal(151, 32, 61), r.integers(32, 25, high=61, low=1)))
def ctc_alphas(logits, labels):
    """The forward pass of CTC: logarithms of sums along a scan."""
    logp = jax.nn.log_softmax(logits)
    batch, count = labels.shape
    ext = jnp.zeros((batch, 2 * count + 1), jnp.int32).at[:, 1::2].set(labels)
    skip = (ext[:, 2:] != 0) & (ext[:, 2:] != ext[:, :-2])
    start = jnp.full(ext.shape, -1e30).at[:, 0].set(0.0)

    def step(alpha, frame):
        one = jnp.pad(alpha[:, :-1], ((0, 0), (1, 0)), constant_values=-1e30)
        two = jnp.where(skip, alpha[:, :-2], -1e30)
        two = jnp.pad(two, ((0, 0), (2, 0)), constant_values=-1e30)
        new = jnp.logaddexp(jnp.logaddexp(alpha, one), two)
        new = new + jnp.take_along_axis(frame, ext, 1)
        return new, None

    alpha, _ = lax.scan(step, start, logp)
    return -jnp.logaddexp(alpha[:, -1], alpha[:, -2]).mean()


@program(
    lambda r: (r.normal(12, 499, 96), r.normal(9, 96, 192, scale=0.03), *map(r.normal, (96, 96)))
)
def gated_convolution(x, kernel, scale, shift):
    """A convolution over time, a gate, a norm of channels and the residual."""
    y = lax.conv_general_dilated(x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
    a, b = jnp.split(y, 2, -1)
    y = a * jax.nn.sigmoid(b)
    y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
    return x + jax.nn.relu(y * scale + shift)
