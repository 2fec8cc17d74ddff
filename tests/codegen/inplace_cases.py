"""Steps whose results are to end up in the buffers of what they read. Enters `CASES`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from fusionstitch.codegen.generate import CodegenOptions
from fusionstitch.codegen.schedule.tuning import Tuning
from tests.codegen.kernel_cases import BF16, GRID, SMALL, add, normal


def descent(x: Any, w: Any, v: Any) -> tuple[Any, ...]:
    """A step of a network of two layers, and the gradient of its input. `v` is read until the third
    phase, `w` until the last one."""
    h = jnp.tanh(x @ w)
    e = h @ v - 1.0
    d = (e @ v.T) * (1.0 - h * h)
    return w - 0.1 * (x.T @ d), v - 0.1 * (h.T @ e), d @ w.T


def watched(x: Any, w: Any, v: Any) -> tuple[Any, ...]:
    """The same with a norm of the old weights, which nothing in the step waits for."""
    return (*descent(x, w, v), (v * v).sum(1))


def shared(x: Any, w: Any, v: Any) -> tuple[Any, ...]:
    """Both take the same gradient, and each other's memory after that."""
    total = jnp.tanh(x @ w).sum(0)
    return w - total * v, v + total * w, total


OVER = CodegenOptions(overwrites=((0, 1), (1, 2)))
# small enough that tanh is far from 1: of 1 - h * h nothing would be left there
_args = (normal(128, 64), normal(64, 128) / 8, normal(128, 64) / 8)
add("descent", descent, *_args, options=OVER, shows=GRID)
add("descent_bf16", descent, *(a.astype(BF16) for a in _args), options=OVER, shows=GRID)
add("descent_apart", descent, *_args, shows=GRID,
    options=replace(OVER, tuning=Tuning(merge=False)))  # fmt: skip
add("descent_watched", watched, *_args, options=OVER, shows=GRID)
add("descent_twice", lambda x, w, v: (lambda a: (*a, jax.nn.relu(x @ a[0])))(descent(x, w, v)),
    *_args, options=OVER, shows=GRID)  # fmt: skip
add("updates_of_each_other", shared, normal(24, 20), normal(20, 16), normal(20, 16), device=SMALL,
    options=OVER)  # fmt: skip
