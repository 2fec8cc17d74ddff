"""Factors that do not vary along a sum, and sums that are equal without them."""

from __future__ import annotations

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
#: name -> function of x, y [64, 40], a row [1, 40] and a column [64, 1]; what is left to sum
CASES: dict[str, tuple[Callable, str]] = {
    "a factor": (lambda x, y, row, column: (x * column).sum(1), "parameter()"),
    "a factor of the other axis": (
        lambda x, y, row, column: (x * y * column).sum(0),
        "multiply(multiply, broadcast)",
    ),
    "inside the left product": (lambda x, y, row, column: ((x * row) * y).sum(0), PARAMETERS),
    "inside the right product": (lambda x, y, row, column: (x * (row * y)).sum(0), PARAMETERS),
    "on both sides": (
        lambda x, y, row, column: ((x * row) * (y / row)).sum(0),
        "multiply(multiply, divide)",
    ),
    "twice on one side": (lambda x, y, row, column: (x * (row * y / row)).sum(0), PARAMETERS),
    "of a product": (lambda x, y, row, column: ((x * y) / row * row).sum(0), PARAMETERS),
    "a divisor": (lambda x, y, row, column: (x * (y / row)).sum(0), PARAMETERS),
    "signs": (lambda x, y, row, column: ((-x * row) * -y).sum(0), PARAMETERS),
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
