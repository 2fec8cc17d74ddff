"""Reductions by bodies of the user's own: the right element first, whatever threads do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from codegen.bodies import Laws
from codegen.monoids import MOST_IN_ORDER, expressible, laws_of
from hlo.importer import from_proto
from hlo.inline import inline_calls
from tests.numbers.reference import interpreted
from tests.numbers.same import BACKENDS, assert_same_bits, check, compiled

FREE, IN_ORDER = Laws(True), Laws(False)
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
    "nan first": (by(lambda a, b: jnp.where((a >= b) | (a != a), a, b), LOWEST), IN_ORDER),
    "first": (by(lambda a, b: a, ZERO), IN_ORDER),
    "last": (by(lambda a, b: b, ZERO), IN_ORDER),
    "difference": (by(lambda a, b: a - b, ZERO), IN_ORDER),
    "twice": (by(lambda a, b: 2 * a + b, ZERO), IN_ORDER),
    "absolute": (by(absolute, ZERO), FREE),
    "sum from five": (by(lambda a, b: (a + b) * 1.0 + 0.0, np.float32(5)), IN_ORDER),
    "unsafe logaddexp": (by(unsafe_logaddexp, LOWEST), IN_ORDER),
    "logaddexp": (by(jnp.logaddexp, LOWEST), FREE),
    "matrices": (reduced(matrices, ONE, ZERO), IN_ORDER),
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


@pytest.mark.parametrize("name", BODIES)
def test_long_rows_of_other_bodies_are_left_to_xla(name):
    fun, wanted = BODIES[name]
    verdict = expressible(the_reduce(fun, np.ones((3, MOST_IN_ORDER + 1), np.float32)))
    assert bool(verdict) == wanted.free
    if not verdict:
        assert verdict.facts == (("elements", MOST_IN_ORDER + 1), ("limit", MOST_IN_ORDER))


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
    if laws == IN_ORDER and name not in ("first", "last", "nan ignored", "nan first"):
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
