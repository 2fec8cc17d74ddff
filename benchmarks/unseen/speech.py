"""Sound: spectrograms, augmentation, phase reconstruction, dilated convolutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.unseen.inputs import Draw, Program


def framed(signal: Any, size: int, hop: int) -> Any:
    """Overlapping frames of the last axis."""
    count = 1 + (signal.shape[-1] - size) // hop
    places = jnp.arange(count)[:, None] * hop + jnp.arange(size)[None, :]
    return signal[..., places]


def log_mel(sound: Any, filters: Any) -> Any:
    """Log-mel features of int16 sound with pre-emphasis, normalized per utterance."""
    x = sound.astype(jnp.float32) / 32768.0
    x = jnp.concatenate([x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]], axis=1)
    frames = framed(x, 400, 160) * jnp.hanning(400)
    power = jnp.abs(jnp.fft.rfft(frames, n=512)) ** 2
    features = jnp.log(jnp.maximum(power @ filters, 1e-10))
    mean = jnp.mean(features, axis=1, keepdims=True)
    std = jnp.std(features, axis=1, keepdims=True)
    return (features - mean) / (std + 1e-5)


def mel_spectrogram() -> Program:
    draw = Draw(21)
    sound = draw.integers(32, 160000, low=-20000, high=20000, dtype=np.int16)
    middle = np.linspace(3, 250, 80)[None, :]
    filters = np.maximum(0, 1 - np.abs(np.arange(257)[:, None] - middle) / 5).astype(np.float32)
    return log_mel, (sound, filters)


def augmented(features: Any, lengths: Any, key: Any) -> Any:
    """SpecAugment: two masks of mel channels and two of frames, and additive noise."""
    batch, frames, channels = features.shape
    keys = jax.random.split(jax.random.wrap_key_data(key), 5)

    def masks(key: Any, extent: int, widest: int) -> Any:
        width_key, start_key = jax.random.split(key)
        width = jax.random.randint(width_key, (batch, 2, 1), 0, widest)
        start = jax.random.randint(start_key, (batch, 2, 1), 0, extent - widest)
        place = jnp.arange(extent)
        return jnp.any((place >= start) & (place < start + width), axis=1)

    hidden = masks(keys[0], channels, 27)[:, None, :] | masks(keys[1], frames, 100)[:, :, None]
    noisy = features + 0.1 * jax.random.normal(keys[2], features.shape)
    mean = jnp.mean(features, axis=(1, 2), keepdims=True)
    heard = jnp.arange(frames)[None, :, None] < lengths[:, None, None]
    return jnp.where(heard, jnp.where(hidden, mean, noisy), 0.0)


def spectrum_augmentation() -> Program:
    draw = Draw(22)
    lengths = draw.integers(64, low=500, high=1500)
    return augmented, (draw.normal(64, 1499, 80), lengths, draw.key())


def convolution_module(params: Any, x: Any) -> Any:
    """A conformer's convolution module: norm, gated unit, depthwise convolution, swish."""
    mean = jnp.mean(x, axis=-1, keepdims=True)
    var = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    y = (x - mean) * lax.rsqrt(var + 1e-5) * params["scale"] + params["bias"]
    a, gate = jnp.split(y @ params["up"], 2, axis=-1)
    y = a * jax.nn.sigmoid(gate)
    y = lax.conv_general_dilated(
        y,
        params["depthwise"],
        (1,),
        "SAME",
        dimension_numbers=("NWC", "WIO", "NWC"),
        feature_group_count=y.shape[-1],
    )
    y = (y - params["mean"]) * lax.rsqrt(params["var"] + 1e-3) * params["gamma"] + params["beta"]
    return x + jax.nn.swish(y) @ params["down"]


def conformer_convolution() -> Program:
    draw = Draw(23)
    width = 144
    names = ("scale", "bias", "mean", "gamma", "beta")
    params = {name: draw.normal(width, scale=0.2) for name in names}
    params["var"] = draw.uniform(width, low=0.5, high=1.5)
    params["up"] = draw.weight(width, 2 * width)
    params["down"] = draw.weight(width, width)
    params["depthwise"] = draw.normal(31, 1, width, scale=0.2)
    return convolution_module, (params, draw.normal(8, 499, width))


def reconstructed(magnitude: Any, angle: Any) -> Any:
    """Phases from magnitudes by 16 fast Griffin-Lim iterations over frames with half overlap."""
    size = 2 * (magnitude.shape[-1] - 1)
    window = jnp.sqrt(jnp.hanning(size + 1)[:-1])

    def project(spectrum: Any) -> Any:
        frames = jnp.fft.irfft(spectrum) * window
        halves = frames.reshape(*frames.shape[:-1], 2, size // 2)
        first = jnp.pad(halves[..., 0, :], ((0, 0), (0, 1), (0, 0)))
        second = jnp.pad(halves[..., 1, :], ((0, 0), (1, 0), (0, 0)))
        added = first + second
        again = jnp.concatenate([added[:, :-1], added[:, 1:]], axis=-1)
        return jnp.fft.rfft(again * window)

    def step(_: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        spectrum, before = carry
        projected = project(magnitude * spectrum)
        moved = projected + 0.99 * (projected - before)
        return moved / (jnp.abs(moved) + 1e-9), projected

    start = jnp.exp(1j * angle)
    spectrum, _ = lax.fori_loop(0, 16, step, (start, jnp.zeros_like(start)))
    return jnp.fft.irfft(magnitude * spectrum) * window


def griffin_lim() -> Program:
    draw = Draw(24)
    magnitude = np.abs(draw.normal(4, 187, 257))
    return reconstructed, (magnitude, draw.uniform(4, 187, 257, low=-np.pi, high=np.pi))


def wavenet(params: Any, sound: Any) -> Any:
    """Mu-law codes through six gated dilated causal convolutions; the loss of the next code."""
    x = sound.astype(jnp.float32) / 32768.0
    coded = jnp.sign(x) * jnp.log1p(255.0 * jnp.abs(x)) / jnp.log1p(255.0)
    codes = ((coded + 1.0) * 127.5 + 0.5).astype(jnp.uint8)
    h, skip = params["embed"][codes], 0.0
    for n, layer in enumerate(params["layers"]):
        y = lax.conv_general_dilated(
            h,
            layer["conv"],
            (1,),
            [(2**n, 0)],
            rhs_dilation=(2**n,),
            dimension_numbers=("NWC", "WIO", "NWC"),
        )
        signal, gate = jnp.split(y, 2, axis=-1)
        y = jnp.tanh(signal) * jax.nn.sigmoid(gate)
        skip = skip + y @ layer["skip"]
        h = h + y @ layer["out"]
    log_p = jax.nn.log_softmax(jax.nn.relu(skip) @ params["last"])
    wanted = codes[:, 1:, None].astype(jnp.int32)
    return -jnp.mean(jnp.take_along_axis(log_p[:, :-1], wanted, axis=-1))


def mu_law_wavenet() -> Program:
    draw = Draw(26)
    layer = lambda: {  # noqa: E731
        "conv": draw.normal(2, 32, 64, scale=0.15),
        "skip": draw.weight(32, 64),
        "out": draw.weight(32, 32),
    }
    params: dict[str, Any] = {"embed": draw.normal(256, 32), "last": draw.weight(64, 256)}
    params["layers"] = [layer() for _ in range(6)]
    sound = draw.integers(2, 8009, low=-25000, high=25000, dtype=np.int16)
    return wavenet, (params, sound)
