"""Every function in every wrapping, in every order: the same program runs as under jax.jit."""

from __future__ import annotations

import copy
import functools
import inspect
import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from tests.behaviour.conftest import EMULATE
from tests.behaviour.same import assert_same, outcome, plain_text
from tests.behaviour.table import Jit, mixed
from tests.behaviour.wrappings import (
    WRAPPINGS,
    CallableObject,
    arguments,
    base,
    sequences,
    wrapped,
)

JITS = tuple(name for name, one in WRAPPINGS.items() if one.jits)
SEQUENCES = [*sequences(1, JITS), *sequences(2, JITS), *sequences(3, ["jit"])]
X = jnp.arange(24.0).reshape(4, 6)

donations = pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")


def program(names: tuple[str, ...], jit: Jit) -> tuple[Any, ...]:
    """What is traced of the wrapped function, short ones with keywords too; or how it fails."""
    fun, (x, scale) = wrapped(names, jit), arguments(names)
    texts: list[str] = []

    def trace() -> None:
        texts.append(plain_text(str(jax.make_jaxpr(fun)(x, scale))))
        if len(names) < 3:
            texts.append(plain_text(str(jax.make_jaxpr(fun)(x, scale=scale))))

    return outcome(trace), texts


@pytest.mark.parametrize("outermost", WRAPPINGS)
def test_the_program_is_that_of_jax_jit(outermost: str) -> None:
    jit = functools.partial(fs.jit, options=EMULATE)
    here = [names for names in SEQUENCES if names[0] == outermost]
    other = [n for n in here if program(n, jit) != program(n, jax.jit)]
    assert other == []


@donations
@pytest.mark.parametrize("between", WRAPPINGS)
def test_calls_give_what_jax_jit_gives(between: str, jit: Jit) -> None:
    """Between two jits, where what the inner one left on the function reaches the outer one."""
    names = ("donating_jit", between, "jit")
    (x, scale), (other, _) = arguments(names), arguments(names)
    assert_same(wrapped(names, jit)(x, scale), wrapped(names, jax.jit)(other, scale), False)
    assert x.is_deleted() == other.is_deleted()
    x, scale = arguments(names)
    assert_same(
        wrapped(names, jit)(x + 1.0, scale=scale),
        wrapped(names, jax.jit)(x + 1.0, scale=scale),
        False,
    )


@donations
@pytest.mark.parametrize("between", WRAPPINGS)
@pytest.mark.parametrize("outer", ["donating_jit", "static_jit"])
def test_stages_keep_the_outer_keywords(outer: str, between: str, jit: Jit) -> None:
    names = (outer, between, "jit")

    def info(jit: Jit) -> Any:
        fun, args = wrapped(names, jit), arguments(names)
        if outer == "static_jit":
            fun, args = fun.func, (*fun.args, *args)
        lowered = fun.lower(*args)
        return lowered.args_info, lowered.out_info, fun.eval_shape(*args)

    assert info(jit) == info(jax.jit)


# --- attributes -----------------------------------------------------------------------------------


def marked_by_user() -> Any:
    def fun(x: jax.Array) -> jax.Array:
        """Of the user."""
        return mixed(x)

    fun.options, fun.keywords = 1, 2  # type: ignore[attr-defined]
    return fun


FUNCTIONS = {
    "function": lambda: marked_by_user(),
    "lambda": lambda: lambda x: mixed(x),
    "partial": lambda: functools.partial(marked_by_user()),
    "jitted": lambda: jax.jit(marked_by_user()),
    "gradient": lambda: jax.grad(jax.jit(lambda x: mixed(x).sum())),
    "object": lambda: CallableObject(lambda x, scale: mixed(x * scale)),
    "method": lambda: CallableObject(lambda x, scale: mixed(x * scale)).__call__,
    "class": lambda: Pair,
    "built-in": lambda: sum,
}


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize("name", FUNCTIONS)
def test_attributes_are_those_of_jax_jit(name: str, jit: Jit) -> None:
    fun = FUNCTIONS[name]()
    ours, theirs = jit(fun), jax.jit(fun)
    own = {"_fun", "_jit_info"}  # of JAX
    assert {k: v for k, v in vars(ours).items() if k not in own} == {
        k: v for k, v in vars(theirs).items() if k not in own
    }
    assert repr(ours).partition(" of ")[2] == repr(theirs).partition(" of ")[2]
    assert outcome(lambda: inspect.signature(ours)) == outcome(lambda: inspect.signature(theirs))
    assert weakref.ref(ours)() is ours


def test_objects_whose_attributes_are_named_as_ours(jit: Jit) -> None:
    made = CallableObject(base)
    x, scale = arguments(())
    jitted = jit(made)
    assert (jitted.options, jitted.keywords, jitted._execution) == ("the user's",) * 3
    assert_same(jitted(x, scale), jax.jit(base)(x, scale), committed=False)
    assert_same(
        jitted.lower(x, scale).compile()(x, scale), jax.jit(base)(x, scale), committed=False
    )


def test_functions_whose_attributes_are_named_as_methods_of_jax_jit(jit: Jit) -> None:
    def fun(x: jax.Array) -> jax.Array:
        return mixed(x)

    methods = [name for name in dir(jax.jit(mixed)) if name[:1] != "_"]
    vars(fun).update(dict.fromkeys([*methods, "_cache_size", "_clear_cache"], "the user's"))
    jitted = jit(fun)
    assert {"trace", "lower", "eval_shape", "clear_cache"} <= set(methods)
    assert jitted.trace == jax.jit(fun).trace == "the user's"
    assert_same(jitted(X), jax.jit(mixed)(X), committed=False)
    assert_same(jit(jitted)(X), jax.jit(mixed)(X), committed=False)
    compiled = type(jitted).lower(jitted, X).compile()
    assert_same(compiled(X), jax.jit(mixed)(X), committed=False)


def test_arguments_whose_names_are_ours(jit: Jit) -> None:
    """A method that is jitted unbound takes `self`, which callers may name."""

    def fun(self: jax.Array, own: jax.Array, args: jax.Array, kwargs: jax.Array) -> jax.Array:
        return mixed(self) + own * args - kwargs

    named = {"self": X, "own": X + 1.0, "args": X + 2.0, "kwargs": X + 3.0}
    ours, theirs = jit(fun), jax.jit(fun)
    assert_same(ours(**named), theirs(**named), committed=False)
    assert_same(jit(ours)(**named), theirs(**named), committed=False)
    assert ours.eval_shape(**named) == theirs.eval_shape(**named)
    for lowered in (ours.lower(**named), ours.trace(**named).lower()):
        assert lowered.in_tree == theirs.lower(**named).in_tree
        lowered.compile()


def test_what_wraps_puts_on_a_jitted_function_does_not_change_what_runs(jit: Jit) -> None:
    other = jit(lambda x: x - 1.0)
    jitted = functools.wraps(other)(jit(mixed))
    assert_same(jitted(X), jax.jit(mixed)(X), committed=False)
    assert_same(jitted.lower(X).compile()(X), jax.jit(mixed)(X), committed=False)
    assert_same(copy.copy(jitted)(X), jax.jit(mixed)(X), committed=False)
    assert_same(other(X), X - 1.0, committed=False)


def test_classes(jit: Jit) -> None:
    assert_same(jit(Pair)(X, right=X), jax.jit(Pair)(X, right=X), committed=False)


def test_partials_with_arguments(jit: Jit) -> None:
    def fun(factor: float, x: jax.Array, n: int = 2, *, shift: float = 0.0) -> jax.Array:
        return mixed(x) * factor**n + shift

    def made(jit: Jit) -> Any:
        inner = functools.partial(jit(fun, static_argnums=2, static_argnames="shift"), 3.0)
        static = ("n", "shift")
        middle = jit(inner, static_argnames=static)
        return jit(functools.partial(middle, n=1, shift=0.5), static_argnames=static)

    for keywords in ({}, {"shift": 1.0}, {"n": 3}):
        assert_same(made(jit)(X, **keywords), made(jax.jit)(X, **keywords), committed=False)


def test_an_object_without_a_text(jit: Jit) -> None:
    class Textless(CallableObject):
        def __repr__(self) -> str:
            raise RuntimeError("no text")

    jitted = jit(Textless(base))
    assert repr(jitted) == "<fusionstitch.jit>"
    assert repr(jax.jit(Textless(base))) == "<PjitFunction>"
    assert_same(jitted(*arguments(())), jax.jit(base)(*arguments(())), committed=False)
