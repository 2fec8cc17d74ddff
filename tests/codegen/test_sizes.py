"""Bounds on the size of floats, of softmaxes above all."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.codegen.rewrite.sizes import least, most
from fusionstitch.hlo.graph import Op
from tests.codegen.regions import whole_of

X, KEEP = np.zeros((6, 40), np.float32), np.zeros((6, 40), bool)


def _of(fun: Callable) -> Op:
    [op] = whole_of(lambda x, keep: fun(x, keep) + x, X, KEEP).root.operands
    return op.operands[0]


def _power(x, top=None, axis=1):
    return jnp.exp(x - (x if top is None else top).max(axis, keepdims=True))


def _total(x, keep=None):
    return jnp.broadcast_to(jnp.sum(x, 1, keepdims=True, where=keep), x.shape)


def _guarded(x):
    top = x.max(1, keepdims=True)
    return jnp.exp(x - jnp.where(jnp.isfinite(top), top, 0))


def _low(x, keep, low=-1e30):
    return jnp.where(keep, x, low)


def _beside(x, other, top=None):
    """The sum of a row's powers and another power, below the maximum of both or `top`."""
    top = jnp.maximum(x.max(1, keepdims=True), other) if top is None else top
    return jnp.broadcast_to(jnp.exp(x - top).sum(1, keepdims=True) + jnp.exp(other - top), x.shape)


LARGEST: dict[str, tuple[Callable, float]] = {
    "a parameter": (lambda x, keep: jnp.sqrt(x), math.inf),
    "a function": (lambda x, keep: jnp.tanh(x) * -3, 3),
    "a power": (lambda x, keep: jnp.exp(x), math.inf),
    "of differences": (lambda x, keep: _power(x), 1),
    "of differences, scaled": (lambda x, keep: jnp.exp((x - x.max(1, keepdims=True)) * 0.5), 1),
    "of differences, turned": (
        lambda x, keep: jnp.exp((x - x.max(1, keepdims=True)) * -0.5),
        math.inf,
    ),
    "of another maximum": (lambda x, keep: _power(x, jnp.sin(x)), math.inf),
    "of a maximum of some": (lambda x, keep: _power(x, _low(x, keep)), math.inf),
    "of a maximum and more": (
        lambda x, keep: jnp.exp(x - jnp.maximum(x.max(1, keepdims=True), x[:, :1])),
        1,
    ),
    "of a guarded maximum": (lambda x, keep: _guarded(x), 1),
    "a softmax": (lambda x, keep: jax.nn.softmax(x, 1), 1),
    "a softmax of some": (lambda x, keep: jax.nn.softmax(x, 1, where=keep), 1),
    "an inverse": (lambda x, keep: jax.lax.rsqrt(jnp.exp(x) + 0.25), 2),
    "a division by a parameter": (lambda x, keep: jnp.tanh(x) / jnp.abs(x), math.inf),
}
SMALLEST: dict[str, tuple[Callable, float]] = {
    "a sum and what is beside it": (lambda x, keep: _beside(x, jnp.sin(x[:, :1])), 1),
    "a sum and what is not below its maximum": (
        lambda x, keep: _beside(x, jnp.sin(x[:, :1]), jnp.maximum(x.max(), jnp.sin(x[:, :1]))),
        0,
    ),
    "a parameter": (lambda x, keep: jnp.sqrt(x), 0),
    "a total": (lambda x, keep: _total(_power(x)), 1),
    "a total of powers": (lambda x, keep: _total(jnp.exp(x)), 0),
    "a total about all": (lambda x, keep: _total(_power(x, axis=(0, 1))), 0),
    "a total of some about all": (lambda x, keep: _total(_power(x), keep), 0),
    "a total of some": (lambda x, keep: _total(_power(_low(x, keep)), keep), 1),
    "a total about zeros": (lambda x, keep: _total(_power(_low(x, keep, 0.0)), keep), 0),
    "a total and more": (lambda x, keep: _total(_power(x)) + jnp.exp(x), 1),
    "a total and less": (lambda x, keep: _total(_power(x)) + x, 0),
    "a square and a bit": (lambda x, keep: x * x + 0.5, 0.5),
}


@pytest.mark.parametrize("name", LARGEST)
def test_what_no_element_exceeds(name: str) -> None:
    fun, bound = LARGEST[name]
    assert most(_of(fun)) == bound


@pytest.mark.parametrize("name", SMALLEST)
def test_what_all_elements_reach(name: str) -> None:
    fun, bound = SMALLEST[name]
    assert least(_of(fun)) == bound
