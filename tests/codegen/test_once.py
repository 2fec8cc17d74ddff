"""Loops whose iterations read what they made at several indices: it is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from benchmarks.loops.forced import taken
from fusionstitch.codegen.loops.once import Synchronisation, materialized
from fusionstitch.compiler import core
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph
from tests.codegen.whole_loop_programs import stitched
from tests.nearness import assert_near
from tests.patterns.edits import module_of

FIELD = np.random.default_rng(0).uniform(0, 1, (24, 20)).astype(np.float32)


def slope(u: Any) -> Any:
    near = sum(jnp.roll(u, n, a) for n in (1, -1) for a in (0, 1))
    return 0.1 * (near - 4 * u) + u * (1 - u) * jnp.exp(-u)


def midpoint(u: Any) -> Any:
    """Runge-Kutta of second order: a stencil of what a stencil gives."""
    return lax.fori_loop(0, 5, lambda _, u: u + 0.1 * slope(u + 0.05 * slope(u)), u)


def runge_kutta(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        a = slope(u)
        b = slope(u + 0.05 * a)
        c = slope(u + 0.05 * b)
        return u + 0.1 / 6 * (a + 2 * b + 2 * c + slope(u + 0.1 * c))

    return lax.fori_loop(0, 5, step, u)


def padded(u: Any) -> Any:
    """What lies outside is zero."""

    def step(_: Any, u: Any) -> Any:
        for _ in range(2):
            v = jnp.tanh(u * 1.5)
            wide = jnp.pad(v, 1)
            u = 0.5 * v + 0.125 * (wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + v)
        return u

    return lax.fori_loop(0, 5, step, u)


def red_and_black(u: Any) -> Any:
    red = (jnp.indices(u.shape).sum(0) % 2) == 0

    def step(_: Any, u: Any) -> Any:
        for mine in (red, ~red):
            near = sum(jnp.roll(u, n, a) for n in (1, -1) for a in (0, 1))
            u = jnp.where(mine, jax.nn.sigmoid(near - 2) * jnp.cos(u), u)
        return u

    return lax.fori_loop(0, 4, step, u)


def backwards(u: Any) -> Any:
    """Each row beside its mirror image, twice."""

    def step(_: Any, u: Any) -> Any:
        for _ in range(3):
            v = jnp.sin(u + u[::-1] * u[:, ::-1])
            u = 0.5 * (v + v[::-1, ::-1])
        return u

    return lax.fori_loop(0, 4, step, u)


@pytest.mark.parametrize("form", ["block", "grid"])
@pytest.mark.parametrize("fun", [midpoint, runge_kutta, padded, red_and_black, backwards])
def test_loops_give_what_xla_gives(
    fun: Callable[[Any], Any], form: str, host_compiler: str
) -> None:
    with taken(form):
        [template] = [k.template for k in stitched(fun, FIELD).kernels if "loop" in k.template]
        assert template.startswith(f"loop {form}")
        ours = fs.jit(fun, options=fs.Options(backend="emulate", fallback="error"))
        assert_near(ours(FIELD), jax.jit(fun)(FIELD), 2e-6, rough=8e-3)


def body_of(fun: Callable[[Any], Any], side: int) -> Graph:
    module = module_of(fun, jax.ShapeDtypeStruct((side, side), jnp.float32))
    bodies = [op.called[1] for graph in module.graphs for op in graph if op.opcode == "while"]
    return bodies[0]


def test_what_takes_less_than_to_wait_is_computed_at_each_place() -> None:
    """Values of a small field are computed where they are read, those of a large one once."""
    counts = []
    for cycles in (None, 1e3, 1e6, 1e9, 1e15):
        wait = cycles and Synchronisation(cycles, 1)
        counts.append(len(materialized(body_of(runge_kutta, 512), synchronisation=wait)))
    assert counts[1] >= counts[0] + 3
    assert sorted(counts[1:], reverse=True) == counts[1:]
    assert counts[-1] > counts[0], "of what is read at thousands of places, some is computed once"


def test_a_stencil_of_a_stencil_is_one_kernel() -> None:
    """Without it, four of them in a row would read a value at more indices than can be written."""
    target = device("h200")
    field = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    for fun, barriers in ((midpoint, 2), (runge_kutta, 2)):

        def longer(u: Any, fun: Callable[[Any], Any] = fun) -> Any:
            return lax.fori_loop(0, 50, lambda _, u: fun(u), u)

        data = jax.jit(longer).lower(field).compiler_ir("hlo").as_serialized_hlo_module_proto()
        [kernel] = core.stitch(data, fs.Options(scorer="model"), target, None).kernels
        assert kernel.template.startswith("loop grid")
        assert kernel.source.count("fs_grid_barrier();") >= barriers


def test_a_copy_beside_an_output_is_not_stored(
    host_compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two loops that compute a value stores it: no two blocks write one element."""
    monkeypatch.setenv("FUSIONSTITCH_CHECK", "1")

    def loss(a: Any) -> Any:
        twice = jax.checkpoint(lambda x: jnp.sin(x).max(1) * x.min(1))
        return jnp.sin(twice(jnp.sin(a))).sum()

    a = np.random.default_rng(0).standard_normal((5, 60), np.float32)
    options = fs.Options(backend="emulate", fallback="error", scorer="paper")
    found = fs.jit(jax.grad(loss), options=options)(a)
    np.testing.assert_allclose(found, jax.jit(jax.grad(loss))(a), rtol=1e-5, atol=1e-6)
