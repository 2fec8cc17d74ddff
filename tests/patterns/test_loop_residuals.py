"""Residuals that gradients compute again: which are, and that programs give the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from benchmarks.loops.forced import taken
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.residuals import compute_again
from fusionstitch.patterns.loop_residuals import loop_residuals
from tests.nearness import assert_near
from tests.patterns.edits import edited, module_of

#: Where memory is slow, all residuals are computed again that may be.
SLOW_MEMORY = dataclasses.replace(device("h200"), dram_bytes_per_s=1.0)
STEPS, ROWS, WIDTH = 5, 6, 3
draw = np.random.default_rng(0)
FIRST = draw.standard_normal((ROWS, WIDTH), np.float32)
XS = draw.standard_normal((STEPS, ROWS, WIDTH), np.float32)
W = draw.standard_normal((WIDTH, WIDTH), np.float32)


def again(fun: Callable[..., Any], *args: Any) -> list[tuple[int, int]]:
    """By pair of loops: how many residuals are stacked no more, and how many values are instead,
    after a look at what programs give."""
    module = module_of(fun, *args)
    found = loop_residuals(module, SLOW_MEMORY)
    after = edited(module, lambda module: compute_again(module, found), *args)
    assert not loop_residuals(after, SLOW_MEMORY)
    return [(len(one.residuals), len(one.new)) for one in found]


def gradient(step: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
    """That of a scan's last state and outputs."""

    def loss(first: Any, xs: Any, w: Any) -> Any:
        last, ys = lax.scan(lambda h, x: step(h, x, w), first, xs, **keywords)
        return jnp.sum(last**2) + sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(ys))

    return jax.grad(loss, (0, 1, 2))


def runge_kutta(h: Any, x: Any, w: Any) -> Any:
    def slope(h: Any) -> Any:
        return jnp.sin(h) * x - h * jnp.cos(h[:, ::-1])

    k = slope(h)
    return h + 0.1 * slope(h + 0.05 * k), None


def squared(h: Any, x: Any, w: Any) -> Any:
    h = jnp.tanh(h @ w + x)
    return h, h * h


def gated(h: Any, x: Any, w: Any) -> Any:
    forget = jax.nn.sigmoid(h @ w + x)
    return forget * h + (1 - forget) * jnp.tanh(x * h), None


def inputs_alone(h: Any, x: Any, w: Any) -> Any:
    return h * jnp.exp(-x * x) + jnp.sin(x), None


def invariant(h: Any, x: Any, w: Any) -> Any:
    return h * jnp.cos(w[0]) * x, None


def branching(h: Any, x: Any, w: Any) -> Any:
    return jnp.where(x > 0, jnp.sin(h) * x, h * h * 0.1), None


def reduced(h: Any, x: Any, w: Any) -> Any:
    scale = jax.lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-3)
    return jnp.sin(h * scale) * x + h, None


def largest(h: Any, x: Any, w: Any) -> Any:
    """Its gradient compares each number with the largest of its row."""
    numbers = jnp.sin(h * x + w[0])
    return numbers * jnp.cos(h), numbers.max(1)


AGAIN: dict[str, tuple[Callable[..., Any], list[tuple[int, int]]]] = {
    "a solver, of its state": (gradient(runge_kutta), [(9, 0)]),
    "a solver backwards": (gradient(runge_kutta, reverse=True), [(9, 0)]),
    "what is an output": (gradient(squared), [(1, 0)]),
    "gates": (gradient(gated), [(4, 0)]),
    "what inputs give": (gradient(inputs_alone), [(3, 0)]),
    "what no iteration changes": (gradient(invariant), [(1, 0)]),
    "selections": (gradient(branching), [(3, 0)]),
    "behind a reduction": (gradient(reduced), [(4, 1)]),
    "not what a maximum is found among": (gradient(largest), [(4, 0)]),
}


@pytest.mark.parametrize("name", AGAIN)
def test_residuals_that_follow_from_less(name: str) -> None:
    fun, wanted = AGAIN[name]
    assert again(fun, FIRST, XS, W) == wanted


def pendulums(q: Any, p: Any) -> Any:
    def step(state: Any, _: None) -> Any:
        q, p = state
        p = p - 0.01 * jnp.sin(q) * jnp.exp(-0.1 * q * q)
        return (q + 0.01 * p, p), None

    return jnp.sum(lax.scan(step, (q, p), None, length=20)[0][0] ** 2)


@pytest.mark.parametrize(("rows", "gone"), [(4096, 1), (1 << 18, 4)])
def test_few_rows_wait_for_what_they_compute(rows: int, gone: int) -> None:
    """Special functions take longer than to read what they gave, unless many rows read."""
    specs = [jax.ShapeDtypeStruct((rows,), jnp.float32)] * 2
    found = loop_residuals(module_of(jax.grad(pendulums, (0, 1)), *specs), device("h200"))
    assert sum(len(one.residuals) for one in found) == gone


@pytest.mark.parametrize("name", AGAIN)
@pytest.mark.usefixtures("host_compiler")
def test_kernels_compute_them_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fusionstitch.patterns import loop_rules

    monkeypatch.setattr(
        loop_rules, "loop_residuals", lambda module, _: loop_residuals(module, SLOW_MEMORY)
    )
    fun, _ = AGAIN[name]
    with taken():
        ours = fs.jit(fun, options=fs.Options(backend="emulate", fallback="error"))(FIRST, XS, W)
    assert_near(ours, jax.jit(fun)(FIRST, XS, W), 2e-6, rough=2e-6)
