"""Sound: features, layers of recognisers and vocoders, transducers, codes, speakers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


def _frames(wave, length, hop):
    count = (wave.shape[-1] - length) // hop + 1
    return wave[:, jnp.arange(count)[:, None] * hop + jnp.arange(length)]


@template
def mel_features(draw: Draw):
    """Emphasis, frames, a window, power, mel bands, normalised over the valid frames."""
    n, rate = draw.size(8, 64), draw.choice(160, 200, 256)
    length, bands = draw.choice(400, 512, 640), draw.choice(40, 80, 128)
    samples = length + rate * draw.size(100, 800) + draw.size(1, 90)
    whole, dtype = draw.choice(True, False), draw.dtype("float32", "int16")

    def fun(wave, lengths, mel):
        x = wave.astype(jnp.float32)
        x = x / 32768 if dtype == np.int16 else x
        x = jnp.concatenate([x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]], 1)
        frames = _frames(x, length, rate)
        frames = (frames - frames.mean(-1, keepdims=True)) * jnp.hanning(length)
        spectrum = jnp.fft.rfft(frames)
        power = spectrum.real**2 + spectrum.imag**2
        y = jnp.log(jnp.maximum(power @ mel, 1e-10))
        valid = (jnp.arange(y.shape[1]) < ((lengths - length) // rate + 1)[:, None])[..., None]
        axes = (1, 2) if whole else 1
        count = jnp.where(valid, jnp.ones_like(y), 0).sum(axes, keepdims=True)
        mean = jnp.where(valid, y, 0).sum(axes, keepdims=True) / count
        var = jnp.where(valid, (y - mean) ** 2, 0).sum(axes, keepdims=True) / count
        return jnp.where(valid, (y - mean) * lax.rsqrt(var + 1e-5), 0)

    if dtype == np.int16:
        wave = draw.integers(n, samples, low=-9000, high=9000, dtype="int16")
    else:
        wave = draw.normal(n, samples, scale=0.1)
    lengths = draw.integers(n, low=samples // 2 + length // 2, high=samples + 1)
    return fun, (wave, lengths, draw.uniform(length // 2 + 1, bands, high=0.02))


@template
def energy_normalisation(draw: Draw):
    """Energies over their running average, compressed with an exponent per channel."""
    layout_first = draw.choice(True, False)
    n, t, c = draw.size(16, 128), draw.size(128, 1500), draw.choice(40, 64, 80, 128)
    axis = 2 if layout_first else 1

    def fun(energy, smooth, alpha, delta, root):
        def each(v):
            return v[:, None] if layout_first else v

        s = jax.nn.sigmoid(each(smooth))
        keep = jnp.broadcast_to(1 - s, energy.shape)
        first = lax.broadcasted_iota(jnp.int32, energy.shape, axis) == 0
        fresh = jnp.where(first, energy, s * energy)

        def combine(left, right):
            return left[0] * right[0], right[0] * left[1] + right[1]

        _, average = lax.associative_scan(combine, (keep, fresh), axis=axis)
        gain = jnp.exp(-each(alpha) * jnp.log(average + 1e-6))
        power = 1 / jnp.maximum(each(root), 1)
        d = jnp.abs(each(delta)) + 0.1
        return (energy * gain + d) ** power - d**power

    shape = (n, c, t) if layout_first else (n, t, c)
    energy = draw.uniform(*shape, high=4)
    vectors = (draw.normal(c, mean=-3), draw.uniform(c, low=0.5, high=1), draw.normal(c, mean=2))
    return fun, (energy, *vectors, draw.uniform(c, low=1, high=3))


@template
def relative_attention(draw: Draw):
    """Attention with terms by content and by relative position, which is shifted into place."""
    n, t, heads = draw.size(8, 32), draw.odd_size(65, 512), draw.choice(4, 8)
    depth, dtype = draw.choice(32, 64), draw.dtype("float32", "bfloat16")

    def fun(q, k, v, places, u, w, lengths):
        content = jnp.einsum("nthd,nshd->nhts", q + u, k)
        position = jnp.einsum("nthd,phd->nhtp", q + w, places)
        padded = jnp.pad(position, ((0, 0), (0, 0), (0, 0), (1, 0)))
        shifted = padded.reshape(n, heads, 2 * t, t)[:, :, 1:].reshape(n, heads, t, 2 * t - 1)
        s = (content + shifted[..., :t]).astype(jnp.float32) / np.sqrt(depth)
        valid = (jnp.arange(t) < lengths[:, None])[:, None, None]
        p = jnp.where(valid, jax.nn.softmax(jnp.where(valid, s, -1e30)), 0)
        return jnp.einsum("nhts,nshd->nthd", p.astype(dtype), v).reshape(n, t, -1)

    q, k, v = (draw.normal(n, t, heads, depth, dtype=dtype) for _ in range(3))
    places = draw.normal(2 * t - 1, heads, depth, dtype=dtype)
    u, w = (draw.normal(heads, depth, dtype=dtype, scale=0.1) for _ in range(2))
    return fun, (q, k, v, places, u, w, draw.lengths(n, t))


@template
def subsampled_features(draw: Draw):
    """Two convolutions with strides over time and bands, a dense layer, sinusoids added."""
    n, t, bands = draw.size(2, 16), draw.odd_size(101, 801, 15), draw.choice(40, 80)
    c, wide = draw.choice(32, 64, 96), draw.choice(144, 256)
    act = draw.choice(jax.nn.relu, jax.nn.silu)

    def fun(x, first, second, dense):
        y = x[..., None]
        for kernel in (first, second):
            y = lax.conv_general_dilated(
                y, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            y = act(y)
        y = y.reshape(*y.shape[:2], -1) @ dense["w"] + dense["b"]
        rate = jnp.exp(-jnp.log(10000.0) * jnp.arange(0, wide, 2) / wide)
        angle = jnp.arange(y.shape[1])[:, None] * rate
        places = jnp.stack([jnp.sin(angle), jnp.cos(angle)], -1).reshape(y.shape[1], wide)
        return y * np.sqrt(wide) + places

    kernels = draw.normal(3, 3, 1, c, scale=0.3), draw.normal(3, 3, c, c, scale=0.06)
    return fun, (draw.normal(n, t, bands), *kernels, *draw.layers(bands // 4 * c, wide))


@template
def collapsed_labels(draw: Draw):
    """The best label of each frame, repetitions and blanks left out, packed to the front."""
    n, t, labels = draw.size(8, 64), draw.size(100, 1500), draw.odd_size(29, 501)
    dtype = draw.dtype()

    def fun(logits, lengths):
        log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
        best, score = log_p.argmax(-1).astype(jnp.int32), log_p.max(-1)
        before = jnp.pad(best[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
        valid = jnp.arange(t) < lengths[:, None]
        kept = valid & (best != before) & (best != 0)
        place = jnp.where(kept, jnp.cumsum(kept, 1) - 1, t)
        rows = jnp.arange(n)[:, None]
        packed = jnp.zeros((n, t), jnp.int32).at[rows, place].set(best, mode="drop")
        total = jnp.where(valid, score, 0).sum(1)
        return packed, kept.sum(1), total / lengths

    return fun, (draw.normal(n, t, labels, dtype=dtype, scale=3), draw.lengths(n, t))


@template
def transducer_joint(draw: Draw):
    """Every frame with every label: a hidden layer, log-probabilities of blanks and labels."""
    n, t, u = draw.size(4, 16), draw.size(40, 160), draw.odd_size(11, 61)
    c, labels = draw.choice(128, 256, 320), draw.odd_size(101, 513)
    dtype = draw.dtype("float32", "bfloat16")

    def fun(encoded, predicted, out, label):
        h = jnp.tanh(encoded[:, :, None] + predicted[:, None])
        logits = (h @ out["w"] + out["b"]).astype(jnp.float32)
        norm = jax.nn.logsumexp(logits, -1)
        index = jnp.broadcast_to(label[:, None, :, None], (n, t, u - 1, 1))
        said = jnp.take_along_axis(logits[:, :, :-1], index, -1)[..., 0]
        return logits[..., 0] - norm, said - norm[:, :, :-1]

    encoded, predicted = (draw.normal(n, k, c, dtype=dtype) for k in (t, u))
    [out] = draw.layers(c, labels, dtype=dtype)
    return fun, (encoded, predicted, out, draw.integers(n, u - 1, low=1, high=labels))


@template
def spectral_losses(draw: Draw):
    """Magnitudes at several resolutions: convergence, differences of logarithms, the gradient."""
    n, samples = draw.size(16, 128), draw.size(8192, 65536, 1, 1200)
    sizes = draw.choice((512, 1024), (256, 600, 1024), (480,))

    def loss(made, real):
        total = 0.0
        for size in sizes:
            window = jnp.hanning(size + 1)[:-1]
            a, b = (
                jnp.sqrt(jnp.maximum(f.real**2 + f.imag**2, 1e-7))
                for f in (jnp.fft.rfft(_frames(x, size, size // 4) * window) for x in (made, real))
            )
            ratio = jnp.sqrt(((b - a) ** 2).sum((1, 2)) / (b**2).sum((1, 2)))
            total = total + ratio.mean() + jnp.abs(jnp.log(a) - jnp.log(b)).mean()
        return total / len(sizes)

    pair = (draw.normal(n, samples, scale=0.2) for _ in range(2))
    return jax.value_and_grad(loss), tuple(pair)


@template
def residual_codes(draw: Draw):
    """Vectors coded by several books, each for what the one before left, with gradients through."""
    rows, c = draw.size(1000, 16000), draw.choice(16, 32, 64)
    codes, books = draw.choice(256, 512, 1000), draw.choice(2, 3, 4)

    def loss(x, book, wanted):
        left, total, commitment, found = x, jnp.zeros_like(x), 0.0, []
        for one in book:
            far = (left**2).sum(1, keepdims=True) - 2 * left @ one.T + (one**2).sum(1)
            index = far.argmin(1)
            code = one[index]
            commitment = commitment + ((left - lax.stop_gradient(code)) ** 2).mean()
            left, total = left - lax.stop_gradient(code), total + code
            found.append(index)
        through = x + lax.stop_gradient(total - x)
        return ((through - wanted) ** 2).mean() + 0.25 * commitment, jnp.stack(found)

    args = (draw.normal(rows, c), draw.normal(books, codes, c), draw.normal(rows, c))
    return jax.value_and_grad(loss, has_aux=True), args


@template
def periodic_vocoder_block(draw: Draw):
    """Periodic activations around dilated convolutions whose weights are normalised."""
    n, c, t = draw.size(1, 8), draw.choice(32, 64, 128), draw.odd_size(2001, 16001, 64)
    window, dilation = draw.choice(3, 7), draw.choice(1, 3, 9)

    def conv(x, v, g, dilation):
        w = g * v / jnp.sqrt((v**2).sum((1, 2), keepdims=True))
        return lax.conv_general_dilated(
            *(x, w, (1,), "SAME"),
            rhs_dilation=(dilation,),
            dimension_numbers=("NCH", "OIH", "NCH"),
        )

    def snake(x, alpha):
        a = jnp.exp(alpha)[:, None]
        return x + jnp.sin(a * x) ** 2 / (a + 1e-9)

    def fun(x, alphas, v, g):
        y = conv(snake(x, alphas[0]), v[0], g[0], dilation)
        return x + conv(snake(y, alphas[1]), v[1], g[1], 1)

    v = draw.normal(2, c, c, window)
    return fun, (draw.normal(n, c, t), draw.normal(2, c), v, draw.uniform(2, c, 1, 1))


@template
def speakers(draw: Draw):
    """Weighted means and deviations over time, an embedding, a loss with an angular margin."""
    n, t, c = draw.size(16, 64), draw.size(100, 400), draw.choice(128, 256, 384)
    people, width = draw.size(500, 6000), draw.choice(128, 192)
    margin, scale = draw.number(0.1, 0.4), draw.number(16, 32)

    def loss(params, x, lengths, who):
        valid = (jnp.arange(t) < lengths[:, None])[..., None]
        hidden = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
        score = hidden @ params["score"]["w"] + params["score"]["b"]
        a = jax.nn.softmax(jnp.where(valid, score, -1e9), 1)
        mean = (a * x).sum(1)
        deviation = jnp.sqrt(jnp.maximum((a * x**2).sum(1) - mean**2, 1e-6))
        e = jnp.concatenate([mean, deviation], -1) @ params["embed"]
        e = e / jnp.linalg.norm(e, axis=-1, keepdims=True)
        w = params["people"] / jnp.linalg.norm(params["people"], axis=0)
        cosine = jnp.clip(e @ w, -1 + 1e-6, 1 - 1e-6)
        hot = jax.nn.one_hot(who, people)
        turned = jnp.cos(jnp.arccos(cosine) + margin)
        logits = scale * jnp.where(hot > 0, turned, cosine)
        return -(hot * jax.nn.log_softmax(logits)).sum(-1).mean()

    hidden, score = draw.layers(c, 128, c)
    embed, every = draw.weight(2 * c, width), draw.weight(width, people)
    params = {"hidden": hidden, "score": score, "embed": embed, "people": every}
    args = (params, draw.normal(n, t, c), draw.lengths(n, t), draw.integers(n, high=people))
    return jax.value_and_grad(loss), args


@template
def noise_suppression(draw: Draw):
    """Spectra with complex masks, back to overlapping frames that are added, and their level."""
    n, frames, size = draw.size(4, 32), draw.size(100, 600), draw.choice(320, 512)
    mode = draw.choice("bounded", "polar")
    hop = size // 2

    def fun(wave, real, imag):
        window = jnp.sin(jnp.pi * (jnp.arange(size) + 0.5) / size)
        spectrum = jnp.fft.rfft(_frames(wave, size, hop) * window)
        if mode == "bounded":
            mask = lax.complex(jnp.tanh(real), jnp.tanh(imag))
        else:
            mask = jax.nn.sigmoid(real) * jnp.exp(1j * jnp.pi * jnp.tanh(imag))
        made = jnp.fft.irfft(spectrum * mask, size) * window
        left = jnp.pad(made[..., :hop], ((0, 0), (0, 1), (0, 0)))
        right = jnp.pad(made[..., hop:], ((0, 0), (1, 0), (0, 0)))
        out = (left + right).reshape(n, -1)
        level = 10 * jnp.log10((out**2).mean(1) + 1e-10)
        return out / jnp.maximum(jnp.abs(out).max(1, keepdims=True), 1), level

    masks = (draw.normal(n, frames, hop + 1) for _ in range(2))
    return fun, (draw.normal(n, (frames + 1) * hop, scale=0.1), *masks)
