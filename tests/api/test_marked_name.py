"""Names that show no mark to users and have one in XLA."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.execution import marked_name as module
from fusionstitch.execution.marked_name import MarkedName, marked_name
from fusionstitch.runtime import xla_pass

NAME = marked_name("step", "12ab")


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the marked modules that XLA offers, on the CPU."""
    names: list[str] = []
    monkeypatch.setattr(xla_pass, "_state", xla_pass._State())
    assert xla_pass.register(lambda proto, _: names.append(xla_pass.module_name(proto)), "cpu")
    yield names
    xla_pass.unregister()


def jitted() -> Callable[..., Any]:
    def fun(x: jax.Array) -> jax.Array:
        return jnp.sin(x) * jnp.cos(x)

    fun.__name__ = NAME
    return jax.jit(fun)


def test_a_marked_name_is_the_users() -> None:
    assert isinstance(NAME, MarkedName)
    assert NAME == str(NAME) == "step"
    assert hash(NAME) == hash("step")
    assert repr(NAME) == "'step'"
    assert type(str(NAME)) is str
    assert f"{NAME}" == "step__fs_12ab"
    assert f"{NAME:>14}" == " step__fs_12ab"


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda n: pickle.loads(pickle.dumps(n))]
)
def test_copies_have_the_mark(again: Callable[[str], str]) -> None:
    assert again(NAME) == "step"
    assert f"{again(NAME)}" == f"{NAME}"


def test_marking_again_replaces_the_mark() -> None:
    assert f"{marked_name(NAME, 'cd')}" == "step__fs_cd"


def test_jaxprs_and_stages_show_no_mark() -> None:
    jaxpr = jax.make_jaxpr(jitted())(1.0)
    assert "name=step\n" in str(jaxpr)
    assert jaxpr.eqns[0].params["name"] == "step"
    traced = jitted().trace(1.0)
    assert traced.fun_name == "step"
    assert "step__fs_12ab" in traced.lower().as_text().splitlines()[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f,
        jax.grad,
        jax.checkpoint,
        lambda f: lambda x: jax.vmap(f)(x[None]),
        lambda f: lambda x: jax.vjp(f, x)[1](x),
        lambda f: lambda x: jax.jvp(f, (x,), (x,)),
    ],
    ids=["call", "grad", "checkpoint", "vmap", "vjp", "jvp"],
)
def test_xla_gets_the_mark(change: Callable[..., Any], offered: list[str]) -> None:
    change(jitted())(jnp.float32(1.0))
    assert offered
    assert {xla_pass.read_mark(name) for name in offered} == {("step", "12ab")}


def test_where_jax_names_modules_otherwise_the_mark_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.MarkedName, "__format__", str.__format__)
    module._arrives.cache_clear()
    try:
        name = marked_name("step", "12ab")
    finally:
        module._arrives.cache_clear()
    assert type(name) is str
    assert name == "step__fs_12ab"
