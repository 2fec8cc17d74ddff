"""Programs whose loops become kernels as wholes, row by row, and their plans on the emulator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import fusionstitch as fs
from fusionstitch.compiler import builders, core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.plan.scores import is_loop

draw = np.random.default_rng(0)
ROWS = draw.standard_normal((12, 40), np.float32)


def lorenz(y: jax.Array) -> Any:
    def slope(y: jax.Array) -> jax.Array:
        a, b, c = y
        return jnp.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c])

    def step(y: jax.Array, _: None) -> Any:
        h = 0.01
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        y = y + h * k2
        return y, y

    return lax.scan(step, y, None, length=20)


def adaptive(y: jax.Array) -> Any:
    """A while per row: rows stop on their own."""

    def one(y: jax.Array) -> jax.Array:
        def step(s: Any) -> Any:
            y, t, h = s
            k = -y * (y + 1)
            error = jnp.abs(h * k)
            taken = error < 0.1
            longer = jnp.clip(h * 0.09 / (error + 1e-9), 1e-4, 0.2)
            return jnp.where(taken, y + h * k, y), jnp.where(taken, t + h, t), longer

        return lax.while_loop(lambda s: s[1] < 2.0, step, (y, 0.0, 0.05))[0]

    return jax.vmap(one)(y)


def averages(xs: jax.Array) -> Any:
    return lax.scan(lambda c, x: (0.9 * c + 0.1 * x,) * 2, jnp.zeros(xs.shape[1:]), xs)


def reversed_sums(xs: jax.Array) -> Any:
    def step(c: jax.Array, x: jax.Array) -> Any:
        return jnp.tanh(c + x), c.sum()

    return lax.scan(step, jnp.zeros(xs.shape[1:]), xs, reverse=True)


def logistic_map(x: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 100, lambda i, x: 3.7 * x * (1 - x), x)


def small_product(x: jax.Array) -> jax.Array:
    a = jnp.asarray(np.random.RandomState(1).randn(4, 4).astype(np.float32) * 0.3)
    return lax.fori_loop(0, 10, lambda i, x: jnp.tanh(a @ x) + i * 0.1, x)


def nested(x: jax.Array) -> jax.Array:
    def inner(i: jax.Array, x: jax.Array) -> jax.Array:
        turn = lambda j, x: x + 0.1 * jnp.sin(x + j + i)  # noqa: E731
        return lax.fori_loop(0, 3, turn, x) * 0.99

    return lax.fori_loop(0, 5, inner, x)


def swapped(x: jax.Array) -> Any:
    """Each carried value becomes the other one."""
    return lax.fori_loop(0, 27, lambda i, s: (s[1], s[0] + 1), (x, -x))


def collatz(n: jax.Array) -> jax.Array:
    def step(s: Any) -> Any:
        n, i = s
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), i + 1

    return jax.vmap(lambda n: lax.while_loop(lambda s: s[0] != 1, step, (n, 0))[1])(n)


def half_written(x: jax.Array) -> Any:
    """Every other element of the output keeps what it had first."""

    def step(i: jax.Array, s: Any) -> Any:
        x, out = s
        return x * 0.5, lax.dynamic_update_index_in_dim(out, x, 2 * i, 0)

    return lax.fori_loop(0, 3, step, (x, jnp.full((8, *x.shape), 7.0)))


def never(x: jax.Array) -> jax.Array:
    return lax.while_loop(lambda s: s[0] > 1e9, lambda s: (s[0] * 2 + 1, s[1]), (x, x))[0]


def bfloat(x: jax.Array) -> jax.Array:
    start = jnp.abs(x).astype(jnp.bfloat16)
    return lax.fori_loop(0, 30, lambda i, x: x * 1.5 - x * x, start)


def down(x: jax.Array) -> jax.Array:
    """A counter that goes down, in 8 bits."""
    start = (jnp.int8(99), x)
    return lax.while_loop(lambda s: s[0] > 2, lambda s: (s[0] - jnp.int8(3), s[1] * 2), start)[1]


def escapes(x: jax.Array) -> Any:
    """Rows are masked by hand, for a number of iterations at most, and begin on a grid."""
    at = jnp.linspace(-1.5, 0.5, x.shape[0]) + 0.01 * x

    def step(s: Any) -> Any:
        z, count, left, i = s
        going = jnp.abs(z) < 2
        z = jnp.where(going & (count < 7), z * z + at, z)
        left = jnp.where(~going, left, left * 0.5)
        return z, count + going.astype(jnp.int32), left, i + 1

    start = (jnp.zeros_like(x), jnp.zeros(x.shape, jnp.int32), x, 0)
    going = lambda s: jnp.any(jnp.abs(s[0]) < 2) & (s[3] < 9)  # noqa: E731
    return lax.while_loop(going, step, start)[:3]


def together(x: jax.Array) -> Any:
    """Rows change as long as one of them is large: none may stop on its own."""
    going = lambda s: jnp.any(s[0] > 0.5) & (s[1] < 6)  # noqa: E731
    return lax.while_loop(going, lambda s: (s[0] * 0.7, s[1] + 1), (x, 0))[0]


def later(x: jax.Array) -> Any:
    """A row's condition depends on the number of the iteration: one that stopped may go on."""
    mask = lambda s: (s[1] % 2 == 0) | (s[0] > 1)  # noqa: E731

    def step(s: Any) -> Any:
        return jnp.where(mask(s), s[0] + 0.5, s[0]), s[1] + 1

    return lax.while_loop(lambda s: jnp.any(mask(s)) & (s[1] < 4), step, (x, 0))[0]


def counted_too(x: jax.Array) -> Any:
    """How often all of them went on is read after the loop."""
    going = lambda s: jnp.any(s[0] > 0.5) & (s[1] < 6)  # noqa: E731
    step = lambda s: (jnp.where(s[0] > 0.5, s[0] * 0.7, s[0]), s[1] + 1)  # noqa: E731
    return lax.while_loop(going, step, (x, 0))


def both_ways(xs: jax.Array) -> Any:
    """Two loops that begin with the same: an average from the first on, one from the last."""
    step = lambda c, x: (0.9 * c + 0.1 * x,) * 2  # noqa: E731
    start = jnp.zeros(xs.shape[1:])
    return [lax.scan(step, start, xs, reverse=reverse)[1] for reverse in (False, True)]


def two_from_one(x: jax.Array) -> Any:
    """Two solvers from one state, which is also read after them."""
    more = lambda y: jnp.max(jnp.abs(y)) > 1  # noqa: E731
    slow = lax.while_loop(more, lambda y: y * 0.9, x)
    return slow, lax.while_loop(more, lambda y: y * 0.5, x), jnp.cos(x)


def two_ends(x: jax.Array) -> Any:
    """Two counters, of which the slower one would stop the loop later."""

    def step(s: Any) -> Any:
        i, j, x = s
        return i + 1, j + 3, x * 0.9 + 0.1 * i + 0.01 * j

    return lax.while_loop(lambda s: (s[0] < 9) & (s[1] <= 14), step, (0, -1, x))


def _masked(
    going: Callable[[jax.Array], jax.Array],
    after: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
) -> Callable[[jax.Array], Any]:
    """Rows that keep what they have by a mask that is carried, while the time of any is below 1;
    `going` is the mask at first, `after` after an iteration, of the mask, the time and the row."""

    def step(s: Any) -> Any:
        y, t, mask, i = s
        later = jnp.minimum(t + 0.05 + 0.1 * jnp.abs(y), 1.0)
        y_after = jnp.where(mask, y * 0.9 + 0.01, y)
        return y_after, jnp.where(mask, later, t), after(mask, later, y), i + 1

    def once(_: Any, x: jax.Array) -> jax.Array:
        start = 0.9 * x
        more = lambda s: jnp.any(s[1] < 1.0) & (s[3] < 30)  # noqa: E731
        y, t, mask, _ = lax.while_loop(more, step, (x, start, going(start), 0))
        return y + 0.3 * t + mask

    return lambda x: lax.fori_loop(0, 2, once, x)


#: By what the mask is at first, and after an iteration.
masked = _masked(lambda t: t < 1.0, lambda mask, t, y: mask & (t < 1.0))
masked_by_more = _masked(lambda t: (t > 0) & (t < 1), lambda mask, t, y: (t < 1) & (y > 0) & mask)
#: Masks that hold for rows that would not go on by themselves, or hold again.
masked_too_long = _masked(lambda t: t < 2.0, lambda mask, t, y: mask & (t < 1.0))
masked_by_another = _masked(lambda t: t < 1.0, lambda mask, t, y: mask & (y > 0.5))
masked_again = _masked(lambda t: t < 1.0, lambda mask, t, y: (t < 1.0) & (y > 0.5))
masked_by_the_last = _masked(lambda t: t < 1.0, lambda mask, t, y: mask & (t - 0.1 < 1.0))


def masked_from_nothing(x: jax.Array) -> Any:
    """The mask and the time begin with constants, as diffrax has them."""

    def step(s: Any) -> Any:
        y, t, mask, _, i = s
        later = jnp.minimum(t + 0.05 + 0.1 * jnp.abs(y), 1.0)
        y_after = jnp.where(mask, y * 0.9 + 0.01, y)
        return y_after, jnp.where(mask, later, t), mask & (later < 1.0), mask, i + 1

    more = lambda s: jnp.any(s[1] < 1.0) & (s[4] < 30)  # noqa: E731
    going = jnp.ones(x.shape, bool)
    return lax.while_loop(more, step, (x, jnp.zeros_like(x), going, going, 0))[:3]


def until(stops: Callable[..., Any]) -> Callable[[jax.Array], Any]:
    """Each row goes on until it is done, under vmap: `stops` says of the row's state whether it is
    asked again, which is a value, a flag and a count."""

    def one(x: jax.Array) -> Any:
        def step(s: Any) -> Any:
            y, done, count = s
            y = 0.8 * y + 0.05
            return y, done | (y < 0.5), count + 1

        return lax.while_loop(lambda s: jnp.logical_not(stops(*s)), step, (x, x < 0.5, 0))

    return jax.vmap(one)


def done_by_hand(
    goes_on: Callable[[jax.Array], jax.Array],
    kept: Callable[..., jax.Array] = lambda done, old, new: jnp.where(done, old, new),
    after: Callable[[jax.Array, jax.Array], jax.Array] = jnp.logical_or,
) -> Callable[[jax.Array], Any]:
    """Rows that are done keep what they have, while not all of them are."""

    def step(s: Any) -> Any:
        y, done, i = s
        y = kept(done, y, 0.8 * y + 0.05)
        return y, after(done, y < 0.5), i + 1

    going = lambda s: goes_on(s[1]) & (s[2] < 20)  # noqa: E731
    return lambda x: lax.while_loop(going, step, (x, x < 0.5, 0))[:2]


not_all_done = lambda done: ~jnp.all(done)  # noqa: E731
any_not_done = lambda done: jnp.any(~done)  # noqa: E731


def looked_up(x: jax.Array) -> jax.Array:
    """Each row has its own index in a table."""
    table = jnp.cos(jnp.arange(9.0))
    place = lambda x: jnp.abs(x * 50).astype(jnp.int32) % 9  # noqa: E731
    return lax.fori_loop(0, 30, lambda i, x: 0.5 * x + table[place(x)], x)


def computed_again(xs: jax.Array) -> Any:
    """A gradient whose loop computes again, after barriers, what the first one did."""

    @jax.checkpoint
    def step(c: jax.Array, x: jax.Array) -> Any:
        c = jnp.tanh(c * x + 0.5)
        return c, c * c

    def total(xs: jax.Array) -> jax.Array:
        return jnp.sum(lax.scan(step, jnp.zeros(xs.shape[1:]), xs)[1])

    return jax.grad(total)(xs)


def fields(x: jax.Array) -> Any:
    """Four fields a row and a step, read and written."""

    def step(s: jax.Array, x: jax.Array) -> Any:
        turned = jnp.stack([x[0] - s[1], x[1] + s[0], x[3] * s[3], x[2] + s[2]])
        return 0.5 * turned, turned

    return jax.vmap(lambda x: lax.scan(step, jnp.zeros(4), x))(x)


def put(array: jax.Array, part: jax.Array, place: Any) -> jax.Array:
    return lax.dynamic_update_index_in_dim(array, part, place, 0)


def warped(xs: jax.Array) -> Any:
    """A loop in a loop fills a row's array, from which the outer one makes another."""

    def one(a: jax.Array) -> jax.Array:
        def row(above: jax.Array, x: jax.Array) -> Any:
            def cell(left: jax.Array, given: Any) -> Any:
                up, corner, b = given
                value = (x - b) ** 2 + jnp.minimum(jnp.minimum(left, up), corner)
                return value, value

            values = lax.scan(cell, jnp.float32(1e9), (above[1:], above[:-1], a[::-1]))[1]
            return jnp.concatenate([jnp.full(1, 1e9), values]), None

        return lax.scan(row, jnp.full(len(a) + 1, 1e9).at[0].set(0.0), a)[0]

    return jax.vmap(one)(xs)


def stages(y: jax.Array) -> Any:
    """A step reads the slopes of all stages, also of those that it has not come to."""
    weights = jnp.tril(jnp.arange(1.0, 17.0).reshape(4, 4) / 16, -1)

    def stage(y: jax.Array, s: Any) -> Any:
        i, ks = s
        return i + 1, put(ks, jnp.cos(y + 0.1 * jnp.einsum("i,ir->r", weights[i], ks)), i)

    def step(n: Any, y: jax.Array) -> jax.Array:
        start = jnp.int32(0), jnp.zeros((4, len(y)))
        return y + 0.1 * lax.while_loop(lambda s: s[0] < 4, partial(stage, y), start)[1].sum(0)

    return lax.fori_loop(0, 5, step, y)


def ring(xs: jax.Array) -> Any:
    """Sums of the last 20 values: each replaces the oldest."""

    def step(s: Any, x: jax.Array) -> Any:
        n, held, total = s
        total += x - held[n % 20]
        return (n + 7, put(held, x, n % 20), total), total

    return lax.scan(step, (0, jnp.zeros((20, xs.shape[1])), jnp.zeros(xs.shape[1])), xs)


def filled_sometimes(xs: jax.Array) -> Any:
    """A loop in a branch fills an array; where it does not run, the array is another one."""

    def fill(s: jax.Array, x: jax.Array) -> jax.Array:
        go = lambda c: (c[0] + 1, put(c[1], x * c[0] + s[0], 17 - c[0]))  # noqa: E731
        return lax.while_loop(lambda c: c[0] < 18, go, (jnp.int32(0), s))[1]

    def step(c: Any, x: jax.Array) -> Any:
        n, s = c
        return (n + 1, lax.cond(n % 3 == 1, fill, lambda s, x: s * 0.5 + x, s, x)), s[1]

    return lax.scan(step, (0, jnp.ones((18, xs.shape[1]))), xs)


#: Programs, and the rows of each loop of theirs, which all become kernels.
PROGRAMS: dict[str, tuple[Callable[..., Any], jax.Array | np.ndarray, list[int]]] = {
    "lorenz": (lorenz, draw.standard_normal((3, 64), np.float32), [64]),
    "adaptive": (adaptive, np.abs(ROWS[0]), [40]),
    "averages": (averages, ROWS, [40]),
    "reversed": (reversed_sums, ROWS, [40]),
    "logistic map": (logistic_map, np.float32(0.3), [1]),
    "small product": (small_product, ROWS[0, :4], [1]),
    "nested": (nested, ROWS[0], [40]),
    "swapped": (swapped, ROWS[0], [40]),
    "collatz": (collatz, np.arange(1, 50), [49]),
    "half written": (half_written, ROWS[0], [40]),
    "never": (never, ROWS[0, 0], [1]),
    "bfloat": (bfloat, ROWS[0] * 0.1, [40]),
    "down": (down, ROWS[0], [40]),
    "escapes": (escapes, ROWS[0], [40]),
    "together": (together, np.abs(ROWS[0]), [1]),
    "later": (later, ROWS[0], [1]),
    "counted too": (counted_too, np.abs(ROWS[0]), [40]),
    "two ends": (two_ends, ROWS[0], [40]),
    "masked": (masked, ROWS[0], [40]),
    "masked from nothing": (masked_from_nothing, ROWS[0], [40]),
    "masked by more": (masked_by_more, ROWS[0], [40]),
    "masked too long": (masked_too_long, ROWS[0], [1]),
    "masked by another": (masked_by_another, ROWS[0], [1]),
    "masked again": (masked_again, ROWS[0], [1]),
    "masked by the last": (masked_by_the_last, ROWS[0], [1]),
    "looked up": (looked_up, ROWS[0], [40]),
    "computed again": (computed_again, ROWS, [40, 40]),
    "both ways": (both_ways, ROWS, [40, 40]),
    "until done": (until(lambda y, done, count: done), 3 * np.abs(ROWS[0]), [40]),
    "until below": (until(lambda y, done, count: y <= 0.6), 3 * np.abs(ROWS[0]), [40]),
    "until either": (until(lambda y, done, n: done | (n > 3)), 3 * np.abs(ROWS[0]), [40]),
    "until both": (until(lambda y, done, n: done & (n > 3)), 3 * np.abs(ROWS[0]), [40]),
    "not all done": (done_by_hand(not_all_done), 3 * np.abs(ROWS[0]), [40]),
    "any not done": (done_by_hand(any_not_done), 3 * np.abs(ROWS[0]), [40]),
    "kept the other way": (
        done_by_hand(not_all_done, lambda done, old, new: jnp.where(done, new, old)),
        3 * np.abs(ROWS[0]),
        [1],
    ),
    "done for once": (
        done_by_hand(not_all_done, after=lambda done, below: below & ~done),
        3 * np.abs(ROWS[0]),
        [1],
    ),
    "while any is done": (done_by_hand(jnp.any), 3 * np.abs(ROWS[0]), [1]),
    "fields": (fields, draw.standard_normal((40, 9, 4), np.float32), [40]),
    "warped": (warped, ROWS[:, :7], [12]),
    "stages": (stages, ROWS[0], [40]),
    "ring": (ring, ROWS, [40]),
    "filled sometimes": (filled_sometimes, ROWS, [40]),
    "two from one": (two_from_one, ROWS[0], [1, 1]),
}


def stitched(fun: Callable[..., Any], *args: Any, **options: Any) -> Stitched:
    data = jax.jit(fun).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    chosen = fs.Options(backend="emulate", **options)
    return core.stitch(data, chosen, builders.profile(chosen), None)


def rows_of(found: Stitched) -> list[int]:
    loops = [one for plan in found.plans for one in plan.chosen if is_loop(one.pattern)]
    return [dict(one.facts.facts)["rows"] for one in loops]  # type: ignore[misc]
