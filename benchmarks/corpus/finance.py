"""Finance: prices and their derivatives, paths, risk, curves, indicators of markets."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import ndtr

from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import template


def _call(s, k, r, v, t):
    root = v * jnp.sqrt(t)
    d = (jnp.log(s / k) + (r + v**2 / 2) * t) / root
    return s * ndtr(d) - k * jnp.exp(-r * t) * ndtr(d - root)


@template
def option_greeks(draw: Draw):
    """A book of options: values, first derivatives and some second ones, by differentiation."""
    n, second = draw.size(100000, 4000000), draw.choice((0, 0), (0, 3), (3, 3))

    def fun(s, k, r, v, t, put):
        value, firsts = jax.vmap(jax.value_and_grad(_call, argnums=(0, 2, 3, 4)))(s, k, r, v, t)
        inner = jax.grad(_call, argnums=second[0])
        twice = jax.vmap(jax.grad(inner, argnums=second[1]))(s, k, r, v, t)
        delta = firsts[0]
        value = jnp.where(put, value - s + k * jnp.exp(-r * t), value)
        return value, jnp.where(put, delta - 1, delta), firsts[1:], twice

    money = (draw.uniform(n, low=50, high=150), draw.uniform(n, low=50, high=150))
    rates = (draw.uniform(n, low=0.001, high=0.08), draw.uniform(n, low=0.1, high=0.6))
    return fun, (*money, *rates, draw.uniform(n, low=0.1, high=3), draw.mask(n, share=0.5))


@template
def average_price_option(draw: Draw):
    """Mirrored paths, arithmetic averages, the geometric one as a control; errors of the mean."""
    paths, steps, axis = draw.size(8000, 120000), draw.size(12, 252), draw.choice(0, 1)

    def fun(spot, strike, rate, vol, key):
        dt = 1 / steps
        shape = (paths, steps) if axis else (steps, paths)
        z = jax.random.normal(key, shape)
        z = jnp.concatenate([z, -z], 1 - axis)
        log_s = jnp.cumsum((rate - vol**2 / 2) * dt + vol * jnp.sqrt(dt) * z, axis)
        s = spot * jnp.exp(log_s)
        arithmetic, geometric = s.mean(axis), spot * jnp.exp(log_s.mean(axis))
        paid, control = jnp.maximum(arithmetic - strike, 0), jnp.maximum(geometric - strike, 0)
        centred = control - control.mean()
        b = (centred * paid).sum() / ((centred**2).sum() + 1e-6)
        var = (paid - b * centred).var()
        discount = jnp.exp(-rate)
        return discount * paid.mean(), discount * jnp.sqrt(var / (2 * paths)), b

    numbers = ((80, 120), (80, 120), (0.01, 0.05), (0.1, 0.4))
    args = tuple(
        draw.leaf((), "float32", lambda r, s, a=a, b=b: r.uniform(a, b, s)) for a, b in numbers
    )
    return fun, (*args, draw.key())


@template
def copula_of_defaults(draw: Draw):
    """Defaults of names that hang on common factors, losses of tranches, by normals or not."""
    scenarios, names, factors = draw.size(8000, 80000), draw.odd_size(51, 251), draw.choice(1, 3)
    heavy, tranches = draw.choice(True, False), ((0.0, 0.03), (0.03, 0.07), (0.07, 0.15))

    def fun(load, p, exposure, recovery, key):
        common, own, shock = jax.random.split(key, 3)
        m = jax.random.normal(common, (scenarios, factors))
        e = jax.random.normal(own, (scenarios, names))
        load = load / jnp.maximum(jnp.linalg.norm(load, axis=1, keepdims=True) * 1.2, 1)
        x = m @ load.T + jnp.sqrt(1 - (load**2).sum(1)) * e
        if heavy:
            g = (jax.random.normal(shock, (scenarios, 5)) ** 2).mean(1, keepdims=True)
            x = x / jnp.sqrt(g)
        lost = jnp.where(x < jnp.sqrt(2.0) * lax.erf_inv(2 * p - 1), exposure * (1 - recovery), 0)
        share = lost.sum(1) / exposure.sum()
        paid = jnp.stack([jnp.clip(share - a, 0, b - a) / (b - a) for a, b in tranches])
        return paid.mean(1), paid.std(1), (lost > 0).mean(0), share

    args = (draw.normal(names, factors, scale=0.5), draw.uniform(names, low=0.005, high=0.1))
    return fun, (*args, draw.uniform(names, high=10), draw.uniform(names, high=0.6), draw.key())


@template
def value_at_risk(draw: Draw):
    """Profits of portfolios over scenarios, second-order terms too; quantiles and tail means."""
    scenarios, assets, books = draw.size(8000, 96000), draw.size(50, 500), draw.size(4, 64)
    share, dtype = draw.number(0.01, 0.05), draw.dtype("float32", "bfloat16")

    def fun(returns, delta, gamma, weight):
        wide = returns.astype(jnp.float32)
        profit = wide @ delta + 0.5 * (wide**2) @ gamma
        order = jnp.argsort(profit, 0)
        ordered = jnp.take_along_axis(profit, order, 0)
        mass = jnp.cumsum(jnp.take_along_axis(weight[:, None] / weight.sum(), order, 0), 0)
        tail = mass <= share
        place = jnp.minimum(tail.sum(0), scenarios - 1)
        var = -jnp.take_along_axis(ordered, place[None], 0)[0]
        mean = -(ordered * tail).sum(0) / jnp.maximum(tail.sum(0), 1)
        worst = (profit < -var) / jnp.maximum((profit < -var).sum(0), 1)
        return var, mean, -jnp.einsum("sb,sa->ab", worst, wide) * delta

    args = (draw.normal(scenarios, assets, dtype=dtype, scale=0.02), draw.normal(assets, books))
    return fun, (*args, draw.normal(assets, books), draw.uniform(scenarios, low=0.1))


@template
def smile_calibration(draw: Draw):
    """A formula of implied volatilities for many smiles: squared errors, gradient and curvature."""
    smiles, strikes, beta = (
        draw.size(32000, 960000),
        draw.odd_size(5, 21),
        draw.choice(0.5, 0.7, 1.0),
    )

    def implied(params, f, k, t):
        alpha, rho, nu = jnp.exp(params[0]), jnp.tanh(params[1]), jnp.exp(params[2])
        log, mid = jnp.log(f / k), (f * k) ** ((1 - beta) / 2)
        z = nu / alpha * mid * log
        chi = jnp.log((jnp.sqrt(1 - 2 * rho * z + z**2) + z - rho) / (1 - rho))
        small = jnp.abs(z) < 1e-3
        ratio = jnp.where(small, 1 - 0.5 * rho * z, z / jnp.where(small, 1, chi))
        below = mid * (1 + (1 - beta) ** 2 / 24 * log**2)
        time = (1 - beta) ** 2 * alpha**2 / (24 * mid**2) + rho * beta * nu * alpha / (4 * mid)
        return alpha / below * ratio * (1 + (time + (2 - 3 * rho**2) * nu**2 / 24) * t)

    def error(params, f, k, t, seen, weight):
        return (weight * (implied(params, f, k, t) - seen) ** 2).sum()

    def fun(params, f, k, t, seen, weight):
        each = jax.vmap(jax.value_and_grad(error))(params, f, k, t, seen, weight)
        slope = jax.vmap(jax.jacfwd(implied))(params, f, k, t)
        return *each, jnp.einsum("nki,nk,nkj->nij", slope, weight, slope)

    params = draw.normal(smiles, 3, scale=0.3, mean=-0.7)
    args = (
        draw.uniform(smiles, 1, low=0.8, high=1.2),
        draw.uniform(smiles, strikes, low=0.5, high=1.6),
    )
    args += (
        draw.uniform(smiles, 1, low=0.1, high=5),
        draw.uniform(smiles, strikes, low=0.1, high=0.5),
    )
    return fun, (params, *args, draw.uniform(smiles, strikes))


@template
def market_indicators(draw: Draw):
    """Bands, strength, channels and crossings of many series from running sums and averages."""
    days, assets, minor = (
        draw.size(500, 5000, 1, 40),
        draw.size(100, 3000),
        draw.choice(True, False),
    )
    window, fast = draw.choice(10, 14, 20), draw.number(0.1, 0.4)
    axis = 1 if minor else 0

    def fun(close, volume):
        def ewma(x, a):
            first = lax.broadcasted_iota(jnp.int32, x.shape, axis) == 0
            keep, fresh = jnp.full(x.shape, 1 - a), jnp.where(first, x, a * x)
            op = lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1])  # noqa: E731, E741
            return lax.associative_scan(op, (keep, fresh), axis=axis)[1]

        def rolling(x):
            total = jnp.cumsum(x, axis)
            return (
                lax.slice_in_dim(total, window, days, axis=axis)
                - lax.slice_in_dim(total, 0, days - window, axis=axis)
            ) / window

        log = jnp.log(close)
        change = jnp.diff(log, axis=axis)
        up, down = ewma(jnp.maximum(change, 0), 1 / 14), ewma(jnp.maximum(-change, 0), 1 / 14)
        strength = 100 - 100 / (1 + up / (down + 1e-9))
        mean, price = rolling(log), lax.slice_in_dim(log, window, days, axis=axis)
        deviation = jnp.sqrt(jnp.maximum(rolling(log**2) - mean**2, 1e-8))
        band = jnp.clip((price - mean) / (2 * deviation), -3, 3)
        macd = ewma(log, fast) - ewma(log, fast / 2)
        signal = jnp.sign(macd - ewma(macd, 0.2)).astype(jnp.int8)
        flow = jnp.cumsum(jnp.sign(change) * lax.slice_in_dim(volume, 1, days, axis=axis), axis)
        return strength, band, signal, flow

    shape = (assets, days) if minor else (days, assets)
    prices = draw.leaf(shape, "float32", lambda r, s: 100 * _walk(r, s, axis))
    return fun, (prices, draw.uniform(*shape, high=1e3))


def _walk(random, shape, axis):
    import numpy as np

    return np.exp(np.cumsum(0.01 * random.standard_normal(shape), axis))


@template
def curve_of_bonds(draw: Draw):
    """Bonds on a curve of rates: prices, durations, convexities and sensitivities to its knots."""
    bonds, coupons, knots = draw.size(8000, 240000), draw.size(8, 60), draw.choice(6, 9, 12)

    def fun(rate, knot, coupon, time, valid):
        def price(rates, shift, coupon, time, valid):
            after = (time[:, None] >= knot).sum(-1)
            right = jnp.clip(after, 1, knots - 1)
            share = (time - knot[right - 1]) / (knot[right] - knot[right - 1])
            share = jnp.clip(share, 0, 1)
            r = (1 - share) * rates[right - 1] + share * rates[right] + shift
            cash = jnp.where(valid, coupon, 0)
            last = valid & ~jnp.concatenate([valid[1:], jnp.zeros(1, bool)])
            return ((cash + 100 * last) * jnp.exp(-r * time)).sum()

        inner = jax.grad(price, argnums=1)
        zero = jnp.zeros(())

        def each(coupon, time, valid):
            p, by_knot = jax.value_and_grad(price)(rate, zero, coupon, time, valid)
            slope, curve = jax.value_and_grad(inner, argnums=1)(rate, zero, coupon, time, valid)
            return p, by_knot, -slope / p, curve / p

        return jax.vmap(each)(coupon, time, valid)

    rates = draw.uniform(knots, low=0.01, high=0.05)
    knot = draw.leaf((knots,), "float32", lambda r, s: (0.2 + r.random(s) * 4).cumsum())
    time = draw.leaf((bonds, coupons), "float32", lambda r, s: (0.2 + r.random(s)).cumsum(1) / 2)
    valid = draw.leaf((bonds, coupons), "bool", lambda r, s: _first(r, s))
    return fun, (rates, knot, draw.uniform(bonds, 1, low=0.5, high=4), time, valid)


def _first(random, shape):
    import numpy as np

    return np.arange(shape[1]) < random.integers(1, shape[1] + 1, (shape[0], 1))


@template
def barrier_option(draw: Draw):
    """Paths that must not touch a barrier, with the chance of touching between the dates."""
    paths, steps = draw.size(64000, 640000), draw.size(10, 120)
    down, minor = draw.choice(True, False), draw.choice(True, False)

    def price(spot, vol, rate, strike, barrier, z):
        dt, axis = 1 / steps, 1 if minor else 0
        log_s = jnp.cumsum((rate - vol**2 / 2) * dt + vol * jnp.sqrt(dt) * z, axis) + jnp.log(spot)
        start = jnp.broadcast_to(jnp.log(spot), lax.slice_in_dim(log_s, 0, 1, axis=axis).shape)
        before = jnp.concatenate([start, lax.slice_in_dim(log_s, 0, steps - 1, axis=axis)], axis)
        b = jnp.log(barrier)
        near, far = (before - b, log_s - b) if down else (b - before, b - log_s)
        touched = jnp.exp(-2 * jnp.maximum(near, 0) * jnp.maximum(far, 0) / (vol**2 * dt))
        alive = jnp.prod(1 - touched, axis)
        last = jnp.exp(jnp.take(log_s, -1, axis))
        return jnp.exp(-rate) * (alive * jax.nn.relu(last - strike)).mean()

    def fun(spot, vol, rate, strike, barrier, z):
        value, slopes = jax.value_and_grad(price, argnums=(0, 1))(
            spot, vol, rate, strike, barrier, z
        )
        return value, slopes

    limit = (70, 90) if down else (140, 180)
    numbers = ((95, 110), (0.15, 0.4), (0.01, 0.05), (90, 110), limit)
    args = tuple(
        draw.leaf((), "float32", lambda r, s, a=a, b=b: r.uniform(a, b, s)) for a, b in numbers
    )
    return fun, (*args, draw.normal(*((paths, steps) if minor else (steps, paths))))


@template
def cosine_prices(draw: Draw):
    """Prices by cosines from a characteristic function with stochastic volatility."""
    options, terms = draw.size(2000, 40000), draw.choice(64, 128, 160)
    model = draw.choice("heston", "jumps")

    def characteristic(u, t, v):
        if model == "jumps":
            jump = jnp.exp(1j * u * -0.1 - 0.5 * u**2 * 0.15**2) - 1
            drift = -0.5 * v - 0.3 * (jnp.exp(-0.1 + 0.5 * 0.15**2) - 1)
            return jnp.exp(t * (1j * u * drift - 0.5 * v * u**2 + 0.3 * jump))
        kappa, theta, sigma, rho = 1.5, 0.05, 0.5, -0.6
        b = kappa - rho * sigma * 1j * u
        d = jnp.sqrt(b**2 + sigma**2 * (u**2 + 1j * u))
        g = (b - d) / (b + d)
        e = jnp.exp(-d * t)
        c = kappa * theta / sigma**2 * ((b - d) * t - 2 * jnp.log((1 - g * e) / (1 - g)))
        return jnp.exp(c + v * (b - d) / sigma**2 * (1 - e) / (1 - g * e))

    def fun(spot, strike, t, v):
        width = 12 * jnp.sqrt(t * (v + 0.05)) + 1
        a, b = -width, width
        k = jnp.arange(terms)
        u = k * jnp.pi / (b - a)[:, None]
        x = jnp.log(spot / strike)[:, None]
        phi = characteristic(u.astype(jnp.complex64), t[:, None], v[:, None])
        # what a call pays, in cosines: the parts of its price above and of its strike
        at_strike = jnp.cos(u * a[:, None]) - u * jnp.sin(u * a[:, None])
        grown = (jnp.cos(k * jnp.pi) * jnp.exp(b)[:, None] - at_strike) / (1 + u**2)
        held = jnp.where(k == 0, b[:, None], jnp.sin(u * a[:, None]) / jnp.where(k == 0, 1, u))
        paid = 2 / (b - a)[:, None] * (grown - held)
        each = (phi * jnp.exp(1j * u * (x - a[:, None]))).real * jnp.where(k == 0, 0.5, 1)
        value = strike * (each * paid).sum(-1)
        return value, jnp.maximum(value, jnp.maximum(spot - strike, 0))

    args = (draw.uniform(options, low=80, high=120), draw.uniform(options, low=80, high=120))
    return fun, (
        *args,
        draw.uniform(options, low=0.2, high=2),
        draw.uniform(options, low=0.02, high=0.1),
    )


@template
def order_books(draw: Draw):
    """Books of bids and asks: imbalances, average prices, flows between times, z-scores."""
    times, levels, assets = draw.size(1000, 40000), draw.choice(5, 10), draw.size(4, 24)
    dtype, depth_first = draw.dtype("float32", "int32"), draw.choice(True, False)
    axis = 1 if depth_first else 2

    def fun(bid, bid_size, ask, ask_size):
        bs, as_ = bid_size.astype(jnp.float32), ask_size.astype(jnp.float32)
        best_bid, best_ask = jnp.take(bid, 0, axis), jnp.take(ask, 0, axis)
        b, a = jnp.take(bs, 0, axis), jnp.take(as_, 0, axis)
        micro = (best_bid * a + best_ask * b) / (a + b)
        imbalance = (bs.sum(axis) - as_.sum(axis)) / (bs.sum(axis) + as_.sum(axis))
        vwap = ((bid * bs).sum(axis) + (ask * as_).sum(axis)) / (bs.sum(axis) + as_.sum(axis))
        higher, equal = best_bid[1:] > best_bid[:-1], best_bid[1:] == best_bid[:-1]
        flow = jnp.where(higher, b[1:], jnp.where(equal, b[1:] - b[:-1], -b[:-1]))
        lower, same = best_ask[1:] < best_ask[:-1], best_ask[1:] == best_ask[:-1]
        flow -= jnp.where(lower, a[1:], jnp.where(same, a[1:] - a[:-1], -a[:-1]))
        z = (flow - flow.mean(0)) / (flow.std(0) + 1e-6)
        spread = (best_ask - best_bid) / (0.5 * (best_ask + best_bid)) * 1e4
        features = jnp.stack(
            [imbalance[1:], (micro - vwap)[1:], jnp.clip(z, -5, 5), spread[1:]], -1
        )
        return features.astype(jnp.bfloat16), jnp.sign(jnp.diff(micro, axis=0)).astype(jnp.int8)

    shape = (times, levels, assets) if depth_first else (times, assets, levels)
    sizes = (draw.integers(*shape, low=1, high=500, dtype=dtype) for _ in range(2))
    bid, ask = (draw.uniform(*shape, low=p, high=p + 0.5) for p in (99, 100))
    return fun, (bid, next(sizes), ask, next(sizes))


@template
def early_exercise(draw: Draw):
    """One step back of an American option: a regression on polynomials decides who exercises."""
    paths, books, degree = draw.size(40000, 800000), draw.size(1, 12), draw.choice(2, 3, 4)

    def fun(spot, cash, strike, discount):
        x = spot / strike[:, None]
        paid = jnp.maximum(1 - x, 0)
        inside = paid > 0
        basis = jnp.stack([x**i * jnp.exp(-x / 2) for i in range(degree)], -1)
        basis = jnp.where(inside[..., None], basis, 0)
        later = cash * discount
        gram = jnp.einsum("bpi,bpj->bij", basis, basis) / paths + 1e-4 * jnp.eye(degree)
        right = jnp.einsum("bpi,bp->bi", basis, jnp.where(inside, later, 0)) / paths
        root = jnp.linalg.cholesky(gram)
        beta = jax.scipy.linalg.cho_solve((root, True), right[..., None])[..., 0]
        go_on = jnp.einsum("bpi,bi->bp", basis, beta)
        now = inside & (paid > go_on)
        new = jnp.where(now, paid, later)
        return new, now.mean(1), new.mean(1), new.std(1) / jnp.sqrt(paths)

    spot = draw.uniform(books, paths, low=60, high=140)
    args = (spot, draw.uniform(books, paths, high=0.4), draw.uniform(books, low=90, high=110))
    return fun, (*args, draw.leaf((), "float32", lambda r, s: r.uniform(0.98, 0.999, s)))


@template
def changing_variances(draw: Draw):
    """Variances that follow squared returns by a linear recurrence: likelihood and gradient."""
    series, days, minor = draw.size(400, 16000), draw.size(250, 2000), draw.choice(True, False)
    heavy = draw.choice(True, False)
    axis = 1 if minor else 0

    def loss(params, returns):
        omega, a, b = (jnp.expand_dims(jax.nn.sigmoid(p), axis) for p in params)
        a, b = 0.3 * a, 0.7 * b
        square = returns**2
        level = square.mean(axis, keepdims=True)
        before = jnp.concatenate([level, lax.slice_in_dim(square, 0, days - 1, axis=axis)], axis)
        first = lax.broadcasted_iota(jnp.int32, returns.shape, axis) == 0
        fresh = omega * level * (1 - a - b) + a * before + jnp.where(first, b * level, 0)
        keep = jnp.broadcast_to(b, returns.shape)

        def combine(left, right):
            return left[0] * right[0], right[0] * left[1] + right[1]

        h = lax.associative_scan(combine, (keep, fresh), axis=axis)[1] + 1e-6
        if heavy:
            each = 0.5 * jnp.log(h) + 3 * jnp.log1p(square / (3 * h))
        else:
            each = 0.5 * (jnp.log(h) + square / h)
        return each.sum(axis).mean()

    params = tuple(draw.normal(series) for _ in range(3))
    shape = (series, days) if minor else (days, series)
    return jax.value_and_grad(loss), (params, draw.normal(*shape))
