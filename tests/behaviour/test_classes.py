"""User classes that accept arrays only are never built from placeholders for arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.api import call_of
from fusionstitch.arguments import static_of, takeable
from fusionstitch.reports import trial
from tests.behaviour.same import assert_same, outcome
from tests.behaviour.table import Jit, mixed

X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 6), np.float32))
LARGE = jnp.ones((600, 600)) * 2.0
EMULATE = fs.Options(backend="emulate", scorer="paper")


@jax.tree_util.register_dataclass
@dataclass
class Matrix:
    """Takes arrays of two axes, traced ones among them."""

    x: jax.Array

    def __post_init__(self) -> None:
        if not isinstance(self.x, jax.Array):
            raise TypeError(f"x is no array, but {self.x}")
        if self.x.ndim != 2:
            raise ValueError("x must be a matrix")


@jax.tree_util.register_pytree_node_class
class Positive:
    """Does arithmetic on its field where it is made."""

    def __init__(self, x: Any):
        self.log = jnp.log(1.0 + jnp.abs(x))
        self.x = x

    def tree_flatten(self) -> Any:
        return (self.x,), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> Positive:
        return cls(*children)


def step(state: Matrix, scale: Any = 1.0) -> Matrix:
    return Matrix(mixed(state.x) * scale)


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "an argument and a result": (step, (Matrix(X),), {}),
    "by keyword": (step, (), {"state": Matrix(X), "scale": 2.0}),
    "a result": (lambda x: {"made": Matrix(mixed(x))}, (X,), {}),
    "an argument": (lambda s: mixed(s.x), (Matrix(X),), {}),
    "one that computes": (lambda p: Positive(mixed(p.x) * p.log), (Positive(X),), {}),
    "a large constant": (lambda s: Matrix(mixed(s.x) + LARGE[:4, :6]), (Matrix(X),), {}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls(name: str, jit: Jit) -> None:
    fun, args, kwargs = PROGRAMS[name]
    ours, theirs = jit(fun), jax.jit(fun)
    for _ in range(2):
        assert_same(ours(*args, **kwargs), theirs(*args, **kwargs), committed=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_stages_are_those_of_jax_jit(name: str, jit: Jit) -> None:
    """JAX itself makes the classes of arguments anew where it lowers, but not those of results."""
    fun, args, kwargs = PROGRAMS[name]

    def run(jit: Jit) -> Any:
        return jit(fun).lower(*args, **kwargs).compile()(*args, **kwargs)

    assert outcome(lambda: run(jit)) == outcome(lambda: run(jax.jit))
    if name == "a result":
        assert_same(run(jit), run(jax.jit), committed=False)


def test_static_and_donated_ones(jit: Jit) -> None:
    def run(jit: Jit) -> Any:
        given = Matrix(jnp.array(X))
        result = jit(step, static_argnums=1, donate_argnums=0)(given, 3)
        return result, given.x.is_deleted()

    ours, theirs = run(jit), run(jax.jit)
    assert ours[1] == theirs[1]
    assert_same(ours[0], theirs[0], committed=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_reports(name: str, host_compiler: str) -> None:
    fun, args, kwargs = PROGRAMS[name]
    data = fs.report(fun, *args, options=EMULATE, **kwargs).to_dict()
    assert data["patterns"]
    assert data["max_rel_error"] < 1e-5


def test_plans_of_jitted_functions() -> None:
    """Which of their arguments are static is found out without JAX's tree of them."""
    jitted = jax.jit(lambda s, n, *, m: Matrix(s.x * n + m), static_argnums=1)
    given = (Matrix(X), 3), {"m": 4.0}
    assert static_of(jitted, *given) == {"static_argnums": [1], "static_argnames": []}
    named = jax.jit(step, static_argnames="scale")
    assert static_of(named, (Matrix(X),), {"scale": 2.0})["static_argnames"] == ["scale"]
    assert static_of(jax.jit(step), (Matrix(X), 2.0), {}) == {}
    call = call_of(jitted, *given, fs.Options(backend="emulate", device="h200"))
    assert trial.plan(call).plans


def test_arguments_keep_their_names_and_what_takes_anything_stays() -> None:
    fun, args, kwargs = takeable(step, (Matrix(X),), {"scale": 2.0})
    lowered = jax.jit(fun).lower(*args, **kwargs)
    text = lowered.as_text(debug_info=True)
    assert '"state.x"' in text
    assert '"scale"' in text
    assert takeable(step, (X,), {}) == (step, (X,), {})
