"""A program that XLA has not simplified gets the values that jax.jit gives."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.hlo.algebra_rules import XLA
from fusionstitch.hlo.as_xla import as_xla
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.verify import verify, verify_module
from fusionstitch.supported import xla_version

HERE = xla_version()
#: What results overflow from, are no numbers for, or are rounded.
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.7,
    3.3,
    0.013,
    200.0,
    -200.0,
    1e30,
    -3e38,
    1e-30,
    np.inf,
    -np.inf,
    np.nan,
]
X, Y = (
    np.array(each, np.float32) for each in zip(*itertools.product(SPECIAL, SPECIAL), strict=True)
)
Z = np.roll(X, 5)
C = np.array([3, -3, 7, 1e-30, 1e30, 0.3, 1.7, 1e30, -1e30, 7e8, 2e-30, 1, 0, 5], np.float32)
D = np.float32(1.1) * C[::-1]
W = len(SPECIAL)


def full(value):
    return jnp.full_like(X, value)


def zeros(y, zero):
    """As XLA alone finds out: JAX does not ask it to add a zero."""
    return jnp.where(jnp.abs(y) < 0, 1.0, zero)


#: rule -> programs of (x, y, z), with x and y every pair of SPECIAL, in which XLA applies it
CASES = {
    "plus_any_zero": [lambda x, y, z: x + zeros(y, 0.0)],
    "minus_any_zero": [lambda x, y, z: x - zeros(y, -0.0)],
    "constants_summed": [
        lambda x, y, z: (x + 3e38) + 3e38,
        lambda x, y, z: 3e38 + (3e38 + x),
        lambda x, y, z: (3e38 - x) - 2e38,
        lambda x, y, z: (x - 1e8) + 1e8,
        lambda x, y, z: (x - 0.1) - 0.3,
        lambda x, y, z: (y[:W] + C) + D,
        lambda x, y, z: (y[:W] - C) + D,
    ],
    "power_of_two_factored": [
        lambda x, y, z: x * 2.0**100 + y * 2.0**100,
        lambda x, y, z: 2.0**-100 * x + y * 2.0**-100,
    ],
    "mask_selects": [
        lambda x, y, z: (z > 0) * x,
        lambda x, y, z: x * (z > 0).astype(jnp.float32),
        lambda x, y, z: (jnp.isfinite(x) * jnp.abs(x)).max() * (z > 0) + (x > y) * z,
        lambda x, y, z: jnp.exp((z > 0) * x) * (y < 2),
    ],
    "constants_of_both_multiplied": [lambda x, y, z: (y[:W] * C) * (y[1 : W + 1] * D)],
    "constants_multiplied": [
        lambda x, y, z: x * 1e30 * 1e30,
        lambda x, y, z: 1e-30 * (1e30 * x),
        lambda x, y, z: x * 1e30 * 1e30 * 1e-30 * 1e-30,
        lambda x, y, z: x * 3.0 / 5.0,
        lambda x, y, z: (y[:W] * C) * D,
    ],
    "constant_into_broadcast": [
        lambda x, y, z: (x * 1e30) * x[4 * W],
        lambda x, y, z: (x.reshape(W, W) * 1e-30) * y[:W],
    ],
    "exponentials_multiplied": [
        lambda x, y, z: jnp.exp(x) * jnp.exp(-x),
        lambda x, y, z: jnp.exp(x) * jnp.exp(y),
    ],
    "exponentials_divided": [lambda x, y, z: jnp.exp(x) / jnp.exp(y)],
    "over_exponential": [lambda x, y, z: x / jnp.exp(y)],
    "over_power": [lambda x, y, z: x / lax.pow(jnp.abs(y), full(1.7))],
    "over_root": [lambda x, y, z: x / jnp.sqrt(y), lambda x, y, z: x / lax.rsqrt(y)],
    "over_constant": [
        lambda x, y, z: x / 3.0,
        lambda x, y, z: y[:W] / C,
        lambda x, y, z: x[:, None] / jnp.array([3.0, 5.0, 7.0]),
    ],
    "quotient_over_quotient": [lambda x, y, z: (x / y) / (z / (x + y))],
    "quotient_divided": [lambda x, y, z: (x / y) / z],
    "over_quotient": [lambda x, y, z: x / (y / z), lambda x, y, z: 1 / (1 / x)],
    "mask_divided": [lambda x, y, z: (x > y) / x[0] + (x > y) / x[-1]],
    "exponential_to_a_power": [lambda x, y, z: lax.pow(jnp.exp(x), jnp.abs(y))],
    "constant_power": [
        lambda x, y, z: lax.pow(x, full(3.0)),
        lambda x, y, z: lax.pow(x, full(-1.0)),
        lambda x, y, z: lax.pow(jnp.abs(x), full(0.5)) + lax.pow(jnp.exp(y), full(0.5)),
    ],
    "root_of_square": [lambda x, y, z: jnp.sqrt(x * x), lambda x, y, z: lax.pow(x * x, full(0.5))],
    "logarithm_of_exponential": [lambda x, y, z: jnp.log(jnp.exp(x))],
    "logarithm_of_power": [lambda x, y, z: jnp.log(lax.pow(x, y))],
    "logarithm_of_root": [
        lambda x, y, z: jnp.log(jnp.sqrt(x)),
        lambda x, y, z: jnp.log(lax.rsqrt(x)),
    ],
    "compared_with_zero": [
        lambda x, y, z: jnp.exp(x) >= 0,
        lambda x, y, z: full(0.0) <= lax.max(x, full(0.0)),
        lambda x, y, z: jnp.where(x > y, jnp.abs(x), y * y) >= 0,
    ],
}

#: Programs that XLA computes as they are written, although a rule seems to be near.
LEFT = {
    "a root that is read elsewhere": lambda x, y, z: (lambda s: (x / s, s))(jnp.sqrt(y)),
    "a product that is read elsewhere": lambda x, y, z: (lambda a: (a + y * 4.0, a))(x * 4.0),
    "a factor that is no power of two": lambda x, y, z: x * 3e30 + y * 3e30,
    "a mask behind a broadcast": lambda x, y, z: (z > 0).astype(jnp.float32)[:, None] * x[None],
    "a mask by way of integers": lambda x, y, z: (z > 0).astype(jnp.int32).astype(jnp.float32) * x,
    "a quotient of 16 bits": lambda x, y, z: x.astype(jnp.bfloat16) / 255,
    "a selected mask": lambda x, y, z: jnp.where(z > 0, 1.0, 0.0) * x,
    "constants of both kinds": lambda x, y, z: (x[:W] * C) * 1e30,
    "a power that may be of less than 0": lambda x, y, z: lax.pow(x, full(0.5)),
    "sums that cancel": lambda x, y, z: (x + (y - x)) + ((x + z) - z),
    "equal numbers": lambda x, y, z: (x - x, x / x, x * 0.0),
    "logarithm of 1 + x": lambda x, y, z: jnp.log(1 + jnp.exp(x)),
    "integers": lambda x, y, z: (z > 0) * jnp.arange(z.size) // 3,
    "roots of one number": lambda x, y, z: (lambda s: s * s)(jnp.sqrt(x)),
}
#: Rules that change the values of one of their programs alone, or of none by NumPy's functions.
SOMETIMES = ("constants_summed", "constant_power", "logarithm_of_root")
ROWS = [(rule, number) for rule in CASES for number in range(len(CASES[rule]))]


def lowered(fun, *args):
    data = (
        jax.jit(fun, keep_unused=True)
        .lower(*args)
        .compiler_ir("hlo")
        .as_serialized_hlo_module_proto()
    )
    return from_proto(inline_calls(data))


def assert_same(got, want):
    assert got.dtype == want.dtype
    if want.dtype == np.bool_:
        np.testing.assert_array_equal(got, want)
        return
    # XLA takes subnormals for zero on the CPU, not on a GPU
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=1.2e-38)
    zero = (want == 0) & (got == 0)
    np.testing.assert_array_equal(np.signbit(got)[zero], np.signbit(want)[zero])


def bits(arrays):
    """What arrays hold; all numbers that are none are one."""
    return [np.where(a == a, a, np.array(np.nan).astype(a.dtype)).tobytes() for a in arrays]


@pytest.fixture
def applied(monkeypatch):
    """The names of the rules that are applied, in the order in which that happens."""
    names = []

    def told(row):
        def apply(op):
            result = row.apply(op)
            if result is not None:
                names.append(row.name)
            return result

        return dataclasses.replace(row, apply=apply)

    monkeypatch.setattr(XLA, "rows", [told(row) for row in XLA.rows])
    return names


@pytest.mark.parametrize(("rule", "number"), ROWS)
def test_values_are_those_of_jit(rule, number, applied):
    fun = CASES[rule][number]
    before = lowered(fun, X, Y, Z)
    plain = evaluate(before.entry, [X, Y, Z])
    after = as_xla(before, HERE)
    assert (rule in applied) == any(row.name == rule and is_here(row) for row in XLA.rows)
    verify(after.entry)
    verify_module(after.proto.SerializeToString())
    got = evaluate(after.entry, [X, Y, Z])
    for value, want in zip(got, jax.tree.leaves(jax.jit(fun)(X, Y, Z)), strict=True):
        assert_same(value, np.asarray(want))
    assert bits(got) != bits(plain) or rule in SOMETIMES or rule not in applied
    assert as_xla(after, HERE) is after


def is_here(row):
    return row.before is None or row.before > HERE


def test_every_rule_has_a_case():
    assert list(CASES) == list(dict.fromkeys(row.name for row in XLA.rows))
    assert all(" -> " in row.says for row in XLA.rows)


@pytest.mark.parametrize("version", [(0, 11), (0, 11, 1), (0, 11, 2), (0, 12)])
def test_versions(version):
    """Later versions of XLA have fewer of the rules, whatever is installed."""
    names = {row.name for rows in XLA.of(version).values() for row in rows}
    assert ("root_of_square" in names) == (version < (0, 11, 1))
    assert ("exponentials_multiplied" in names) == (version < (0, 11, 2))
    assert ("constants_multiplied" in names) == (version < (0, 12))
    assert names >= {"mask_selects", "over_constant", "logarithm_of_power"}


@pytest.mark.parametrize("name", LEFT)
def test_what_xla_leaves_stays(name):
    module = lowered(LEFT[name], X, Y, Z)
    assert as_xla(module, HERE) is module


def test_long_chains_come_to_an_end():
    """Constants are taken together by pairs, once in each sweep."""

    def chain(x, y, z):
        for _ in range(1200):
            x = x * 1.001
        return x

    module = as_xla(lowered(chain, X, Y, Z), HERE)
    [got] = evaluate(module.entry, [X, Y, Z])
    np.testing.assert_allclose(got, jax.jit(chain)(X, Y, Z), rtol=1e-4, atol=1.2e-38)
