"""Images and signals without networks: colours, filters, transforms, resampling, detection."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.ndimage import map_coordinates

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


def _cosines(n):
    k, i = np.arange(n)[:, None], np.arange(n)
    basis = np.sqrt(2 / n) * np.cos(np.pi * (2 * i + 1) * k / (2 * n))
    basis[0] /= np.sqrt(2)
    return jnp.asarray(basis, jnp.float32)


@template
def block_compression(draw: Draw):
    """Bytes to luminance and halved chroma, cosines of blocks, quantised, and the way back."""
    n, tall, wide = draw.size(1, 16), draw.size(8, 60), draw.size(8, 60)
    layout, side, quality = draw.layout(), 8, draw.number(0.3, 3)
    h, w = 16 * tall, 16 * wide

    def fun(image, table):
        rgb = jnp.moveaxis(image, layout.channels, 1).astype(jnp.float32)
        r, g, b = rgb[:, 0], rgb[:, 1], rgb[:, 2]
        y = 0.299 * r + 0.587 * g + 0.114 * b - 128
        chroma = jnp.stack([-0.1687 * r - 0.3313 * g + 0.5 * b, 0.5 * r - 0.4187 * g - 0.0813 * b])
        chroma = chroma.reshape(2, n, h // 2, 2, w // 2, 2).mean((3, 5))
        basis = _cosines(side)

        def coded(plane, q):
            *lead, ph, pw = plane.shape
            blocks = plane.reshape(*lead, ph // side, side, pw // side, side)
            f = jnp.einsum("ui,...aibj,vj->...abuv", basis, blocks, basis)
            levels = jnp.round(f / (quality * q)).astype(jnp.int16)
            back = jnp.einsum("ui,...abuv,vj->...aibj", basis, levels * (quality * q), basis)
            return levels, back.reshape(plane.shape)

        levels, y2 = coded(y, table[0])
        chroma_levels, c2 = coded(chroma, table[1])
        c2 = jnp.repeat(jnp.repeat(c2, 2, 2), 2, 3)
        y2 = y2 + 128
        out = jnp.stack(
            [y2 + 1.402 * c2[1], y2 - 0.3441 * c2[0] - 0.7141 * c2[1], y2 + 1.772 * c2[0]], 1
        )
        out = jnp.clip(jnp.round(out), 0, 255).astype(jnp.uint8)
        return jnp.moveaxis(out, 1, layout.channels), levels, (chroma_levels != 0).mean()

    image = draw.integers(*layout.shape(n, 3, h, w), high=256, dtype="uint8")
    return fun, (image, draw.uniform(2, side, side, low=8, high=60))


@template
def bilateral_filter(draw: Draw):
    """Averages over a window, weighed by distance and by likeness of colours."""
    n, h, w = draw.size(8, 48), draw.size(96, 720), draw.odd_size(97, 721)
    radius, colours, dtype = (
        draw.choice(1, 2),
        draw.choice(1, 3),
        draw.dtype("uint8", "float32", "uint16"),
    )
    near, alike = draw.number(0.8, 3), draw.number(0.05, 0.3)
    top = {"uint8": 255, "uint16": 65535}.get(dtype.name, 1)

    def fun(image):
        x = image.astype(jnp.float32) / top
        p = jnp.pad(x, ((0, 0), (radius, radius), (radius, radius), (0, 0)), mode="reflect")
        total, norm = jnp.zeros_like(x), jnp.zeros(x.shape[:3])
        for i in range(2 * radius + 1):
            for j in range(2 * radius + 1):
                other = p[:, i : i + h, j : j + w]
                apart = ((other - x) ** 2).sum(-1)
                far = (i - radius) ** 2 + (j - radius) ** 2
                weight = jnp.exp(-far / (2 * near**2) - apart / (2 * alike**2))
                total, norm = total + weight[..., None] * other, norm + weight
        y = total / norm[..., None]
        return (y if top == 1 else jnp.round(y * top)).astype(dtype)

    if top == 1:
        return fun, (draw.uniform(n, h, w, colours),)
    return fun, (draw.integers(n, h, w, colours, high=top + 1, dtype=dtype),)


@template
def equalised_tiles(draw: Draw):
    """Histograms of tiles, clipped and summed up, become curves that every pixel goes through."""
    n, tiles, side = draw.size(32, 256), draw.choice(2, 4, 8), draw.odd_size(17, 65)
    limit, bins = draw.number(1.5, 4), 256
    whole = tiles * side

    def fun(image):
        t = image.reshape(n, tiles, side, tiles, side).transpose(0, 1, 3, 2, 4)
        t = t.reshape(n * tiles * tiles, side * side).astype(jnp.int32)
        place = t + bins * jnp.arange(t.shape[0])[:, None]
        counts = jnp.zeros(t.shape[0] * bins, jnp.int32).at[place.ravel()].add(1)
        counts = counts.reshape(-1, bins).astype(jnp.float32)
        most = limit * side * side / bins
        over = jnp.maximum(counts - most, 0).sum(1, keepdims=True)
        counts = jnp.minimum(counts, most) + over / bins
        curve = jnp.cumsum(counts, 1)
        low = curve.min(1, keepdims=True)
        curve = (curve - low) / jnp.maximum(side * side - low, 1)
        y = jnp.take_along_axis(curve, t, 1)
        out = jnp.clip(jnp.round(255 * y), 0, 255).astype(jnp.uint8)
        out = out.reshape(n, tiles, tiles, side, side).transpose(0, 1, 3, 2, 4)
        return out.reshape(n, whole, whole), curve.astype(jnp.bfloat16)

    image = draw.leaf((n, whole, whole), "uint8", lambda r, s: np.clip(r.normal(90, 30, s), 0, 255))
    return fun, (image,)


@template
def turned_hues(draw: Draw):
    """Colours to hue, saturation and value; hues turn, saturations scale; and the way back."""
    n, h, w, layout = draw.size(8, 64), draw.size(64, 640), draw.odd_size(65, 641), draw.layout()
    dtype = draw.dtype("uint8", "float32", "float16")

    def fun(image, turn, factor):
        x = jnp.moveaxis(image, layout.channels, 0).astype(jnp.float32)
        x = x / 255 if dtype == np.uint8 else x
        r, g, b = x
        v, low = x.max(0), x.min(0)
        d = v - low
        safe = jnp.where(d > 0, d, 1)
        hue = jnp.where(
            v == r, (g - b) / safe, jnp.where(v == g, 2 + (b - r) / safe, 4 + (r - g) / safe)
        )
        hue = jnp.mod(jnp.where(d > 0, hue, 0) / 6 + turn[:, None, None], 1)
        s = jnp.clip(jnp.where(v > 0, d / jnp.where(v > 0, v, 1), 0) * factor[:, None, None], 0, 1)
        sector = hue * 6
        outs = []
        for shift in (5, 3, 1):
            k = jnp.mod(shift + sector, 6)
            outs.append(v - v * s * jnp.clip(jnp.minimum(k, 4 - k), 0, 1))
        y = jnp.stack(outs, layout.channels)
        return jnp.round(y * 255).astype(dtype) if dtype == np.uint8 else y.astype(dtype)

    shape = layout.shape(n, 3, h, w)
    if dtype == np.uint8:
        image = draw.integers(*shape, high=256, dtype="uint8")
    else:
        image = draw.uniform(*shape, dtype=dtype)
    return fun, (image, draw.uniform(n, low=-0.2, high=0.2), draw.uniform(n, low=0.5, high=1.5))


@template
def resized_and_sharpened(draw: Draw):
    """Images of another size, less a blur of themselves, held between local extremes."""
    n, h, w = draw.size(8, 96), draw.odd_size(61, 401), draw.size(60, 400)
    new_h, new_w = draw.size(48, 600), draw.odd_size(49, 601)
    how, amount, layout = (
        draw.choice("lanczos3", "cubic", "linear"),
        draw.number(0.3, 1.5),
        draw.layout(),
    )

    def fun(image):
        x = image.astype(jnp.float32) / 255
        y = jax.image.resize(x, layout.shape(n, 3, new_h, new_w), how)
        rows, columns = layout.height_and_width
        k = jnp.array([1, 4, 6, 4, 1]) / 16

        def blurred(z, axis):
            size = z.shape[axis]
            pad = [(2, 2) if a == axis else (0, 0) for a in range(4)]
            p = jnp.pad(z, pad, mode="edge")
            return sum(k[i] * lax.slice_in_dim(p, i, i + size, axis=axis) for i in range(5))

        sharp = y + amount * (y - blurred(blurred(y, rows), columns))
        window = tuple(3 if a in (rows, columns) else 1 for a in range(4))
        high = lax.reduce_window(y, -jnp.inf, lax.max, window, (1,) * 4, "SAME")
        low = lax.reduce_window(y, jnp.inf, lax.min, window, (1,) * 4, "SAME")
        return jnp.round(255 * jnp.clip(jnp.clip(sharp, low, high), 0, 1)).astype(jnp.uint8)

    return fun, (draw.integers(*layout.shape(n, 3, h, w), high=256, dtype="uint8"),)


@template
def deblurred(draw: Draw):
    """A known blur is undone in Fourier space, regularised by a Laplacian, borders tapered."""
    n, h, w = draw.size(8, 96), draw.size(64, 700, 2), draw.size(64, 700, 2)
    strength = draw.number(1e-3, 1e-1)

    def fun(image, kernel):
        size = kernel.shape[0]
        taper_h, taper_w = jnp.hanning(h) ** 0.25, jnp.hanning(w) ** 0.25
        taper = taper_h[:, None] * taper_w
        mean = image.mean((1, 2), keepdims=True)
        x = taper * image + (1 - taper) * mean
        k = (
            jnp.zeros((h, w))
            .at[:size, :size]
            .set(jax.nn.softmax(kernel.ravel()).reshape(size, size))
        )
        k = jnp.roll(k, (-(size // 2), -(size // 2)), (0, 1))
        lap = jnp.zeros((h, w)).at[0, 0].set(4).at[0, 1].set(-1).at[1, 0].set(-1)
        lap = lap.at[0, -1].set(-1).at[-1, 0].set(-1)
        fk, fl, fx = jnp.fft.rfft2(k), jnp.fft.rfft2(lap), jnp.fft.rfft2(x)
        y = jnp.fft.irfft2(
            jnp.conj(fk) * fx / (jnp.abs(fk) ** 2 + strength * jnp.abs(fl) ** 2), (h, w)
        )
        again = jnp.fft.irfft2(jnp.fft.rfft2(y) * fk, (h, w))
        return jnp.clip(y, 0, 1), ((again - x) ** 2).mean((1, 2))

    window = draw.choice(5, 9, 15)
    return fun, (draw.uniform(n, h, w), draw.normal(window, window))


@template
def filter_bank(draw: Draw):
    """A prototype filter in branches, a transform across them, power in bands over time."""
    n, branches, taps = draw.size(32, 256), draw.choice(16, 32, 64), draw.choice(4, 8)
    frames, dtype = draw.size(200, 4000), draw.dtype("float32", "int16")
    average = draw.choice(4, 8)
    frames = -(-frames // average) * average

    def fun(signal, window):
        x = signal.astype(jnp.float32).reshape(n, frames + taps - 1, branches)
        y = sum(x[:, k : k + frames] * window[k] for k in range(taps))
        f = jnp.fft.rfft(y)
        power = f.real**2 + f.imag**2
        power = power.reshape(n, frames // average, average, -1).mean(2)
        floor = jnp.median(power, 1, keepdims=True)
        level = 10 * jnp.log10(power / (floor + 1e-9) + 1e-9)
        spread = (power**2).mean(1) / (power.mean(1) ** 2 + 1e-9)
        return level.astype(jnp.bfloat16), spread, level > 10

    length = (frames + taps - 1) * branches
    if dtype == np.int16:
        signal = draw.integers(n, length, low=-3000, high=3000, dtype="int16")
    else:
        signal = draw.normal(n, length)
    return fun, (signal, draw.normal(taps, branches, scale=0.2))


@template
def envelopes(draw: Draw):
    """Analytic signals: envelopes, unwrapped phases, frequencies, locked phases of channels."""
    channels, t, axis = draw.size(128, 2048), draw.size(512, 8192, 2), draw.choice(0, 1)
    low, high = draw.number(0.02, 0.1), draw.number(0.15, 0.4)

    def fun(x):
        x = x if axis else x.T
        f = jnp.fft.fft(x - x.mean(1, keepdims=True))
        rate = jnp.fft.fftfreq(t)
        gain = jnp.where((rate > low) & (rate < high), 2.0, 0.0)
        z = jnp.fft.ifft(f * gain)
        size, angle = jnp.abs(z), jnp.angle(z)
        step = jnp.diff(angle, axis=1)
        step = jnp.mod(step + jnp.pi, 2 * jnp.pi) - jnp.pi
        phase = jnp.cumsum(step, 1)
        unit = z / (size + 1e-9)
        locked = jnp.abs(unit @ unit.conj().T) / t
        return size, step / (2 * jnp.pi), phase, locked

    return fun, (draw.normal(*((channels, t) if axis else (t, channels))),)


@template
def raw_camera(draw: Draw):
    """A sensor's mosaic of sixteen bits: black level, missing colours, balance, a curve, bytes."""
    n, h, w = draw.size(8, 48), draw.size(64, 1000, 2), draw.size(64, 1000, 2)
    first, black, top = draw.choice("rggb", "bggr"), draw.size(64, 1024), 16383

    def fun(raw, balance, matrix):
        x = jnp.clip((raw.astype(jnp.float32) - black) / (top - black), 0, 1)
        even_row, even_column = jnp.arange(h)[:, None] % 2 == 0, jnp.arange(w) % 2 == 0
        red = even_row & even_column if first == "rggb" else ~even_row & ~even_column
        blue = ~even_row & ~even_column if first == "rggb" else even_row & even_column
        p = jnp.pad(x, ((0, 0), (1, 1), (1, 1)), mode="reflect")

        def at(i, j):
            return p[:, 1 + i : 1 + i + h, 1 + j : 1 + j + w]

        cross = (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1)) / 4
        diagonal = (at(-1, -1) + at(-1, 1) + at(1, -1) + at(1, 1)) / 4
        across, along = (at(0, -1) + at(0, 1)) / 2, (at(-1, 0) + at(1, 0)) / 2
        red_row = even_row if first == "rggb" else ~even_row
        r = jnp.where(red, x, jnp.where(blue, diagonal, jnp.where(red_row, across, along)))
        b = jnp.where(blue, x, jnp.where(red, diagonal, jnp.where(red_row, along, across)))
        g = jnp.where(red | blue, cross, x)
        rgb = jnp.clip(jnp.stack([r, g, b], -1) * balance, 0, 1) @ matrix
        rgb = jnp.clip(rgb, 0, 1)
        curve = jnp.where(rgb <= 0.0031308, 12.92 * rgb, 1.055 * (rgb + 1e-8) ** (1 / 2.4) - 0.055)
        return jnp.round(255 * jnp.clip(curve, 0, 1)).astype(jnp.uint8), (rgb > 0.99).mean((1, 2))

    raw = draw.integers(n, h, w, high=top + 1, dtype="uint16")
    matrix = draw.leaf((3, 3), "float32", lambda r, s: 0.7 * np.eye(3) + 0.1)
    return fun, (raw, draw.uniform(3, low=0.8, high=2), matrix)


@template
def wavelet_denoising(draw: Draw):
    """Two levels of a wavelet over both axes, thresholds from medians, and the way back."""
    n, tall, wide = draw.size(16, 96), draw.size(16, 200), draw.size(16, 200)
    soft, dtype = draw.choice(True, False), draw.dtype("float32", "float16")
    h, w = 4 * tall, 4 * wide

    def apart(x):
        a, b, c, d = x[:, ::2, ::2], x[:, ::2, 1::2], x[:, 1::2, ::2], x[:, 1::2, 1::2]
        return (a + b + c + d) / 2, ((a - b + c - d) / 2, (a + b - c - d) / 2, (a - b - c + d) / 2)

    def joined(low, details):
        p, q, r = details
        rows = (
            jnp.stack([low + p + q + r, low - p + q - r], -1),
            jnp.stack([low + p - q - r, low - p - q + r], -1),
        )
        b, i, j = low.shape
        return (jnp.stack(rows, 2).reshape(b, i, 2, 2 * j) / 2).reshape(b, 2 * i, 2 * j)

    def held(d, noise):
        limit = noise**2 / jnp.sqrt(
            jnp.maximum((d**2).mean((1, 2), keepdims=True) - noise**2, 1e-6)
        )
        if soft:
            return jnp.sign(d) * jnp.maximum(jnp.abs(d) - limit, 0)
        return jnp.where(jnp.abs(d) > limit, d, 0)

    def fun(image):
        low, fine = apart(image.astype(jnp.float32))
        lower, coarse = apart(low)
        noise = jnp.median(jnp.abs(fine[2]).reshape(n, -1), 1).reshape(n, 1, 1) / 0.6745
        low = joined(lower, [held(d, noise) for d in coarse])
        out = joined(low, [held(d, noise) for d in fine])
        return out.astype(dtype), noise[:, 0, 0]

    return fun, (draw.normal(n, h, w, dtype=dtype),)


@template
def corners(draw: Draw):
    """Corners from products of gradients, the largest of their surroundings, the best of each."""
    n, h, w = draw.size(8, 96), draw.size(64, 640), draw.odd_size(65, 641)
    best, kind, window = draw.choice(50, 200), draw.choice("harris", "least"), draw.choice(3, 5)

    def fun(image):
        x = image.astype(jnp.float32) / 255
        p = jnp.pad(x, ((0, 0), (1, 1), (1, 1)), mode="edge")
        gx = (p[:, 1:-1, 2:] - p[:, 1:-1, :-2]) / 2
        gy = (p[:, 2:, 1:-1] - p[:, :-2, 1:-1]) / 2

        def summed(v):
            return lax.reduce_window(v, 0.0, lax.add, (1, window, window), (1, 1, 1), "SAME")

        a, b, c = summed(gx * gx), summed(gx * gy), summed(gy * gy)
        det, trace = a * c - b * b, a + c
        if kind == "harris":
            score = det - 0.05 * trace**2
        else:
            score = trace / 2 - jnp.sqrt(jnp.maximum(trace**2 / 4 - det, 0))
        around = lax.reduce_window(score, -jnp.inf, lax.max, (1, 5, 5), (1, 1, 1), "SAME")
        kept = jnp.where((score == around) & (score > 1e-4), score, 0)
        value, place = lax.top_k(kept.reshape(n, -1), min(best, h * w))
        return value, jnp.stack([place // w, place % w], -1)

    return fun, (draw.integers(n, h, w, high=256, dtype="uint8"),)


@template
def lens_and_colours(draw: Draw):
    """A lens undone by sampling between pixels, then differences in a uniform colour space."""
    n, h, w = draw.size(16, 128), draw.size(48, 400), draw.odd_size(49, 401)
    strength, order = draw.number(-0.3, 0.3), draw.choice(0, 1)

    def lab(rgb):
        linear = jnp.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
        m = jnp.array(
            [[0.4124, 0.2126, 0.0193], [0.3576, 0.7152, 0.1192], [0.1805, 0.0722, 0.9505]]
        )
        xyz = linear @ m / jnp.array([0.9505, 1.0, 1.089])
        f = jnp.where(xyz > 0.008856, jnp.cbrt(jnp.maximum(xyz, 1e-6)), 7.787 * xyz + 16 / 116)
        x, y, z = f[..., 0], f[..., 1], f[..., 2]
        return jnp.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)

    def fun(image, reference):
        x = image.astype(jnp.float32) / 255
        i, j = jnp.meshgrid(jnp.linspace(-1, 1, h), jnp.linspace(-1, 1, w), indexing="ij")
        factor = 1 + strength * (i**2 + j**2)
        places = [(i * factor + 1) / 2 * (h - 1), (j * factor + 1) / 2 * (w - 1)]

        def one(plane):
            return map_coordinates(plane, places, order=order, mode="nearest")

        y = jnp.moveaxis(jax.vmap(jax.vmap(one))(jnp.moveaxis(x, -1, 1)), 1, -1)
        apart = jnp.sqrt(((lab(y) - lab(reference.astype(jnp.float32) / 255)) ** 2).sum(-1) + 1e-9)
        return jnp.round(y * 255).astype(jnp.uint8), apart, (apart < 2.3).mean((1, 2))

    images = (draw.integers(n, h, w, 3, high=256, dtype="uint8") for _ in range(2))
    return fun, tuple(images)
