"""Factors that do not vary along a sum, and sums that are equal without them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch import Options, jit
from fusionstitch.codegen.rewrite.factors import take_out_factors
from fusionstitch.codegen.rewrite.strength import reduce_strength
from fusionstitch.codegen.rewrite.strength_rules import RULES
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.verify import verify
from tests.codegen.kernel_cases import batch_norm
from tests.codegen.regions import whole_of

X, Y = (np.random.default_rng(i).standard_normal((64, 40), np.float32) for i in range(2))
ROW, COLUMN = X[:1] + 3, X[:, :1] + 3


def simpler(graph: Graph) -> Graph:
    found = reduce_strength(take_out_factors(reduce_strength(graph, RULES)), RULES)
    verify(found)
    return found


def sums(graph: Graph) -> list[Op]:
    return [op for op in graph if op.opcode == "reduce"]


def summed(graph: Graph) -> list[str]:
    """The opcodes of what is summed, and of what that is made of."""
    sources = [op.operands[0] for op in sums(graph)]
    return [f"{s.opcode}({', '.join(o.opcode for o in s.operands)})" for s in sources]


PARAMETERS = "multiply(parameter, parameter)"
LEFT, RIGHT = "multiply(multiply, parameter)", "multiply(parameter, multiply)"
#: name -> function of x, y [64, 40], a row [1, 40] and a column [64, 1]; what is left to sum
CASES: dict[str, tuple[Callable, str]] = {
    "a factor": (lambda x, y, row, column: (x * column).sum(1), "parameter()"),
    "a factor of the other axis": (
        lambda x, y, row, column: (x * y * column).sum(0),
        "multiply(multiply, broadcast)",
    ),
    "inside the left product": (lambda x, y, row, column: ((x * row) * y).sum(0), LEFT),
    "inside the right product": (lambda x, y, row, column: (x * (row * y)).sum(0), RIGHT),
    "on both sides": (
        lambda x, y, row, column: ((x * row) * (y / row)).sum(0),
        "multiply(multiply, divide)",
    ),
    "twice on one side": (
        lambda x, y, row, column: (x * (row * y / row)).sum(0),
        "multiply(parameter, divide)",
    ),
    "of a product": (lambda x, y, row, column: ((x * y) / row * row).sum(0), PARAMETERS),
    "a divisor": (lambda x, y, row, column: (x / row).sum(0), "parameter()"),
    "a divisor inside a product": (
        lambda x, y, row, column: (x * (y / row)).sum(0),
        "multiply(parameter, divide)",
    ),
    "a divisor of what is at most 1": (
        lambda x, y, row, column: (x * (jnp.tanh(y) / (row * row + 1))).sum(0),
        "multiply(parameter, tanh)",
    ),
    "a divisor beside what is at most 1": (
        lambda x, y, row, column: ((x * 0.5) * jnp.tanh(y)).sum(0),
        "multiply(parameter, tanh)",
    ),
    "a factor of what is at most 1 that may be large": (
        lambda x, y, row, column: (x * (jnp.tanh(y) * row)).sum(0),
        RIGHT,
    ),
    "signs": (lambda x, y, row, column: ((-x * -y) * -row).sum(0), PARAMETERS),
    "what scales squares": (
        lambda x, y, row, column: ((x * column) ** 2).sum(1),
        "multiply(multiply, multiply)",
    ),
    "a constant that keeps numbers in range": (
        lambda x, y, row, column: (x * (y * 1e-20)).sum(1),
        "multiply(parameter, multiply)",
    ),
    "no factor": (lambda x, y, row, column: (x * (y * x)).sum(0), "multiply(parameter, multiply)"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_to_sum(name: str) -> None:
    fun, left = CASES[name]
    graph = whole_of(fun, X, Y, ROW, COLUMN)
    found = simpler(graph)
    assert summed(found) == [left]
    values = [(X, Y, ROW, COLUMN)[i] for i in kept_parameters(fun)]
    [one], [other] = (evaluate(g, values, float64=True) for g in (graph, found))
    np.testing.assert_allclose(other, one, rtol=1e-10)


def kept_parameters(fun: Callable) -> list[int]:
    """The arguments that `jax.jit` keeps: those that are used."""
    jaxpr = jax.make_jaxpr(fun)(X, Y, ROW, COLUMN).jaxpr
    used = {v for e in jaxpr.eqns for v in e.invars if not hasattr(v, "val")}
    return [i for i, v in enumerate(jaxpr.invars) if v in used]


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_norms_that_are_scaled_first_stay_in_range(size: float, host_compiler: str) -> None:
    def norms(x, y, scale):
        s, t = (abs(z).max(1, keepdims=True) for z in (x, y))
        lengths = (
            s * jnp.sqrt(jnp.sum((z / s) ** 2, 1, keepdims=True)) for z in (x / s * scale, x)
        )
        whole = jnp.sum((x / abs(x).max()) * (y / abs(y).max()), 0)
        return *lengths, whole, jnp.sum((x / s) * (y / t), 1), jnp.sum((x * 1e-25) * (x * 1e-25), 0)

    args = X * np.float32(size), Y * np.float32(size), np.float32(2)
    ours = jit(norms, options=Options(backend="emulate", scorer="model", fallback="error"))
    for mine, other in zip(ours(*args), jax.jit(norms)(*args), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


EMULATED = Options(backend="emulate", scorer="model", fallback="error")


def _weighted(x, w):
    """A centre of mass, by weights that are divided by their sum first."""
    return (x * (w / w.sum(1, keepdims=True))).sum(1)


def _squares_over_their_size(x, w):
    return jnp.sum((x / x.mean(1, keepdims=True)) * x, 1), jnp.sum((x / w[:, :1]) * x, 1)


def _mean_and_products(x, w):
    return (x / 40).sum(1), (x * (w * 0.025)).sum(1), (-x * (1 / w)).sum(0)


def _inner_factor_first(x, w):
    """The factor that is nearer to x keeps it in range for the other."""
    return (1e25 / w[:, :1] * (x * (w[:, :1] * 1e-25))).sum(1)


def _softmax_of_logs(x, w):
    """Weights of at most 1, whose divisor leaves the sum."""
    return (x * jax.nn.softmax(jnp.log(w), 1)).sum(1)


#: Functions of positive x, w [64, 40] with factors in their sums.
RANGES: tuple[Callable, ...] = (
    _weighted,
    _squares_over_their_size,
    _mean_and_products,
    _inner_factor_first,
    _softmax_of_logs,
)


@pytest.mark.parametrize("fun", RANGES)
def test_sums_are_in_range_where_the_terms_are(fun: Callable, host_compiler: str) -> None:
    """In kernels, and in regions whether or not they are worth a kernel."""
    plain, ours = jax.jit(fun), jit(fun, options=EMULATED)
    region = simpler(whole_of(fun, X, Y))
    compared = 0
    for of_x, of_w in itertools.product(
        (1e-30, 1e-25, 1, 1e11, 1e25, 1e30, 1e36), (1e-30, 1, 1e30, 1e34)
    ):
        args = [abs(z) * np.float32(s) for z, s in ((X + 3, of_x), (Y + 3, of_w))]
        found = [jax.tree.leaves(f(*args)) for f in (plain, ours)]
        with np.errstate(all="ignore"):
            found.append(evaluate(region, args))
        for expected, *rest in zip(*found, strict=True):
            # XLA on the CPU takes subnormal terms for 0
            there = np.isfinite(expected) & (abs(expected) > 1e-32)
            compared += there.sum()
            for mine in rest:
                np.testing.assert_allclose(np.asarray(mine)[there], expected[there], rtol=2e-5)
    assert compared > 1000


def test_sums_in_f16_keep_their_factors(host_compiler: str) -> None:
    """A mean whose sum is beyond 65504, and a step of it."""

    def mean(x, n):
        return jax.lax.reduce(x / n, np.float16(0), jax.lax.add, (1,))

    graph = whole_of(mean, X.astype(np.float16), COLUMN.astype(np.float16))
    assert summed(simpler(graph)) == summed(graph)


def test_a_softmax_beside_a_product_does_not_wait_for_its_sum() -> None:
    for weights in (
        lambda x: jax.nn.softmax(x, 1),
        lambda x: jax.nn.softmax(jnp.where(x > 0, x, -1e30) * 0.5, 1),
        lambda x: jax.nn.softmax(x, 1, where=x > 0),
    ):
        graph = whole_of(lambda x, y, of=weights: (of(x) * y).sum(1), X, Y)
        *_, last = sums(simpler(graph))
        made_of = [op.opcode for op in last.operands[0].operands]
        assert "divide" not in made_of, made_of


def test_sums_that_differ_in_factors_alone_become_one() -> None:
    """The gradient of a batch norm sums dy and dy * (x - m) twice each, with other factors."""

    def both(x, gain, bias, dy):
        y, back = jax.vjp(lambda *a: jax.nn.relu(batch_norm(*a)), x, gain, bias)
        return y, back(dy)

    graph = whole_of(both, X, ROW[0], ROW[0], Y)
    found = simpler(graph)
    assert len(sums(found)) < len(sums(graph))
    masked = [s for s in summed(found) if "select" in s]
    assert len(masked) == 2
    args = X, ROW[0], ROW[0], Y
    for one, other in zip(*(evaluate(g, args, float64=True) for g in (graph, found)), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-7)


def test_equal_sums_become_one() -> None:
    graph = whole_of(lambda x: (jnp.exp(x).sum(0) + 1, jnp.exp(x).sum(0) * 2, x.sum(1)), X)
    doubled = reduce_strength(graph, RULES)
    assert len(sums(doubled)) == 2
