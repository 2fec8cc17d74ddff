"""Optimizers' steps over trees of parameters: moments, factors, clipping, scales, tables."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


def _shapes(draw: Draw):
    """The shapes of a small model's parameters: matrices, a table, vectors, perhaps kernels."""
    c, depth = draw.size(96, 640, 8), draw.size(1, 4)
    found = {"table": (draw.size(500, 8000), c), "norm": (c,)}
    for i in range(depth):
        wide = c * draw.choice(2, 3, 4)
        found |= {f"up{i}": (c, wide), f"bias{i}": (wide,), f"down{i}": (wide, c)}
    if draw.choice(True, False):
        found["kernel"] = (3, 3, draw.size(16, 96), draw.odd_size(15, 97))
    return found


def _tree(draw: Draw, shapes, dtype="float32", scale=1.0, positive=False):
    if positive:
        return {k: draw.uniform(*s, low=1e-6, high=scale, dtype=dtype) for k, s in shapes.items()}
    return {k: draw.normal(*s, dtype=dtype, scale=scale) for k, s in shapes.items()}


def _number(draw: Draw, low, high, dtype="float32"):
    return draw.leaf((), dtype, lambda r, s: r.uniform(low, high, s))


def _norm(tree):
    return jnp.sqrt(sum((x.astype(jnp.float32) ** 2).sum() for x in jax.tree.leaves(tree)))


def _apart(trees, count):
    """A tree of tuples as a tuple of trees."""
    outer = jax.tree.structure(trees, is_leaf=lambda x: isinstance(x, tuple))
    return tuple(
        outer.unflatten([one[i] for one in outer.flatten_up_to(trees)]) for i in range(count)
    )


@template
def clipped_adam(draw: Draw):
    """Adam with decay for matrices alone, the gradient's norm clipped, copies of 16 bits."""
    shapes, low = _shapes(draw), draw.choice("bfloat16", "float16")
    moment, b2 = draw.choice("float32", "bfloat16"), draw.number(0.95, 0.999)

    def fun(params, m, v, grads, step, rate):
        norm = _norm(grads)
        factor = jnp.minimum(1, 1 / (norm + 1e-6))

        def one(p, m, v, g):
            g = g.astype(jnp.float32) * factor
            m = 0.9 * m.astype(jnp.float32) + 0.1 * g
            v = b2 * v + (1 - b2) * g**2
            update = m / (1 - 0.9**step) / (jnp.sqrt(v / (1 - b2**step)) + 1e-8)
            p = p - rate * (update + (0.1 * p if p.ndim > 1 else 0))
            return p, p.astype(low), m.astype(moment), v

        return *_apart(jax.tree.map(one, params, m, v, grads), 4), norm

    trees = (_tree(draw, shapes), _tree(draw, shapes, moment, 0.01))
    trees += (_tree(draw, shapes, scale=1e-3, positive=True), _tree(draw, shapes, low, 0.02))
    return fun, (*trees, _number(draw, 1, 1000), _number(draw, 1e-4, 1e-3))


@template
def cautious_signs(draw: Draw):
    """Signs of a moment as steps, where they agree with the gradient, decayed apart from it."""
    shapes, dtype = _shapes(draw), draw.choice("float32", "bfloat16")
    b1, b2, decay = draw.number(0.9, 0.95), draw.number(0.97, 0.99), draw.number(0.01, 0.3)

    def fun(params, m, grads, rate):
        def one(p, m, g):
            g, wide = g.astype(jnp.float32), m.astype(jnp.float32)
            update = jnp.sign(b1 * wide + (1 - b1) * g)
            agrees = update * g > 0
            update = jnp.where(agrees, update, 0) / jnp.maximum(agrees.mean(), 1e-3)
            new = (p.astype(jnp.float32) * (1 - rate * decay) - rate * update).astype(p.dtype)
            return new, (b2 * wide + (1 - b2) * g).astype(m.dtype)

        return _apart(jax.tree.map(one, params, m, grads), 2)

    trees = (_tree(draw, shapes, dtype), _tree(draw, shapes, dtype), _tree(draw, shapes, dtype))
    return fun, (*trees, _number(draw, 1e-5, 1e-3))


@template
def preconditioned_from_both_sides(draw: Draw):
    """Statistics of rows and columns, kept roots of them on both sides, a grafted length."""
    layers, a, b = draw.size(1, 6), draw.size(64, 512), draw.odd_size(65, 513)
    graft, b2 = draw.choice("adagrad", "sgd"), draw.number(0.95, 0.999)

    def fun(params, grads, left, right, left_root, right_root, acc, m):
        left = b2 * left + (1 - b2) * jnp.einsum("lij,lkj->lik", grads, grads)
        right = b2 * right + (1 - b2) * jnp.einsum("lij,lik->ljk", grads, grads)
        update = jnp.einsum("lij,ljk,lkm->lim", left_root, grads, right_root)
        acc = acc + grads**2
        other = grads * lax.rsqrt(acc + 1e-8) if graft == "adagrad" else grads

        def length(x):
            return jnp.sqrt((x**2).sum((1, 2), keepdims=True))

        update = update * length(other) / (length(update) + 1e-16)
        m = 0.9 * m + update
        return params - 0.01 * (m + 1e-4 * params), left, right, acc, m

    def squares(n):
        return draw.weight(layers, n, n)

    w = (draw.normal(layers, a, b), draw.normal(layers, a, b, scale=0.1))
    factors = (squares(a), squares(b), squares(a), squares(b))
    return fun, (*w, *factors, draw.uniform(layers, a, b), draw.normal(layers, a, b))


@template
def factored_second_moments(draw: Draw):
    """Second moments by rows and columns, updates clipped by their size, relative steps."""
    shapes, dtype = _shapes(draw), draw.choice("float32", "bfloat16")
    power, clip = draw.number(0.7, 0.9), draw.number(0.8, 1.5)

    def fun(params, rows, columns, grads, step):
        decay = 1 - step**-power

        def one(p, r, c, g):
            g = g.astype(jnp.float32)
            square = g**2 + 1e-30
            wide = p.astype(jnp.float32)
            if p.ndim > 1:
                r = decay * r + (1 - decay) * square.mean(-1)
                c = decay * c + (1 - decay) * square.mean(-2)
                scale = r / r.mean(-1, keepdims=True)
                update = g * lax.rsqrt(scale)[..., None] * lax.rsqrt(c)[..., None, :]
            else:
                r = decay * r + (1 - decay) * square
                update = g * lax.rsqrt(r)
            update = update / jnp.maximum(1, jnp.sqrt((update**2).mean()) / clip)
            rate = jnp.minimum(1e-2, lax.rsqrt(step)) * jnp.maximum(
                jnp.sqrt((wide**2).mean()), 1e-3
            )
            return (wide - rate * update).astype(p.dtype), r, c

        return _apart(jax.tree.map(one, params, rows, columns, grads), 3)

    def moments(cut):
        cuts = {k: s if len(s) < 2 else cut(s) for k, s in shapes.items()}
        return _tree(draw, cuts, scale=0.01, positive=True)

    rows, columns = moments(lambda s: s[:-1]), moments(lambda s: (*s[:-2], s[-1]))
    trees = (_tree(draw, shapes, dtype), rows, columns, _tree(draw, shapes, dtype, 0.1))
    return fun, (*trees, _number(draw, 2, 1000))


@template
def unit_wise_clipping(draw: Draw):
    """Gradients clipped unit by unit against their weights, then a look-ahead momentum."""
    shapes, nesterov = _shapes(draw), draw.choice(True, False)
    clip, dtype = draw.number(0.01, 0.1), draw.choice("float32", "bfloat16")

    def fun(params, m, grads, rate):
        def unit(x):
            axes = tuple(range(x.ndim - 1)) if x.ndim > 1 else None
            return jnp.sqrt((x**2).sum(axes, keepdims=True))

        def one(p, m, g):
            g = g.astype(jnp.float32)
            most = clip * jnp.maximum(unit(p), 1e-3)
            norm = unit(g)
            g = jnp.where(norm > most, g * most / jnp.maximum(norm, 1e-6), g)
            g = g + (1e-4 * p if p.ndim > 1 else 0)
            m = 0.9 * m + g
            return p - rate * (g + 0.9 * m if nesterov else m), m

        new, m = _apart(jax.tree.map(one, params, m, grads), 2)
        return new, m, _norm(grads), _norm(params)

    trees = (_tree(draw, shapes), _tree(draw, shapes), _tree(draw, shapes, dtype))
    return fun, (*trees, _number(draw, 1e-3, 1e-1))


@template
def scaled_loss_step(draw: Draw):
    """Gradients of 16 bits are unscaled; where one is not finite nothing changes but the scale."""
    shapes, broken = _shapes(draw), draw.choice(True, False)
    every = draw.choice(1000, 2000)

    def fun(params, m, v, grads, scale, good, step):
        wide = jax.tree.map(lambda g: g.astype(jnp.float32) / scale, grads)
        finite = jnp.all(jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(wide)]))
        step = step + finite

        def one(p, m, v, g):
            g = jnp.where(finite, g, 0)
            new_m, new_v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
            new = p - 1e-3 * (new_m / (1 - 0.9**step)) / (jnp.sqrt(new_v / (1 - 0.99**step)) + 1e-8)
            keep = lambda a, b: jnp.where(finite, a, b)  # noqa: E731
            return keep(new, p), keep(new_m, m), keep(new_v, v), keep(new, p).astype(jnp.float16)

        trees = _apart(jax.tree.map(one, params, m, v, wide), 4)
        grow = finite & (good + 1 >= every)
        new_scale = jnp.where(finite, jnp.where(grow, scale * 2, scale), jnp.maximum(scale / 2, 1))
        return *trees, new_scale, jnp.where(finite & ~grow, good + 1, 0), step

    def spoilt(r, s):
        g = r.standard_normal(s)
        if broken:
            g.flat[0] = float("inf")
        return g

    grads = {k: draw.leaf(s, "float16", spoilt) for k, s in shapes.items()}
    trees = (_tree(draw, shapes), _tree(draw, shapes), _tree(draw, shapes, positive=True), grads)
    scalars = (
        _number(draw, 256, 4096),
        _number(draw, 1, 900, "int32"),
        _number(draw, 1, 99, "int32"),
    )
    return fun, (*trees, *scalars)


@template
def limited_memory(draw: Draw):
    """Two passes over a short history of steps and slopes, the direction of descent and a step."""
    n, memory = draw.size(100000, 3000000), draw.choice(3, 5, 8)
    dtype = draw.dtype("float32", "bfloat16")
    order = draw.choice("first", "last")

    def fun(x, g, steps, slopes):
        s, y = steps.astype(jnp.float32), slopes.astype(jnp.float32)
        s, y = (s, y) if order == "first" else (s.T, y.T)
        rho = 1 / (jnp.einsum("mn,mn->m", s, y) + 1e-8)
        q, alphas = g, []
        for i in reversed(range(memory)):
            alpha = rho[i] * (s[i] @ q)
            q = q - alpha * y[i]
            alphas.append(alpha)
        gamma = (s[-1] @ y[-1]) / (y[-1] @ y[-1] + 1e-8)
        r = jnp.where(gamma > 0, gamma, 1.0) * q
        for i in range(memory):
            beta = rho[i] * (y[i] @ r)
            r = r + s[i] * (alphas[memory - 1 - i] - beta)
        down = r @ g
        direction = jnp.where(down > 0, -r, -g)
        return x + 0.5 * direction, direction, down / (jnp.linalg.norm(g) * jnp.linalg.norm(r))

    shape = (memory, n) if order == "first" else (n, memory)
    # slopes change mostly along the steps, as near a minimum
    history = tuple(draw.leaf(shape, dtype, _near_the_same) for _ in range(2))
    return fun, (draw.normal(n), draw.normal(n), *history)


def _near_the_same(random, shape):
    return np.random.default_rng(0).standard_normal(shape) + 0.3 * random.standard_normal(shape)


@template
def clipped_curvature(draw: Draw):
    """A curvature by a random direction, now and then, bounds each step of a moment."""
    rows, c, hidden, classes = (
        *(draw.size(4096, 65536), draw.size(32, 256)),
        *(draw.choice(64, 128, 256), draw.odd_size(5, 101)),
    )
    rho = draw.number(0.01, 0.1)

    def loss(params, x, label):
        h = jnp.tanh(x @ params[0]["w"] + params[0]["b"])
        log_p = jax.nn.log_softmax(h @ params[1]["w"] + params[1]["b"])
        return -jnp.take_along_axis(log_p, label[:, None], 1).mean()

    def fun(params, m, h, x, label, key):
        leaves, tree = jax.tree.flatten(params)
        keys = jax.random.split(key, len(leaves))
        u = tree.unflatten(
            [jax.random.normal(k, p.shape) for k, p in zip(keys, leaves, strict=True)]
        )
        grads, along = jax.jvp(lambda p: jax.grad(loss)(p, x, label), (params,), (u,))
        m = jax.tree.map(lambda m, g: 0.96 * m + 0.04 * g, m, grads)
        h = jax.tree.map(lambda h, a, u: 0.99 * h + 0.01 * a * u, h, along, u)
        new = jax.tree.map(
            lambda p, m, h: p * 0.999 - 1e-3 * jnp.clip(m / jnp.maximum(rho * h, 1e-12), -1, 1),
            *(params, m, h),
        )
        return new, m, h

    trees = (draw.layers(c, hidden, classes) for _ in range(3))
    label = draw.integers(rows, high=classes)
    return fun, (*trees, draw.normal(rows, c), label, draw.key())


@template
def sparse_rows(draw: Draw):
    """Rows of a table that a batch touched: their gradients summed, one moment a row, a step."""
    rows, c, batch = draw.size(20000, 400000), draw.choice(16, 32, 64, 96), draw.size(2000, 40000)
    dtype, momentum = draw.dtype("float32", "bfloat16", "float16"), draw.choice(True, False)

    def fun(table, acc, m, index, grad, rate):
        dense = jnp.zeros((rows, c), jnp.float32).at[index].add(grad.astype(jnp.float32))
        touched = jnp.zeros(rows, bool).at[index].set(True)
        acc = jnp.where(touched, acc + (dense**2).mean(1), acc)
        step = dense * lax.rsqrt(acc + 1e-8)[:, None]
        if momentum:
            m = jnp.where(touched[:, None], 0.9 * m + step, m)
            step = m
        new = table.astype(jnp.float32) - rate * jnp.where(touched[:, None], step, 0)
        return new.astype(dtype), acc, m, touched.sum()

    state = (draw.normal(rows, c, dtype=dtype), draw.uniform(rows))
    m = draw.normal(rows, c) if momentum else draw.normal(1, c)
    batch_ = (draw.popular(batch, high=rows), draw.normal(batch, c, dtype=dtype))
    return fun, (*state, m, *batch_, _number(draw, 0.01, 0.1))


@template
def estimated_distance(draw: Draw):
    """A step size found from how far the weights went: products over whole trees steer it."""
    shapes, dtype = _shapes(draw), draw.choice("float32", "bfloat16")
    b2 = draw.number(0.99, 0.999)

    def fun(params, start, m, v, s, grads, d, r):
        root = math.sqrt(b2)
        pairs = jax.tree.map(
            lambda g, a, b: (g.astype(jnp.float32) * (a - b)).sum(), grads, start, params
        )
        total = sum(jax.tree.leaves(pairs))
        r = root * r + (1 - root) * d**2 * total

        def one(p, m, v, s, g):
            g = g.astype(jnp.float32)
            m, v = 0.9 * m + 0.1 * d * g, b2 * v + (1 - b2) * (d * g) ** 2
            s = root * s + (1 - root) * d**2 * g
            return p - d * m / (jnp.sqrt(v) + d * 1e-8), m, v, s

        new, m, v, s = _apart(jax.tree.map(one, params, m, v, s, grads), 4)
        size = sum(jnp.abs(x).sum() for x in jax.tree.leaves(s))
        return new, m, v, s, jnp.maximum(d, jnp.minimum(r / (size + 1e-12), 1.02 * d)), r

    trees = (_tree(draw, shapes), _tree(draw, shapes), _tree(draw, shapes))
    trees += (_tree(draw, shapes, positive=True), _tree(draw, shapes), _tree(draw, shapes, dtype))
    return fun, (*trees, _number(draw, 1e-4, 1e-2), _number(draw, 0, 1))


@template
def stochastic_rounding(draw: Draw):
    """Weights of 16 bits stepped in 32 and rounded at random by their bits; averages kept too."""
    shapes, ema = _shapes(draw), draw.number(0.99, 0.9999)
    blocked = draw.choice(True, False)

    def rounded(x, key):
        noise = jax.random.bits(key, x.shape, jnp.uint32) & jnp.uint32(0xFFFF)
        bits = lax.bitcast_convert_type(x, jnp.uint32) + noise
        return lax.bitcast_convert_type((bits >> 16).astype(jnp.uint16), jnp.bfloat16)

    def fun(params, average, m, grads, rate, key):
        leaves, tree = jax.tree.flatten(params)
        keys = tree.unflatten(list(jax.random.split(key, len(leaves))))

        def one(p, a, m, g, k):
            g = g.astype(jnp.float32)
            scale = jnp.abs(g).max() if not blocked else jnp.abs(g).max(-1, keepdims=True)
            q = jnp.round(g / (scale + 1e-12) * 127).astype(jnp.int8)
            m = (0.9 * m.astype(jnp.float32) + q * (scale / 127)).astype(m.dtype)
            new = rounded(p.astype(jnp.float32) - rate * m.astype(jnp.float32), k)
            return new, ema * a + (1 - ema) * new.astype(jnp.float32), m, q

        return _apart(jax.tree.map(one, params, average, m, grads, keys), 4)

    trees = (_tree(draw, shapes, "bfloat16"), _tree(draw, shapes), _tree(draw, shapes, "bfloat16"))
    grads = _tree(draw, shapes, "bfloat16", 0.01)
    return fun, (*trees, grads, _number(draw, 1e-4, 1e-2), draw.key())
