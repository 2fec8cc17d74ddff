"""Statistics: likelihoods and their gradients, mixtures, samplers' steps, ranks, survival."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import digamma, gammaln, log_ndtr, ndtr, polygamma

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


@template
def generalised_linear_step(draw: Draw):
    """One step of Fisher scoring for counts, durations or answers, with offsets and weights."""
    rows, c = draw.size(20000, 400000), draw.odd_size(5, 63)
    family, ridge = draw.choice("poisson", "gamma", "binomial", "inverse"), draw.number(0.01, 1)

    def fun(x, y, offset, weight, beta):
        eta = jnp.clip(x @ beta + offset, -10, 10)
        if family == "binomial":
            mu = jax.nn.sigmoid(eta)
            hits = (y > 1).astype(jnp.float32)
            w, score = weight * mu * (1 - mu), weight * (hits - mu)
            deviance = 2 * weight * (jax.nn.softplus(eta) - hits * eta)
        else:
            mu = jnp.exp(eta)
            power = {"poisson": 1, "gamma": 2, "inverse": 3}[family]
            w, score = weight * mu ** (2 - power), weight * (y - mu) * mu ** (1 - power)
            deviance = 2 * weight * (y - mu) ** 2 / (mu**power + 1e-6)
        information = jnp.einsum("ni,n,nj->ij", x, w, x) + ridge * jnp.eye(c)
        step = jax.scipy.linalg.cho_solve(
            (jnp.linalg.cholesky(information), True), x.T @ score - ridge * beta
        )
        return beta + step, deviance.sum(), jnp.abs(x.T @ score).max()

    args = (draw.normal(rows, c), draw.uniform(rows, low=0.1, high=4), draw.normal(rows, scale=0.1))
    return fun, (*args, draw.uniform(rows), draw.normal(c, scale=0.1))


@template
def ordered_answers(draw: Draw):
    """Ordered categories after thresholds of a normal or logistic: the likelihood's gradient."""
    rows, c, levels = draw.size(80000, 2000000), draw.size(4, 40), draw.size(3, 9)
    cdf = draw.choice(ndtr, jax.nn.sigmoid)

    def loss(params, x, y):
        beta, first, gaps = params
        cuts = jnp.concatenate([first, first + jnp.cumsum(jnp.exp(gaps))])
        eta = x @ beta
        edges = jnp.concatenate([jnp.array([-1e3]), cuts, jnp.array([1e3])])
        p = cdf(edges[y + 1] - eta) - cdf(edges[y] - eta)
        return -jnp.log(jnp.maximum(p, 1e-10)).mean() + 0.01 * (beta**2).sum()

    params = (draw.normal(c, scale=0.2), draw.normal(1), draw.normal(levels - 2, scale=0.3))
    y = draw.integers(rows, high=levels, dtype="int32")
    return jax.value_and_grad(loss), (params, draw.normal(rows, c), y)


@template
def full_mixture_step(draw: Draw):
    """A step of expectation maximisation for Gaussians with full or tied covariances."""
    rows, d, parts = draw.size(20000, 240000), draw.size(2, 24), draw.size(4, 32)
    tied = draw.choice(True, False)

    def fun(x, log_weight, mean, covariance):
        root = jnp.linalg.cholesky(covariance)
        apart = x[None] - mean[:, None]
        z = lax.linalg.triangular_solve(root, apart.transpose(0, 2, 1), left_side=True, lower=True)
        log_det = jnp.log(jnp.diagonal(root, axis1=1, axis2=2)).sum(1)
        log_p = -0.5 * (z**2).sum(1) - log_det[:, None] + log_weight[:, None]
        norm = jax.nn.logsumexp(log_p, 0)
        r = jnp.exp(log_p - norm)
        count = r.sum(1) + 1e-6
        new = r @ x / count[:, None]
        centred = x[None] - new[:, None]
        scatter = jnp.einsum("kn,kni,knj->kij", r, centred, centred)
        if tied:
            spread = jnp.broadcast_to(scatter.sum(0) / rows, scatter.shape)
        else:
            spread = scatter / count[:, None, None]
        return jnp.log(count / rows), new, spread + 1e-3 * jnp.eye(d), norm.mean()

    def spd(r, s):
        a = r.standard_normal(s) * 0.2
        return a @ a.swapaxes(-1, -2) + 0.5 * _eye(s[-1])

    args = (draw.normal(rows, d, scale=2), draw.normal(parts), draw.normal(parts, d))
    return fun, (*args, draw.leaf((parts, d, d), "float32", spd))


def _eye(n):
    import numpy as np

    return np.eye(n)


@template
def mean_discrepancy(draw: Draw):
    """Two samples compared by kernels of several widths or an energy distance, the gradient."""
    n, m, d = draw.size(300, 2500), draw.odd_size(301, 2501), draw.size(2, 40)
    kind = draw.choice("gaussian", "quadratic", "energy")

    def loss(x, y):
        def far(a, b):
            square = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
            return jnp.maximum(square, 0)

        scale = lax.stop_gradient(far(x, y).mean())

        def kernel(a, b):
            r = far(a, b) / scale
            if kind == "energy":
                return -jnp.sqrt(r + 1e-6)
            widths = (0.25, 0.5, 1.0, 2.0, 4.0)
            if kind == "gaussian":
                return sum(jnp.exp(-r / w) for w in widths)
            return sum(1 / (1 + r / w) for w in widths)

        def inner(k):
            return (k.sum() - jnp.trace(k)) / (k.shape[0] * (k.shape[0] - 1))

        return inner(kernel(x, x)) + inner(kernel(y, y)) - 2 * kernel(x, y).mean()

    return jax.value_and_grad(loss), (draw.normal(n, d), draw.normal(m, d, mean=0.2))


@template
def langevin_proposal(draw: Draw):
    """Chains take an adjusted Langevin step on a hierarchical regression: accept or stay."""
    chains, rows, groups = draw.size(256, 4096), draw.size(500, 4000), draw.size(5, 40)
    step = draw.number(0.001, 0.01)

    def log_p(state, x, y, group):
        mu, log_tau, beta, slope = state
        eta = beta[group] + x @ slope
        prior = -0.5 * (mu**2 / 25 + log_tau**2 + (slope**2).sum())
        level = -0.5 * (((beta - mu) * jnp.exp(-log_tau)) ** 2).sum() - groups * log_tau
        return (y * eta - jax.nn.softplus(eta)).sum() + level + prior

    def fun(state, x, y, group, key):
        both = jax.vmap(jax.value_and_grad(log_p), in_axes=(0, None, None, None))
        leaves, tree = jax.tree.flatten(state)
        *keys, last = jax.random.split(key, len(leaves) + 1)
        value, slope = both(state, x, y, group)
        noise = tree.unflatten(
            [jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
        )
        new = jax.tree.map(
            lambda s, g, e: s + step * g + jnp.sqrt(2 * step) * e, state, slope, noise
        )
        other, back = both(new, x, y, group)

        def size(e):
            return sum((v.reshape(chains, -1) ** 2).sum(1) for v in jax.tree.leaves(e))

        reverse = jax.tree.map(lambda s, n, g: s - n - step * g, state, new, back)
        ratio = other - value - size(reverse) / (4 * step) + size(noise) / 2
        taken = jnp.log(jax.random.uniform(last, (chains,))) < ratio
        kept = jax.tree.map(
            lambda s, n: jnp.where(taken.reshape(-1, *[1] * (s.ndim - 1)), n, s), state, new
        )
        return kept, jnp.where(taken, other, value), taken

    state = (draw.normal(chains, scale=0.1), draw.normal(chains, scale=0.1))
    state += (draw.normal(chains, groups, scale=0.1), draw.normal(chains, 8, scale=0.1))
    args = (draw.normal(rows, 8), draw.integers(rows, high=2, dtype="float32"))
    return fun, (state, *args, draw.integers(rows, high=groups), draw.key())


@template
def exchanged_temperatures(draw: Draw):
    """Chains at several temperatures walk at random, and neighbours swap places."""
    n, ladder, d = draw.size(8000, 320000), draw.choice(4, 8, 16), draw.size(2, 16)
    even, hottest = draw.choice(0, 1), draw.number(5, 50)

    def energy(x):
        return 10 * d + (x**2 - 10 * jnp.cos(2 * jnp.pi * x)).sum(-1)

    def fun(x, key):
        walk, accept, swap = jax.random.split(key, 3)
        beta = hottest ** -jnp.linspace(0, 1, ladder)
        now = energy(x)
        new = x + 0.3 / jnp.sqrt(beta)[:, None] * jax.random.normal(walk, x.shape)
        then = energy(new)
        u = jax.random.uniform(accept, now.shape)
        taken = jnp.log(u) < beta * (now - then)
        x, now = jnp.where(taken[..., None], new, x), jnp.where(taken, then, now)
        first = jnp.arange(even, ladder - 1, 2)
        ratio = (beta[first] - beta[first + 1]) * (now[:, first] - now[:, first + 1])
        swapped = jnp.log(jax.random.uniform(swap, ratio.shape)) < ratio
        low, high = x[:, first], x[:, first + 1]
        s = swapped[..., None]
        x = (
            x.at[:, first]
            .set(jnp.where(s, high, low))
            .at[:, first + 1]
            .set(jnp.where(s, low, high))
        )
        return x, taken.mean(0), swapped.mean(0)

    return fun, (draw.normal(n, ladder, d, scale=2), draw.key())


@template
def resampled_particles(draw: Draw):
    """Particles move, are weighed by what is seen, and are resampled at even distances."""
    n, filters = draw.size(16000, 480000), draw.size(4, 64)
    scheme = draw.choice("systematic", "stratified")

    def fun(x, log_w, seen, key):
        move, pick = jax.random.split(key)
        x = 0.5 * x + 25 * x / (1 + x**2) + jax.random.normal(move, x.shape)
        log_w = log_w - 0.5 * (seen[:, None] - x**2 / 20) ** 2
        norm = jax.nn.logsumexp(log_w, 1, keepdims=True)
        w = jnp.exp(log_w - norm)
        effective = 1 / (w**2).sum(1)
        u = jax.random.uniform(pick, (filters, 1 if scheme == "systematic" else n))
        high = jnp.cumsum(w, 1) * n
        # how many of the marks u + 0, u + 1, ... lie below each edge: counted by scatter
        below = jnp.clip(jnp.ceil(high - u).astype(jnp.int32), 0, n)
        marks = jax.vmap(lambda b: jnp.zeros(n + 1, jnp.int32).at[b].add(1))(below)
        parent = jnp.minimum(jnp.cumsum(marks, 1)[:, :n], n - 1)
        poor = (effective < n / 2)[:, None]
        x = jnp.where(poor, jnp.take_along_axis(x, parent, 1), x)
        return x, jnp.where(poor, -jnp.log(n), log_w - norm), effective, norm[:, 0]

    return fun, (draw.normal(filters, n), draw.normal(filters, n), draw.normal(filters), draw.key())


@template
def counts_of_topics(draw: Draw):
    """Counts under a Dirichlet multinomial: gradient and the diagonal of second derivatives."""
    rows, c = draw.size(8000, 160000), draw.odd_size(21, 301)
    dtype = draw.dtype("int32", "uint16", "uint8")

    def loss(log_alpha, counts):
        alpha, n = jnp.exp(log_alpha), counts.sum(-1)
        total = alpha.sum()
        parts = gammaln(counts + alpha) - gammaln(alpha) - gammaln(counts + 1.0)
        return -(gammaln(total) - gammaln(n + total) + gammaln(n + 1.0) + parts.sum(-1)).mean()

    def fun(log_alpha, counts):
        counts = counts.astype(jnp.float32)
        alpha = jnp.exp(log_alpha)
        curve = (polygamma(1, counts + alpha) - polygamma(1, alpha)).mean(0)
        fixed = (digamma(counts + alpha) - digamma(alpha)).sum(0)
        n = counts.sum(-1)
        below = (digamma(n + alpha.sum()) - digamma(alpha.sum())).sum()
        return *jax.value_and_grad(loss)(log_alpha, counts), curve, alpha * fixed / below

    return fun, (draw.normal(c, scale=0.5), draw.integers(rows, c, high=40, dtype=dtype))


@template
def survival_times(draw: Draw):
    """The partial likelihood of sorted durations, its gradient and the base hazard."""
    rows, c = draw.size(40000, 800000), draw.size(4, 48)
    strata, ties = draw.choice(1, 4), draw.choice("breslow", "sorted inside")

    def loss(beta, x, event):
        risk = (x @ beta).reshape(strata, -1)
        at_risk = lax.cumlogsumexp(risk, axis=1, reverse=True)
        e = event.reshape(strata, -1)
        return -jnp.where(e, risk - at_risk, 0).sum() / jnp.maximum(e.sum(), 1)

    def fun(beta, x, time, event):
        if ties == "sorted inside":
            order = jnp.argsort(time)
            x, event = x[order], event[order]
        value, slope = jax.value_and_grad(loss)(beta, x, event)
        risk = jnp.exp((x @ beta).reshape(strata, -1))
        left = jnp.flip(jnp.cumsum(jnp.flip(risk, 1), 1), 1)
        hazard = jnp.cumsum(event.reshape(strata, -1) / left, 1)
        return value, slope, hazard

    rows = max(rows // strata, 1) * strata
    args = (draw.normal(c, scale=0.2), draw.normal(rows, c), draw.uniform(rows, high=10))
    return fun, (*args, draw.mask(rows, share=0.6))


@template
def rank_correlations(draw: Draw):
    """Columns become ranks by sorting; correlations of all pairs, and their test values."""
    rows, c, axis = draw.odd_size(3001, 64001), draw.size(16, 256), draw.choice(0, 1)
    kind = draw.choice("spearman", "quadrant", "normal scores")

    def fun(x, weight):
        x = x if axis == 0 else x.T
        ranks = jnp.argsort(jnp.argsort(x, 0), 0).astype(jnp.float32)
        if kind == "quadrant":
            ranks = jnp.sign(ranks - (rows - 1) / 2)
        elif kind == "normal scores":
            ranks = jnp.sqrt(2.0) * lax.erf_inv((2 * ranks + 1) / rows - 1)
        w = (weight / weight.sum())[:, None]
        z = ranks - (w * ranks).sum(0)
        z = z * lax.rsqrt((w * z**2).sum(0) + 1e-12)
        r = (w * z).T @ z
        t = r * jnp.sqrt((rows - 2) / jnp.maximum(1 - r**2, 1e-6))
        return r, 2 * jnp.exp(log_ndtr(-jnp.abs(t)))

    shape = (rows, c) if axis == 0 else (c, rows)
    return fun, (draw.normal(*shape), draw.uniform(rows, low=0.5))


@template
def permuted_groups(draw: Draw):
    """Labels are permuted at random many times: how often a difference is as large as the seen."""
    n, genes, times = draw.size(640, 6400), draw.size(200, 4000), draw.choice(64, 128, 256)
    robust = draw.choice(True, False)

    def fun(x, group, key):
        g = group.astype(jnp.float32)
        shuffled = jax.vmap(lambda k: jax.random.permutation(k, g))(jax.random.split(key, times))
        all_ = jnp.concatenate([g[None], shuffled])
        if robust:
            middle = jnp.median(x, 0)
            width = jnp.median(jnp.abs(x - middle), 0) + 1e-6
            x = jnp.clip((x - middle) / width, -3, 3)
        one = all_.sum(1, keepdims=True)
        mean_1, mean_0 = all_ @ x / one, (1 - all_) @ x / (n - one)
        square = (all_ @ x**2 / one - mean_1**2) / one
        square += ((1 - all_) @ x**2 / (n - one) - mean_0**2) / (n - one)
        t = jnp.abs(mean_1 - mean_0) * lax.rsqrt(jnp.maximum(square, 1e-9))
        largest = t[1:].max(1)
        return t[0], (t[1:] >= t[0]).mean(0), (largest[:, None] >= t[0]).mean(0)

    group = draw.leaf((n,), "bool", lambda r, s: r.permutation(s[0]) < max(s[0] // 2, 2))
    return fun, (draw.normal(n, genes), group, draw.key())
