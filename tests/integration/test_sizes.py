"""Programs of many blocks, odd sizes and several types: every kernel in three thread orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.accuracy import limit, relative_error
from fusionstitch.runtime import emulate
from tests.programs import (
    attention,
    bf16,
    boolean,
    f16,
    f32,
    f64,
    i32,
    layer_norm,
    mean_square,
    precision,
    reference,
    reference64,
)


def batch_norm(x, gain):
    return jax.nn.relu((x - x.mean((0, 1))) / x.std((0, 1)) * gain)


def rotated(x):
    a, b, at = x[..., :16], x[..., 16:], jnp.arange(16, dtype=x.dtype)
    turned = [a * jnp.cos(at) - b * jnp.sin(at), a * jnp.sin(at) + b * jnp.cos(at)]
    return jnp.concatenate(turned, -1).sum(1)


def cross_entropy(x, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1))


def recurrent(w, h, xs):
    return jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.sum(0)), h, xs)


#: name -> function and arguments
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (lambda x: jax.nn.softmax(x, -1), (f32(301, 703),)),
    "softmax of columns": (lambda x: jax.nn.softmax(x, 0), (f32(301, 203),)),
    "softmax by column sums": (
        lambda x: jax.nn.softmax(x) * (jax.nn.softmax(x) * x).sum(0),
        (f32(257, 129),),
    ),
    "layer norm": (mean_square(layer_norm), (f32(203, 300), f32(300), f32(300))),
    "layer norm, bf16": (mean_square(layer_norm), (bf16(203, 300), bf16(300), bf16(300))),
    "batch norm": (mean_square(batch_norm), (f32(17, 31, 65), f32(65))),
    "attention": (
        mean_square(attention),
        (f32(3, 65, 4, 16), f32(3, 70, 4, 16), f32(3, 70, 4, 16)),
    ),
    "rows, columns, all": (
        lambda x: (x - x.mean()) / x.std() + x.sum(0) + x.max(1, keepdims=True),
        (f32(333, 129),),
    ),
    "transposed operands": (
        lambda x, y: (x.T + y).sum(0) * jnp.exp(x.mean(1)),
        (f32(300, 111), f32(111, 300)),
    ),
    "two dots": (
        lambda x, y, z: jax.nn.softmax(jax.nn.relu(x @ y) @ z * 0.1),
        (f32(70, 33), f32(33, 65), f32(65, 17)),
    ),
    "every reduction": (
        lambda x: (x.sum((0, 2)), x.max(1), x.min((0, 1)), x.mean(), x.var((0, 2))),
        (f32(40, 33, 70),),
    ),
    "concatenation": (
        lambda x, y: jnp.concatenate([jnp.exp(x), y.T, x * y.T], 1).sum(1),
        (f32(100, 70), f32(70, 100)),
    ),
    "pads": (
        lambda x: (
            (jnp.pad(x, ((3, 4), (5, 6)))[2:-2, 1:-1] * 2).sum(0)
            + jnp.pad(x, ((0, 0), (8, 1))).max(0)
        ),
        (f32(130, 61),),
    ),
    "rotation": (rotated, (f32(9, 33, 4, 32),)),
    "f64": (lambda x: (x - x.mean(0)) / x.std(0) + x.sum(1, keepdims=True), (f64(130, 70),)),
    "f16": (
        lambda x: jax.nn.softmax(x.astype(jnp.float32), 0).astype(x.dtype) * x.sum(1)[:, None],
        (f16(130, 70),),
    ),
    "small integers": (
        lambda x: (x.astype(jnp.int32).sum(0), (x > 3).sum(1), x.max(0)),
        (i32(300, 70, high=100, low=-100).astype(np.int8),),
    ),
    "booleans": (lambda x: (jnp.any(x, 0), jnp.all(x, 1), x.sum()), (boolean(300, 70),)),
    "cross-entropy": (jax.grad(cross_entropy), (f32(130, 301), i32(130, high=301))),
    "recurrence": (recurrent, (f32(20, 20) * np.float32(0.3), f32(33, 20), f32(7, 33, 20))),
}


@pytest.fixture(autouse=True)
def forward() -> Iterator[None]:
    yield
    emulate.set_order("forward")


@pytest.mark.parametrize("scorer", ["model", "paper"])
@pytest.mark.parametrize("name", CASES)
def test_results(host_compiler: str, name: str, scorer: str) -> None:
    fun, args = CASES[name]
    options = fs.Options(backend="emulate", scorer=scorer, fallback="error")
    with precision(args):
        compiled = fs.jit(fun, options=options).lower(*args).compile()
        if scorer == "paper":
            assert max(kernel.grid for kernel in compiled.kernels) > 1
        first: list[bytes] = []
        for order in ("forward", "reversed", "random"):
            emulate.set_order(order, seed=5)
            values = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*args))]
            first = first or [value.tobytes() for value in values]
            assert [value.tobytes() for value in values] == first, f"{order} order of threads"
    for mine, xla, wide in zip(values, reference(fun, args), reference64(fun, args), strict=True):
        assert (mine.dtype, mine.shape) == (xla.dtype, xla.shape)
        if jnp.issubdtype(mine.dtype, np.floating):
            assert relative_error(mine, wide) <= limit(mine.dtype, relative_error(xla, wide))
        else:
            np.testing.assert_array_equal(mine, xla)
