"""Chains of products of the same rows, as programs write them: shapes are small, rows are odd."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
Shapes = Sequence[Any]
#: By name: a function, and its arguments as shapes.
CASES: dict[str, tuple[Callable[..., Any], Shapes]] = {}


def f32(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, np.float32)


def bf16(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.bfloat16)


def f16(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, np.float16)


def s32(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, np.int32)


def of(widths: Sequence[int], kind: Any = f32) -> list[Any]:
    """The matrices and biases of a perceptron."""
    pairs = itertools.pairwise(widths)
    return [*(kind(*pair) for pair in pairs), *(kind(n) for n in widths[1:])]


def perceptron(x: Array, p: Sequence[Array], act: Callable[[Array], Array] = jnp.tanh) -> Array:
    count = len(p) // 2
    for i in range(count):
        x = x @ p[i] + p[count + i]
        x = act(x) if i + 1 < count else x
    return x


def _mean_square(p: Sequence[Array], x: Array, y: Array) -> Array:
    return ((perceptron(x, p) - y).astype(jnp.float32) ** 2).mean()


def _policy(p: Sequence[Array], x: Array, a: Array, gain: Array, old: Array) -> Array:
    mean, log_scale = jnp.split(perceptron(x, p, jax.nn.relu), 2, -1)
    log_scale = jnp.clip(log_scale, -5, 2)
    z = (a - mean) / jnp.exp(log_scale)
    ratio = jnp.exp((-0.5 * z**2 - log_scale - 0.919).sum(-1) - old)
    least = jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain)
    return -least.mean() - 0.01 * log_scale.sum(-1).mean()


def _critic(p: Sequence[Array], s: Array, a: Array, y: Array) -> Array:
    value = perceptron(jnp.concatenate([s, a], -1), p, jax.nn.silu)[:, 0]
    return ((value - y) ** 2).mean()


def _skip(x: Array, *p: Array) -> Array:
    h = jax.nn.relu(x @ p[0] + p[1])
    h = jax.nn.relu(jnp.concatenate([h, x], -1) @ p[2] + p[3])
    return jax.nn.softmax(h @ p[4] + p[5])


def _normalised(x: Array, scale: Array, shift: Array) -> Array:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def _classes(p: Sequence[Array], x: Array, y: Array) -> Array:
    first, scale, shift, second, last = p
    h = jax.nn.gelu(_normalised(x @ first, scale, shift))
    h = h + jax.nn.gelu(_normalised(h @ second, scale, shift))
    return -(jax.nn.log_softmax(h @ last) * jax.nn.one_hot(y, 10)).sum(-1).mean()


def _gated(x: Array, gate: Array, up: Array, down: Array) -> Array:
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


def _embedded(x: Array, table: Array, at: Array, w: Array) -> Array:
    return jnp.tanh(jnp.concatenate([table[at], x], -1) @ w)


def _forces(p: Sequence[Array], x: Array) -> Array:
    return jax.grad(lambda x: perceptron(x, p)[..., 0].sum())(x)


def _matched(p: Sequence[Array], x: Array, y: Array) -> Array:
    return ((_forces(p, x) - y) ** 2).mean()


def _heads(x: Array, w: Array, v: Array) -> Array:
    """A softmax of each head: a part of each row."""
    h = (x @ w).reshape(*x.shape[:-1], 4, 8)
    return jax.nn.softmax(h).reshape(*x.shape[:-1], 32) @ v


def _descent(p: Sequence[Array], x: Array, y: Array) -> tuple[Any, Any]:
    loss, grads = jax.value_and_grad(_mean_square)(p, x, y)
    return [a - 0.1 * g for a, g in zip(p, grads, strict=True)], loss


def _single(x: Array, w: Array, v: Array) -> Any:
    """Single columns, of which a row's first lane has the first."""
    h = jnp.tanh(x @ w)
    gate = jnp.exp(jnp.sin(x @ w)[:, 2])[:, None]
    return h[:, 0], h[:, 5].sum(), gate * (h @ v) + jnp.tanh(gate)


def _joined_sums(x: Array, w: Array, v: Array, at: Array) -> Any:
    a, b = jnp.tanh(x @ w).sum(0), jnp.sin(x @ v).sum(0)
    padded = jax.lax.pad(a, jnp.float32(1), [(-2, 3, 1)])
    return jnp.concatenate([b, a, b * 2]), padded, jnp.pad(a, (2, 3)) + b[0], jnp.roll(a, 3), a[at]


def _cut(x: Array, w: Array, v: Array) -> Array:
    """Its gradient is padded."""
    h = jnp.tanh(x @ w)
    return (h[:, 3:14] ** 2).sum() + (h @ v).sum()


def _one_batch(x: Array, w: Array, v: Array) -> Array:
    return (jax.nn.softmax(jnp.tanh(x @ w) @ v) ** 2).sum()


def _picked(p: Sequence[Array], x: Array, y: Array) -> Array:
    logs = jax.nn.log_softmax(perceptron(x, p))
    return -jnp.take_along_axis(logs, y[:, None], 1).mean() + logs[jnp.arange(len(x)), y].sum()


N = 100
_gradient = jax.value_and_grad(_mean_square)
for _name, _widths in {"": (9, 64, 64, 13), " narrow": (6, 20, 3), " of one": (6, 24, 1)}.items():
    _args = f32(N, _widths[0]), f32(N, _widths[-1])
    CASES[f"perceptron{_name}"] = lambda x, *p: perceptron(x, p), [_args[0], *of(_widths)]
    CASES[f"gradient{_name}"] = _gradient, [of(_widths), *_args]
for _kind in (bf16, f16):
    _args = _kind(N, 9), _kind(N, 13)
    _p = of((9, 64, 13), _kind)
    CASES[f"perceptron {_kind.__name__}"] = lambda x, *p: perceptron(x, p), [_args[0], *_p]
    CASES[f"gradient {_kind.__name__}"] = _gradient, [_p, *_args]
CASES |= {
    "policy": (
        jax.value_and_grad(_policy),
        [of((17, 64, 12)), f32(N, 17), f32(N, 6), f32(N), f32(N)],
    ),
    "critic": (jax.grad(_critic), [of((23, 64, 1)), f32(N, 17), f32(N, 6), f32(N)]),
    "skip": (
        _skip,
        [f32(N, 16), *(f32(16, 64), f32(64), f32(80, 64), f32(64), f32(64, 10), f32(10))],
    ),
    "classes": (
        jax.value_and_grad(_classes),
        [(f32(20, 64), f32(64), f32(64), f32(64, 64), f32(64, 10)), f32(N, 20), s32(N)],
    ),
    "batch dims": (lambda x, *p: perceptron(x, p), [f32(4, 33, 32), *of((32, 32, 8))]),
    "columns first": (lambda x, w, v: jnp.tanh(x.T @ w) @ v, [f32(9, N), f32(9, 32), f32(32, 8)]),
    "long input": (lambda x, *p: perceptron(x, p), [f32(N, 300), *of((300, 16, 5))]),
    "gated": (_gated, [f32(N, 64), f32(64, 96), f32(64, 96), f32(96, 64)]),
    "embedded": (_embedded, [f32(N, 16), f32(50, 16), s32(N), f32(32, 16)]),
    "forces": (lambda x, *p: _forces(p, x), [f32(N, 3), *of((3, 64, 1))]),
    "matched forces": (
        lambda p, x, y: jax.tree.leaves(jax.grad(_matched)(p, x, y))[:-1],
        [of((3, 32, 32, 1)), f32(N, 3), f32(N, 3)],
    ),
    "heads": (_heads, [f32(N, 16), f32(16, 32), f32(32, 8)]),
    "descent": (_descent, [of((9, 32, 5)), f32(N, 9), f32(N, 5)]),
    "turned": (lambda x, w: jnp.tanh(w.T @ x.T), [f32(N, 16), f32(16, 24)]),
    "single columns": (_single, [f32(N, 9), f32(9, 8), f32(8, 16)]),
    "single columns bf16": (_single, [bf16(N, 9), bf16(9, 16), bf16(16, 16)]),
    "joined sums": (_joined_sums, [f32(N, 8), f32(8, 16), f32(8, 5), s32(7)]),
    "rows padded": (
        lambda x, w: jnp.pad(jnp.tanh(x @ w), ((0, 5), (0, 0))),
        [f32(N, 8), f32(8, 16)],
    ),
    "rows cut": (lambda x, w: jnp.tanh(x @ w)[:50].sum(0), [f32(N, 8), f32(8, 16)]),
    "cut": (jax.grad(_cut, argnums=(0, 1)), [f32(N, 8), f32(8, 19), f32(19, 5)]),
    "one batch": (
        jax.grad(_one_batch, argnums=(0, 1, 2)),
        [f32(1, N, 5), f32(5, 16), f32(16, 33)],
    ),
    "picked": (jax.value_and_grad(_picked), [of((9, 24, 10)), f32(N, 9), s32(N)]),
    "sums of inputs": (
        lambda x, y, w: (x.T @ y, x.T @ jnp.tanh(x @ w), y.sum(0)),
        [f32(N, 8), f32(N, 19), f32(8, 5)],
    ),
}
