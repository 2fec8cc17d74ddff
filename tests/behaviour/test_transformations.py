"""The table of programs under every transformation, stage and export, next to jax.jit."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from tests.behaviour.same import assert_same, plain_text
from tests.behaviour.table import CASES, Case, Fun, Jit

pytestmark = pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")


def types(case: Case) -> AbstractContextManager[Any]:
    return jax.enable_x64(True) if case.x64 else contextlib.nullcontext()


def made(case: Case, jit: Jit) -> Fun:
    """The program of a case under `jit`, its static arguments filled in."""
    jitted = jit(case.make(jit), **case.keywords)
    static = case.keywords.get("static_argnums", ())
    fixed = {n: a for n, a in enumerate(case.args()) if n in static}

    def call(*dynamic: Any) -> Any:
        given = iter(dynamic)
        count = len(dynamic) + len(fixed)
        return jitted(*(fixed[n] if n in fixed else next(given) for n in range(count)))

    return call if fixed else jitted


def dynamic(case: Case) -> tuple[Any, ...]:
    static = case.keywords.get("static_argnums", ())
    return tuple(arg for n, arg in enumerate(case.args()) if n not in static)


def loss(fun: Fun) -> Fun:
    """The sum of squares of all float results."""

    def of(*args: Any) -> Any:
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(fun(*args))]
        floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
        return sum((leaf.astype(jnp.float32) ** 2).sum() for leaf in floats)

    return of


def tangents(fun: Fun) -> Fun:
    def of(*args: Any) -> Any:
        out, push = jax.linearize(lambda x: fun(x, *args[1:]), args[0])
        return out, push(args[0])

    return of


def cotangents(fun: Fun) -> Fun:
    return lambda *args: jax.vjp(loss(fun), *args)[1](jnp.float32(2.0))[0]


def mapped(fun: Fun) -> Fun:
    def of(*args: Any) -> Any:
        return jax.vmap(fun)(*jax.tree.map(lambda x: jnp.stack([x, x]), args))

    return of


#: Which cases a transformation is for, and the transformation.
WAYS: dict[str, tuple[Callable[[Case], bool], Callable[[Fun], Fun]]] = {
    "call": (lambda case: True, lambda fun: fun),
    "jit": (lambda case: True, lambda fun: jax.jit(lambda *args: fun(*args))),
    "grad": (lambda case: case.smooth, lambda fun: jax.grad(loss(fun))),
    "value_and_grad": (lambda case: case.smooth, lambda fun: jax.value_and_grad(loss(fun))),
    "linearize": (lambda case: case.smooth, tangents),
    "vjp": (lambda case: case.smooth, cotangents),
    "vmap": (lambda case: case.mapped, mapped),
    "vmap of grad": (
        lambda case: case.smooth and case.mapped,
        lambda fun: mapped(jax.grad(loss(fun))),
    ),
}


def ways(case: Case) -> list[str]:
    return [name for name, (fits, _) in WAYS.items() if fits(case)]


@pytest.mark.parametrize("name", CASES)
def test_inside_a_transformation_it_is_jax_jit(name: str, jit: Jit) -> None:
    """The program that each transformation traces is the one it traces of jax.jit."""
    case = CASES[name]
    with types(case):
        for way in ways(case):
            texts = [
                str(jax.make_jaxpr(WAYS[way][1](made(case, j)))(*dynamic(case)))
                for j in (jit, jax.jit)
            ]
            assert plain_text(texts[0]) == plain_text(texts[1]), way
        shapes = [j(case.make(j), **case.keywords).eval_shape(*case.args()) for j in (jit, jax.jit)]
        assert shapes[0] == shapes[1]
        assert jax.eval_shape(made(case, jit), *dynamic(case)) == jax.eval_shape(
            made(case, jax.jit), *dynamic(case)
        )


@pytest.mark.parametrize("name", CASES)
def test_stages(name: str, jit: Jit) -> None:
    case = CASES[name]
    with types(case):
        ours, theirs = (j(case.make(j), **case.keywords) for j in (jit, jax.jit))
        traced, other_traced = (j.trace(*case.args()) for j in (ours, theirs))
        lowered, other_lowered = traced.lower(), other_traced.lower()
        compiled, other = lowered.compile(), other_lowered.compile()
        assert plain_text(str(traced.jaxpr)) == plain_text(str(other_traced.jaxpr))
        for stage, plain in ((lowered, other_lowered), (compiled, other)):
            for attribute in ("args_info", "in_avals", "in_tree", "out_tree", "out_info"):
                assert getattr(stage, attribute) == getattr(plain, attribute), attribute
            assert stage.donate_argnums == plain.donate_argnums
        if jit is fs.jit:  # the emulator takes unused arguments too
            assert compiled.input_shardings == other.input_shardings
        assert compiled.output_shardings == other.output_shardings
        assert_same(compiled(*dynamic(case)), other(*dynamic(case)), jit is fs.jit)


@pytest.mark.parametrize("name", CASES)
def test_calls(name: str, jit: Jit) -> None:
    """Values, types, trees, places and what is deleted; the second time from the cache."""
    case = CASES[name]
    with types(case):
        ours, theirs = made(case, jit), made(case, jax.jit)
        for _ in range(2):
            mine, others = dynamic(case), dynamic(case)
            # what JAX exports is bound to its device, and so is what the emulator returns
            assert_same(ours(*mine), theirs(*others), jit is fs.jit)
            assert deleted(mine) == deleted(others)


def deleted(args: Any) -> list[bool]:
    return [leaf.is_deleted() for leaf in jax.tree.leaves(args) if isinstance(leaf, jax.Array)]


@pytest.mark.parametrize("name", CASES)
def test_outermost_it_stitches_the_transformation(name: str, emulated: Jit) -> None:
    """`fs.jit` around a transformation of a program that is itself under `fs.jit`."""
    case = CASES[name]
    with types(case):
        for way in [way for way in ways(case) if way in ("value_and_grad", "vmap")]:
            transform = WAYS[way][1]
            ours = emulated(transform(made(case, emulated)))
            compiled = ours.lower(*dynamic(case)).compile()
            assert compiled.fallbacks == ()
            assert bool(compiled.kernels) == case.stitched
            theirs = jax.jit(transform(made(case, jax.jit)))
            assert_same(ours(*dynamic(case)), theirs(*dynamic(case)), committed=False)


@pytest.mark.parametrize("name", CASES)
def test_an_export_is_that_of_jax_jit(name: str, jit: Jit) -> None:
    case = CASES[name]
    with types(case):
        ours, theirs = (
            jax.export.export(j(case.make(j), **case.keywords))(*case.args())
            for j in (jit, jax.jit)
        )
        assert plain_text(ours.mlir_module()) == plain_text(theirs.mlir_module())
        assert (ours.fun_name, ours.in_avals) == (theirs.fun_name, theirs.in_avals)


def test_exports_of_any_size(jit: Jit) -> None:
    fun = CASES["while_loop"].make(jit)
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 6"), jnp.float32)
    exported = jax.export.export(jit(fun))(shape)
    [x], stitched = CASES["while_loop"].args(), jit(exported.call)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for rows in (1, 3):
            want = jax.jit(fun)(x[:rows])
            assert_same(exported.call(x[:rows]), want, committed=False)
            assert_same(stitched(x[:rows]), want, committed=False)
    found = [str(w.message).partition(",")[0] for w in said]
    reason = "call runs as under jax.jit: JAX gives no HLO for this program"
    assert found == ([] if jit is fs.jit else [reason])  # once, however many sizes


def test_disable_jit(jit: Jit) -> None:
    fun = CASES["static_arguments"].make(jit)
    x, *static = CASES["static_arguments"].args()
    jitted = jit(fun, **CASES["static_arguments"].keywords)
    with jax.disable_jit():
        assert_same(jitted(x, *static), functools.partial(fun, x)(*static))
