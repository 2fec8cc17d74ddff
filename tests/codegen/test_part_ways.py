"""Values that one condition chooses again and again: a branch for the way that takes more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import fusionstitch as fs
from fusionstitch.codegen.ir.passes.branches import LEAST
from tests.nearness import assert_near

X = np.linspace(-4, 4, 400, dtype=np.float32)


def polynomial(choices: int) -> Callable[[Any], Any]:
    """One of two polynomials of so many coefficients, one of them of a square root."""

    def run(x: Any) -> Any:
        small = jnp.abs(x) < 3
        t = jnp.where(small, x - 1.5, jnp.sqrt(jnp.abs(x)) - 2)
        total = jnp.zeros_like(x)
        for n in range(choices):
            total = total * t + jnp.where(small, 0.25 * n - 1, 0.5 - 0.125 * n)
        return total * x

    return run


def source(fun: Callable[..., Any], *args: Any) -> str:
    options = fs.Options(backend="emulate", fallback="error", scorer="model")
    [kernel] = fs.jit(fun, options=options).lower(*args).compile().kernels
    return kernel.source


def stitchable(fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """In a loop, which becomes a kernel."""

    def run(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, y: jnp.tanh(fun(y)) + 0.5 * x, x)

    return run


@pytest.mark.parametrize("choices", [LEAST, 9])
def test_the_dearer_way_is_a_branch(choices: int) -> None:
    text = source(stitchable(polynomial(choices)), X)
    [branch] = text.split("if (!(")[1:]
    assert "fs_sqrt" in branch
    assert "fs_sqrt" not in text.split("if (!(")[0]
    assert branch.count("_otherwise = ") > choices


def test_few_choices_stay_and_those_of_which_much_is_made() -> None:
    for fun in (polynomial(LEAST - 1), taken_again):
        assert "_otherwise" not in source(stitchable(fun), X)


def two_results(x: Any) -> Any:
    small = x < 0.3
    a, b = (sum(jnp.where(small, n * k, n - k) * x**n for n in range(3)) for k in (2.0, 3.0))
    return a * jnp.tanh(x) - b * a


def read_again(x: Any) -> Any:
    """What the condition chose last is read by what it did not."""
    small = x < 0.3
    values = [jnp.where(small, 1.0 + n, 2.0 - n) for n in range(5)]
    total = x
    for value in values:
        total = total * x + value
    return total * 0.5 + values[0] * x


def taken_again(x: Any) -> Any:
    """Functions that warps would go through twice, if they go both ways."""
    total = x
    for n in range(6):
        total = jnp.sin(total) * jnp.where(x < 0.3, 1.0 + n, 2.0 - n) + x
    return total


def two_conditions(x: Any) -> Any:
    total = x
    for n in range(5):
        inner = jnp.where(x > 1, 0.5 * n + 0.1, 1.0 - n)
        total = total * jnp.where(x < 0, 0.25 * n - 1, 0.75 - 0.5 * n) + inner
    return total


def not_a_number(x: Any) -> Any:
    x = jnp.where(x > 3, jnp.nan, x)
    return jnp.nan_to_num(polynomial(6)(x) + jnp.where(x == x, 1.0, 2.0))


def normal(x: Any) -> Any:
    return lax.erf_inv(jnp.tanh(x))


@pytest.mark.parametrize(
    "fun",
    [polynomial(4), polynomial(9), two_results, read_again, two_conditions, not_a_number, normal],
)
def test_kernels_give_what_xla_gives(fun: Callable[[Any], Any], host_compiler: str) -> None:
    fun = stitchable(fun)
    assert "_otherwise" in source(fun, X)
    ours = fs.jit(fun, options=fs.Options(backend="emulate", fallback="error"))
    assert_near(ours(X), jax.jit(fun)(X), 2e-6, rough=8e-3)


@st.composite
def programs(draw: st.DrawFn) -> Callable[[Any], Any]:
    """Values that one of two conditions chooses, between numbers or values, or made of two."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["numbers", "numbers", "mixed", "product", "sum", "sine"]),
                *(st.integers(0, 30) for _ in range(2)),
                st.booleans(),
            ),
            min_size=6,
            max_size=24,
        )
    )
    kept = draw(st.lists(st.integers(0, 30), min_size=1, max_size=3))

    def run(x: Any) -> Any:
        conditions = (x < 0.5, x * x > 2.0)
        values = [x, x - 0.5]
        for what, a, b, which in steps:
            condition, one, other = (
                conditions[which],
                values[a % len(values)],
                values[b % len(values)],
            )
            values.append(
                {
                    "numbers": lambda c=condition, a=a, b=b: jnp.where(c, a / 16, 1 - b / 16),
                    "mixed": lambda c=condition, u=one, v=other: jnp.where(c, u, v),
                    "product": lambda u=one, v=other: jnp.tanh(u * v),
                    "sum": lambda u=one, v=other: u * 0.5 + v,
                    "sine": lambda u=one: jnp.sin(u),
                }[what]()
            )
        return sum(values[k % len(values)] for k in kept) + values[-1]

    return run


@settings(max_examples=25, deadline=None)
@given(programs())
def test_grown_programs(host_compiler: str, fun: Callable[[Any], Any]) -> None:
    fun = stitchable(fun)
    ours = fs.jit(fun, options=fs.Options(backend="emulate", fallback="error"))
    assert_near(ours(X), jax.jit(fun)(X), 1e-5, rough=8e-3)
