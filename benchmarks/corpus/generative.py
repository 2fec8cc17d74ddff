"""Generative models: variational, diffusion, flows, adversarial, codes, mixtures of pixels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


def _dense(layers, x, act=jax.nn.silu):
    *first, last = layers
    for layer in first:
        x = act(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


@template
def evidence_bound(draw: Draw):
    """A variational autoencoder of binary images: the bound's gradient, noise drawn inside."""
    rows, pixels, z = draw.size(2048, 32768), draw.size(200, 1024), draw.choice(8, 16, 32)
    hidden, beta = draw.choice(128, 256, 400), draw.number(0.2, 4)
    dtype = draw.dtype("float32", "bfloat16")

    def loss(params, x, key):
        seen = x.astype(dtype)
        mean, log_var = jnp.split(_dense(params["encoder"], seen).astype(jnp.float32), 2, -1)
        log_var = jnp.clip(log_var, -10, 10)
        code = mean + jnp.exp(log_var / 2) * jax.random.normal(key, mean.shape)
        logit = _dense(params["decoder"], code.astype(dtype)).astype(jnp.float32)
        error = (jax.nn.softplus(logit) - seen * logit).sum(-1)
        kl = 0.5 * (mean**2 + jnp.exp(log_var) - 1 - log_var).sum(-1)
        return (error + beta * kl).mean()

    encoder = draw.layers(pixels, hidden, 2 * z, dtype=dtype)
    decoder = draw.layers(z, hidden, pixels, dtype=dtype)
    params = {"encoder": encoder, "decoder": decoder}
    return jax.value_and_grad(loss), (params, draw.mask(rows, pixels, share=0.3), draw.key())


@template
def noise_prediction_loss(draw: Draw):
    """Images get noise of a drawn step; the loss of its prediction, weighed by step."""
    layout = draw.layout()
    n, c, h, w = draw.size(32, 256), draw.choice(3, 4), draw.size(24, 96), draw.odd_size(25, 95)
    steps, kind = draw.choice(100, 1000), draw.choice("noise", "velocity")

    def fun(x, predict, scale, key):
        which, noise = jax.random.split(key)
        t = jax.random.randint(which, (n,), 0, steps)
        beta = jnp.linspace(1e-4, 0.02, steps) * 1000 / steps
        kept = jnp.cumprod(1 - jnp.minimum(beta, 0.999))
        a, s = jnp.sqrt(kept)[t], jnp.sqrt(1 - kept)[t]
        a, s = a.reshape(n, 1, 1, 1), s.reshape(n, 1, 1, 1)
        e = jax.random.normal(noise, x.shape)
        x = x.astype(jnp.float32) / 127.5 - 1
        noisy = a * x + s * e
        wanted = e if kind == "noise" else a * e - s * x
        made = jnp.tanh(noisy * layout.per_channel(scale)) + predict
        error = ((made - wanted) ** 2).mean((1, 2, 3))
        ratio = kept[t] / (1 - kept[t])
        each = error * jnp.minimum(ratio, 5) / ratio
        by_step = jax.ops.segment_sum(error, t // (steps // 10), 10)
        return each.mean(), by_step, noisy.astype(jnp.bfloat16)

    shape = layout.shape(n, c, h, w)
    image = draw.integers(*shape, high=256, dtype="uint8")
    return fun, (image, draw.normal(*shape), draw.normal(c), draw.key())


@template
def guided_step(draw: Draw):
    """One deterministic step with guidance; the predicted image is held by its own quantile."""
    n, c, h, w = draw.size(64, 512), draw.choice(3, 4), draw.size(24, 128), draw.odd_size(25, 127)
    guide, share = draw.number(1.5, 9), draw.number(0.95, 0.999)
    dtype = draw.dtype("float32", "float16", "bfloat16")

    def fun(x, both, now, following):
        free, asked = jnp.split(both.astype(jnp.float32), 2)
        e = free + guide * (asked - free)
        deviation = asked.std((1, 2, 3), keepdims=True)
        e = 0.7 * e * deviation / (e.std((1, 2, 3), keepdims=True) + 1e-6) + 0.3 * e
        wide = x.astype(jnp.float32)
        x0 = (wide - jnp.sqrt(1 - now) * e) / jnp.sqrt(now)
        limit = jnp.sort(jnp.abs(x0).reshape(n, -1), 1)[:, int(share * (c * h * w - 1))]
        limit = jnp.maximum(limit, 1).reshape(n, 1, 1, 1)
        x0 = jnp.clip(x0, -limit, limit) / limit
        e = (wide - jnp.sqrt(now) * x0) / jnp.sqrt(1 - now)
        return (jnp.sqrt(following) * x0 + jnp.sqrt(1 - following) * e).astype(dtype)

    x = draw.normal(n, c, h, w, dtype=dtype)
    levels = (draw.uniform(n, 1, 1, 1, low=low, high=low + 0.3) for low in (0.2, 0.6))
    return fun, (x, draw.normal(2 * n, c, h, w, dtype=dtype), *levels)


@template
def coupling_layers(draw: Draw):
    """Affine couplings, halves in turn: the likelihood and the gradients of its networks."""
    rows, c, hidden = draw.size(16384, 262144), draw.size(8, 64, 2), draw.choice(32, 64, 128)
    depth, swap = draw.choice(2, 3, 4), draw.choice("halves", "evens")

    def loss(params, x):
        total = 0.0
        for layers in params:
            if swap == "halves":
                a, b = jnp.split(x, 2, -1)
            else:
                a, b = x[:, ::2], x[:, 1::2]
            log_scale, shift = jnp.split(_dense(layers, a, jnp.tanh), 2, -1)
            log_scale = 2 * jnp.tanh(log_scale / 2)
            b = b * jnp.exp(log_scale) + shift
            total = total + log_scale.sum(-1)
            if swap == "halves":
                x = jnp.concatenate([b, a], -1)
            else:
                x = jnp.stack([b, a], -1).reshape(rows, c)
        log_p = -0.5 * (x**2 + jnp.log(2 * jnp.pi)).sum(-1)
        return -(log_p + total).mean()

    params = [draw.layers(c // 2, hidden, c) for _ in range(depth)]
    return jax.value_and_grad(loss), (params, draw.normal(rows, c))


@template
def spline_flow(draw: Draw):
    """Monotonic rational quadratic splines, one for each number, with the log of the slope."""
    rows, c, bins = draw.size(8000, 120000), draw.size(2, 12), draw.choice(6, 8, 12)
    bound = draw.number(2, 5)

    def knots(raw):
        share = 1e-3 + (1 - 1e-3 * bins) * jax.nn.softmax(raw, -1)
        edge = jnp.pad(jnp.cumsum(share, -1), [(0, 0)] * (raw.ndim - 1) + [(1, 0)])
        return 2 * bound * edge - bound

    def fun(x, params):
        raw_w, raw_h, raw_d = (
            params[..., :bins],
            params[..., bins : 2 * bins],
            params[..., 2 * bins :],
        )
        xs, ys = knots(raw_w), knots(raw_h)
        slope = jnp.pad(jax.nn.softplus(raw_d) + 1e-3, ((0, 0), (0, 0), (1, 1)), constant_values=1)
        inside = jnp.abs(x) < bound
        v = jnp.where(inside, x, 0)
        k = jnp.clip((v[..., None] >= xs[..., :-1]).sum(-1) - 1, 0, bins - 1)[..., None]

        def at(a, shift=0):
            return jnp.take_along_axis(a, k + shift, -1)[..., 0]

        width, height = at(xs, 1) - at(xs), at(ys, 1) - at(ys)
        t, s = (v - at(xs)) / width, height / width
        below = s + (at(slope, 1) + at(slope) - 2 * s) * t * (1 - t)
        y = at(ys) + height * (s * t**2 + at(slope) * t * (1 - t)) / below
        rise = at(slope, 1) * t**2 + 2 * s * t * (1 - t) + at(slope) * (1 - t) ** 2
        log_det = 2 * jnp.log(s) + jnp.log(rise) - 2 * jnp.log(below)
        return jnp.where(inside, y, x), jnp.where(inside, log_det, 0).sum(-1)

    return fun, (draw.normal(rows, c, scale=2), draw.normal(rows, c, 3 * bins - 1))


@template
def critic_with_penalty(draw: Draw):
    """A critic's loss with a penalty on its gradient at drawn mixtures: second derivatives."""
    rows, c, hidden = draw.size(4096, 65536), draw.size(16, 256), draw.choice(64, 128)
    kind = draw.choice("hinge", "wasserstein", "softplus")

    def loss(layers, real, made, key):
        def critic(x):
            return _dense(layers, x, lambda v: jax.nn.leaky_relu(v, 0.2))[0]

        good, bad = jax.vmap(critic)(real), jax.vmap(critic)(made)
        if kind == "hinge":
            value = jax.nn.relu(1 - good).mean() + jax.nn.relu(1 + bad).mean()
        elif kind == "wasserstein":
            value = bad.mean() - good.mean()
        else:
            value = jax.nn.softplus(-good).mean() + jax.nn.softplus(bad).mean()
        mix = jax.random.uniform(key, (rows, 1))
        slope = jax.vmap(jax.grad(critic))(mix * real + (1 - mix) * made)
        return value + 10 * ((jnp.sqrt((slope**2).sum(-1) + 1e-12) - 1) ** 2).mean()

    args = (draw.layers(c, hidden, hidden, 1), draw.normal(rows, c), draw.normal(rows, c, mean=1))
    return jax.value_and_grad(loss), (*args, draw.key())


@template
def flow_matching(draw: Draw):
    """Straight paths from noise to data: the velocity's loss with sinusoids of the time."""
    rows, c, hidden = draw.size(8192, 131072), draw.size(8, 128), draw.choice(64, 128, 256)
    frequencies, skew = draw.choice(8, 16), draw.choice(True, False)

    def loss(layers, data, key):
        when, noise = jax.random.split(key)
        t = jax.random.uniform(when, (rows, 1))
        t = jax.nn.sigmoid(jnp.sqrt(2.0) * lax.erf_inv(1.9999 * t - 0.99995)) if skew else t
        start = jax.random.normal(noise, data.shape)
        x = (1 - (1 - 1e-4) * t) * start + t * data
        angle = t * 2.0 ** jnp.arange(frequencies) * jnp.pi
        given = jnp.concatenate([x, jnp.sin(angle), jnp.cos(angle)], -1)
        error = _dense(layers, given, jax.nn.gelu) - (data - (1 - 1e-4) * start)
        return (error**2).mean(), (error**2).mean(0)

    layers = draw.layers(c + 2 * frequencies, hidden, hidden, c)
    return jax.value_and_grad(loss, has_aux=True), (layers, draw.normal(rows, c), draw.key())


@template
def code_book(draw: Draw):
    """Nearest codes of features, gradients past them, and the book's moving averages."""
    layout = draw.layout()
    n, c, h, w = draw.size(4, 32), draw.choice(16, 32, 64), draw.size(8, 32), draw.odd_size(9, 33)
    codes, decay = draw.choice(128, 512, 1024), draw.number(0.9, 0.999)

    def fun(x, book, count, total):
        flat = jnp.moveaxis(x, layout.channels, -1).reshape(-1, c)
        far = (flat**2).sum(1, keepdims=True) - 2 * flat @ book.T + (book**2).sum(1)
        index = far.argmin(1)
        found = book[index]
        used = jax.ops.segment_sum(jnp.ones(index.shape), index, codes)
        count = decay * count + (1 - decay) * used
        total = decay * total + (1 - decay) * jax.ops.segment_sum(flat, index, codes)
        smooth = (count + 1e-5) / (count.sum() + codes * 1e-5) * count.sum()
        p = used / used.sum()
        perplexity = jnp.exp(-(p * jnp.log(p + 1e-10)).sum())
        loss = 0.25 * ((flat - found) ** 2).mean()
        out = jnp.moveaxis(found.reshape(n, h, w, c), -1, layout.channels)
        return out, loss, perplexity, count, total, total / smooth[:, None]

    args = (draw.normal(*layout.shape(n, c, h, w)), draw.normal(codes, c))
    return fun, (*args, draw.uniform(codes, low=1, high=9), draw.normal(codes, c))


@template
def mixture_of_logistics(draw: Draw):
    """Bytes under mixtures of discretised logistics, with the edges' cases, and the gradient."""
    n, h, w = draw.size(32, 256), draw.size(16, 48), draw.odd_size(17, 47)
    c, parts = draw.choice(1, 3), draw.choice(5, 10)

    def loss(raw, image):
        x = (image.astype(jnp.float32) / 127.5 - 1)[..., None]
        weight, mean, log_scale = raw[:, :, :, 0], raw[:, :, :, 1], raw[:, :, :, 2]
        log_scale = jnp.maximum(log_scale, -7)
        centred, inverse = x - mean, jnp.exp(-log_scale)
        plus, minus = inverse * (centred + 1 / 255), inverse * (centred - 1 / 255)
        mass = jax.nn.sigmoid(plus) - jax.nn.sigmoid(minus)
        middle = inverse * centred
        density = middle - log_scale - 2 * jax.nn.softplus(middle) - jnp.log(127.5)
        inner = jnp.where(mass > 1e-5, jnp.log(jnp.maximum(mass, 1e-12)), density)
        log_p = jnp.where(x > 0.999, -jax.nn.softplus(minus), inner)
        log_p = jnp.where(x < -0.999, plus - jax.nn.softplus(plus), log_p)
        return -jax.nn.logsumexp(log_p + jax.nn.log_softmax(weight), -1).mean()

    image = draw.integers(n, h, w, c, high=256, dtype="uint8")
    return jax.value_and_grad(loss), (draw.normal(n, h, w, 3, c, parts), image)


@template
def sliced_scores(draw: Draw):
    """The score's loss along random directions: a derivative along one inside a gradient."""
    rows, c, hidden = draw.size(4096, 65536), draw.size(4, 64), draw.choice(32, 64, 128)
    act = draw.choice(jnp.tanh, jax.nn.softplus, jax.nn.silu)

    def loss(layers, x, key):
        v = jax.random.rademacher(key, x.shape, jnp.float32)
        score, along = jax.jvp(lambda y: _dense(layers, y, act), (x,), (v,))
        return ((v * along).sum(-1) + 0.5 * (v * score).sum(-1) ** 2).mean()

    return jax.value_and_grad(loss), (
        draw.layers(c, hidden, hidden, c),
        draw.normal(rows, c),
        draw.key(),
    )


@template
def modulated_block(draw: Draw):
    """A norm without weights, shifted, scaled and gated by what the image should show."""
    n, t, c = draw.size(4, 32), draw.size(64, 1024), draw.size(128, 768, 8)
    dtype, order = draw.dtype("float32", "bfloat16"), draw.choice(0, 1)

    def norm(x):
        wide = x.astype(jnp.float32)
        mean = wide.mean(-1, keepdims=True)
        var = (wide**2).mean(-1, keepdims=True) - mean**2
        return ((wide - mean) * lax.rsqrt(var + 1e-6)).astype(dtype)

    def fun(x, attended, condition, w, b):
        six = jnp.split((jax.nn.silu(condition) @ w + b)[:, None], 6, -1)
        shift, scale, gate, shift_2, scale_2, gate_2 = six if order else six[::-1]
        x = x + gate * (attended * (1 + scale) + shift)
        y = norm(x) * (1 + scale_2) + shift_2
        return x + gate_2 * jax.nn.gelu(y), y

    x, attended = (draw.normal(n, t, c, dtype=dtype) for _ in range(2))
    w = draw.weight(c, 6 * c, dtype=dtype)
    return fun, (x, attended, draw.normal(n, c, dtype=dtype), w, draw.normal(6 * c, dtype=dtype))
