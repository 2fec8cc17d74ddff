"""Calls of a function whose programs have different winners: which program a call belongs to."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from tests.trial.conftest import Stage, kinds, options

X = jnp.asarray(np.random.default_rng(0).standard_normal((8, 12), np.float32))


def scaled(x: jax.Array, n: Any = 3, m: Any = 1) -> jax.Array:
    return jax.nn.softmax(x) * n * m


def with_two_winners(stage: Stage, **keywords: Any) -> Any:
    jitted = fs.jit(lambda x, n=3, m=1: scaled(x, n, m), options=options(), **keywords)
    jitted(X)
    stage.us = {"xla": 1.0, "c0": 5.0}
    jitted(X[:4])
    assert kinds(jitted) == {"c0", "xla"}
    return jitted


@pytest.mark.parametrize(
    "keywords",
    [
        {"static_argnums": 1},
        {"static_argnums": (1, 2)},
        {"static_argnums": 1, "static_argnames": "m"},
        {"static_argnames": ["n", "m"]},
    ],
    ids=str,
)
def test_static_arguments_may_be_left_out(stage: Stage, keywords: dict[str, Any]) -> None:
    jitted = with_two_winners(stage, **keywords)
    plain = jax.jit(scaled, **keywords)
    timed = stage.timed.copy()
    for x in (X, X[:4]):
        assert (jitted(x) == plain(x)).all()
    assert stage.timed == timed
    for given in ({"n": 2}, {"m": 2}, {"n": 2, "m": 3}):
        assert (jitted(X, **given) == plain(X, **given)).all()
    assert (jitted(X, 2) == plain(X, 2)).all()
    assert (jitted(X, 2, 4) == plain(X, 2, 4)).all()


@pytest.mark.parametrize(
    "keywords",
    [{"static_argnums": 1, "static_argnames": "m"}, {"static_argnums": 1, "static_argnames": ()}],
    ids=str,
)
def test_an_argument_by_name_is_traced_where_jax_traces_it(
    stage: Stage, keywords: dict[str, Any]
) -> None:
    """With both keywords given, JAX takes no name from a number."""
    jitted = with_two_winners(stage, **keywords)
    n = jnp.float32(2)
    wanted = jax.jit(scaled)(X, n)
    assert (jitted(X, n=n) == wanted).all()
    timed = stage.timed.copy()
    assert (jitted(X, n=n) == wanted).all()
    assert stage.timed == timed


def test_static_arguments_without_a_hash_are_jax_s_error(stage: Stage) -> None:
    jitted = with_two_winners(stage, static_argnames="n")
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        jitted(X, n=[1])


def test_functions_without_a_signature_have_static_arguments(stage: Stage) -> None:
    class Nameless:
        """A function of which Python cannot tell the signature."""

        __name__ = "nameless"
        __signature__ = "none"

        def __call__(self, x: jax.Array, n: int) -> jax.Array:
            return scaled(x, n)

    jitted = fs.jit(Nameless(), options=options(), static_argnums=1)
    assert (jitted(X, 2) == jax.jit(Nameless(), static_argnums=1)(X, 2)).all()


def test_programs_of_static_arguments_alone_are_tried_each(stage: Stage) -> None:
    def table(rows: int) -> jax.Array:
        return scaled(jnp.arange(12.0).reshape(rows, -1))

    jitted = fs.jit(table, options=options(), static_argnums=0)
    for rows in (3, 4):
        stage.timed.clear()
        assert (jitted(rows) == jax.jit(table, static_argnums=0)(rows)).all()
        assert stage.timed["c0"] > 0
