"""Reductions by bodies of the user's own: the right element first, whatever threads do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.codegen.rewrite.bodies import Laws
from fusionstitch.codegen.rewrite.monoids import expressible, laws_of
from fusionstitch.codegen.rewrite.runs import MOST_IN_A_RUN, MOST_IN_RUNS, extents
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from tests.numbers.reference import interpreted
from tests.numbers.same import BACKENDS, assert_same_bits, check, compiled

FREE, IN_ORDER, IN_RUNS = Laws(True), Laws(False), Laws(False, regroups=True)
BY_PLACE = Laws(True, 1)
LOWEST, ZERO, ONE = -np.float32(np.inf), np.float32(0), np.float32(1)


def pick(first, a, b):
    return tuple(jnp.where(first, x, y) for x, y in zip(a, b, strict=True))


def with_places(body, init=0):
    """(largest value, its place) along the last axis, by a body of pairs."""

    def fun(x):
        places = lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
        return lax.reduce((x, places), (LOWEST, np.int32(init)), body, (x.ndim - 1,))

    return fun


def by(body, init):
    return lambda x: lax.reduce(x, init, body, (x.ndim - 1,))


def last_largest(a, b):
    return pick(~((b[0] >= a[0]) | (b[0] != b[0])), a, b)


def no_nan(a, b):
    return pick((a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1])), a, b)


def absolute(a, b):
    return jnp.maximum(jnp.abs(a), jnp.abs(b))


def unsafe_logaddexp(a, b):
    top = jnp.maximum(a, b)
    return top + jnp.log(jnp.exp(a - top) + jnp.exp(b - top))


def matrices(a, b):
    """Of matrices (x, y; 0, 1), whose product depends on the order."""
    return a[0] * b[0], a[0] * b[1] + a[1]


def variances(a, b):
    n = a[0] + b[0]
    apart, total = b[1] - a[1], jnp.maximum(n, 1.0)
    return n, a[1] + apart * b[0] / total, a[2] + b[2] + apart**2 * a[0] * b[0] / total


def reduced(body, *inits):
    """A reduction of as many values as there are inits, all of them x or (from x) 1 - x."""
    return lambda x: lax.reduce(
        tuple(x if k % 2 == 0 else 1 - x for k in range(len(inits))), inits, body, (x.ndim - 1,)
    )


BODIES = {
    "argmax": (lambda x: jnp.argmax(x, -1), BY_PLACE),
    "argmin": (lambda x: jnp.argmin(x, -1), BY_PLACE),
    "argmax of integers": (lambda x: jnp.argmax((x * 4).astype(int), -1), FREE),
    "argmax of bytes": (lambda x: jnp.argmax((x * 4).astype(jnp.int8), -1), FREE),
    "last largest": (with_places(last_largest), BY_PLACE),
    "largest from the end": (with_places(no_nan, 2**31 - 1), IN_ORDER),
    "nan ignored": (by(lambda a, b: jnp.where(a > b, a, b), LOWEST), IN_ORDER),
    "nan first": (by(lambda a, b: jnp.where((a >= b) | (a != a), a, b), LOWEST), IN_RUNS),
    "first": (by(lambda a, b: a, ZERO), IN_RUNS),
    "last": (by(lambda a, b: b, ZERO), IN_RUNS),
    "difference": (by(lambda a, b: a - b, ZERO), IN_ORDER),
    "twice": (by(lambda a, b: 2 * a + b, ZERO), IN_ORDER),
    "absolute": (by(absolute, ZERO), FREE),
    "sum from five": (by(lambda a, b: (a + b) * 1.0 + 0.0, np.float32(5)), IN_RUNS),
    "unsafe logaddexp": (by(unsafe_logaddexp, LOWEST), IN_RUNS),
    "logaddexp": (by(jnp.logaddexp, LOWEST), FREE),
    "matrices": (reduced(matrices, ONE, ZERO), IN_RUNS),
    "sums": (reduced(lambda a, b: (a[0] + b[0], a[1] + b[1]), ZERO, ZERO), FREE),
    "complex": (
        reduced(lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]), ONE, ZERO),
        FREE,
    ),
    "variances": (
        lambda x: lax.reduce(
            (jnp.ones_like(x), x, 0 * x), (ZERO, ZERO, ZERO), variances, (x.ndim - 1,)
        ),
        FREE,
    ),
    "both and any": (
        lambda x: lax.reduce(
            (x > 0, x < 0), (True, False), lambda a, b: (a[0] & b[0], a[1] | b[1]), (x.ndim - 1,)
        ),
        FREE,
    ),
}
#: Those of exact values.
EXACT = sorted(set(BODIES) - {"logaddexp", "unsafe logaddexp", "sums", "complex", "variances"})


def the_reduce(fun, x):
    data = jax.jit(fun).lower(x).compiler_ir("hlo").as_serialized_hlo_module_proto()
    [op] = [op for op in from_proto(inline_calls(data)).entry if op.opcode == "reduce"]
    return op


@pytest.mark.parametrize("name", BODIES)
def test_laws(name):
    fun, wanted = BODIES[name]
    assert laws_of(the_reduce(fun, np.ones((3, 5), np.float32))) == wanted


def test_a_body_that_gives_no_numbers_is_not_taken_to_regroup():
    fun = by(lambda a, b: (a - a) / (b - b), ZERO)
    assert laws_of(the_reduce(fun, np.ones((3, 5), np.float32))) == IN_ORDER


@pytest.mark.parametrize("name", BODIES)
def test_how_long_rows_may_be(name):
    """Any body's may have so many elements, longer ones take one that regroups."""
    fun, wanted = BODIES[name]
    for n, allowed in ((MOST_IN_A_RUN, True), (MOST_IN_A_RUN + 1, wanted != IN_ORDER)):
        verdict = expressible(the_reduce(fun, np.ones((3, n), np.float32)))
        assert bool(verdict) == allowed
    assert verdict or verdict.facts == (("elements", n), ("limit", MOST_IN_A_RUN))
    verdict = expressible(the_reduce(fun, np.ones((3, MOST_IN_RUNS + 1), np.float32)))
    assert bool(verdict) == wanted.free


def test_runs_cover_their_rows():
    for n in range(MOST_IN_A_RUN + 1, 3000):
        count, each = extents(n)
        assert (count - 1) * each < n <= count * each
        assert max(count, each) <= MOST_IN_A_RUN
    assert extents(MOST_IN_RUNS) == (MOST_IN_A_RUN, MOST_IN_A_RUN)


def in_their_order(join, inits, *values):
    """Rows folded from the left by NumPy."""
    total = tuple(np.full(values[0].shape[0], init) for init in inits)
    for column in zip(*(v.T for v in values), strict=True):
        total = join(total, column)
    return total


def affine(a, b):
    """x -> p x + q, one after the other, in integers that wrap around."""
    return a[0] * b[0], a[1] * b[0] + b[1]


def squares(a, b):
    """Products of matrices of two rows."""
    return tuple(a[i] * b[j] + a[i + 1] * b[j + 2] for i, j in ((0, 0), (0, 1), (2, 0), (2, 1)))


def not_nothing(a, b):
    """The last that is not zero."""
    return (jnp.where(b[0] != 0, b[0], a[0]),)


ORDERED = {"affine": (affine, 2, 7), "squares": (squares, 4, 3), "last": (not_nothing, 1, -5)}


@pytest.mark.parametrize("shape", [(5, 513), (3, 1021), (2, 40_000), (1, 262_144)])
@pytest.mark.parametrize("name", ORDERED)
def test_long_rows_are_joined_in_their_order(name, shape):
    """From inits that are not neutral, with runs that do not come out even."""
    join, count, init = ORDERED[name]
    rng = np.random.default_rng(shape[1])
    values = [rng.integers(-3, 4, shape).astype(np.int32) for _ in range(count)]
    inits = tuple(np.int32(init) for _ in range(count))

    def program(*values):
        given = tuple(v - 1 for v in values)
        if count > 1:
            return lax.reduce(given, inits, join, (1,))
        return lax.reduce(given[0], inits[0], lambda a, b: join((a,), (b,))[0], (1,))

    run = compiled(program, *values, backend="emulate")
    assert run.kernels
    want = in_their_order(
        lambda a, b: tuple(map(np.asarray, join(a, b))), inits, *(v - 1 for v in values)
    )
    for got, wanted in zip(jax.tree.leaves(run(*values)), want, strict=True):
        np.testing.assert_array_equal(np.asarray(got), wanted)


@pytest.mark.parametrize("dims", [(0,), (0, 2), (1, 2), (0, 1, 2)])
def test_long_reductions_of_several_dims_keep_their_order(dims):
    x = np.random.default_rng(0).integers(-3, 4, (31, 6, 29)).astype(np.int32)
    y = x[::-1].copy()
    inits = (np.int32(1), np.int32(0))
    run = compiled(
        lambda x, y: lax.reduce((x * 2, y - 1), inits, affine, dims), x, y, backend="emulate"
    )
    assert run.kernels
    kept = [d for d in range(3) if d not in dims]
    rows = [
        np.transpose(v, (*kept, *dims)).reshape(int(np.prod([x.shape[d] for d in kept])), -1)
        for v in (x * 2, y - 1)
    ]
    for got, wanted in zip(run(x, y), in_their_order(affine, inits, *rows), strict=True):
        np.testing.assert_array_equal(np.asarray(got).ravel(), wanted)


def special(shape, seed):
    """Few different values, so that many are equal, and NaN, infinities and zeros of either sign;
    rows without NaN, and of one value alone, among them."""
    rng = np.random.default_rng(seed)
    values = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan], np.float32)
    x = rng.choice(values, shape)
    x[::3] = np.where(np.isnan(x[::3]), 1, x[::3])
    x[1::5] = rng.choice(values, x[1::5].shape[:1])[:, None]
    return x


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [6, 100, 500, 3000])
@pytest.mark.parametrize("name", ["argmax", "argmin", "argmax of integers"])
def test_the_first_of_equals_and_of_nans_wins(name, n, backend):
    """XLA for GPUs gives any NaN of a row."""
    fun = BODIES[name][0]
    x = special((37, n), n)
    if "integers" in name:
        x = np.nan_to_num(x, posinf=3, neginf=-3)
    check(lambda x: fun(x * 2), x, backend=backend, on_cpu=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_nan_of_a_very_long_row_wins(backend):
    x = np.random.default_rng(0).normal(size=1 << 17).astype(np.float32)
    x[[100_000, 777, 50_001]] = np.nan
    [got] = check(lambda x: jnp.argmax(x * 2), x, backend=backend)
    assert got == 777


@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_nan_of_columns_wins(axis):
    x = special((300, 40), 7)
    check(lambda x: (jnp.argmax(x * 2, axis), jnp.argmin(x * 3, axis)), x)
    check(lambda x: jnp.argmax(x * 2, axis), np.tile(x, (8, 2)))


@pytest.mark.parametrize("name", EXACT)
def test_bodies_on_special_values(name):
    """Bit for bit what the interpreter of StableHLO gives, which goes through each row in order;
    XLA:CPU regroups."""
    fun, laws = BODIES[name]
    x = special((37, 60), 3)
    if not laws.free and name not in ("first", "last", "nan ignored", "nan first"):
        x = np.nan_to_num(x, posinf=3, neginf=-3)
    if "integers" in name or "bytes" in name:
        x = np.nan_to_num(x, posinf=3, neginf=-3)

    def program(x):
        results = fun(x * 2)
        # a tie may be won by a zero of either sign where tuples are compared
        return jax.tree.map(abs, results) if laws == BY_PLACE else results

    run = compiled(program, x, backend="emulate")
    assert run.kernels
    for got, want in zip(jax.tree.leaves(run(x)), interpreted(program, x), strict=True):
        assert_same_bits(np.asarray(got), want)


@pytest.mark.parametrize("name", sorted(set(BODIES) - set(EXACT)))
def test_bodies_of_rounded_values(name):
    fun, _ = BODIES[name]
    x = np.random.default_rng(1).normal(size=(37, 60)).astype(np.float32)
    check(lambda x: jax.tree.map(lambda v: jnp.round(v * 0.1, 2), fun(x * 0.3 + 0.5)), x)
