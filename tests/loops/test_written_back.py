"""Rows that write, until they stop, each at its own indices of arrays that no select preserves:
what a row has there is written back where it has stopped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs

pytestmark = pytest.mark.usefixtures("host_compiler")

#: Iterations at most, the time at which rows stop, and those at which they write.
LIMIT, END = 40, 30
TIMES = jnp.asarray([3, 9, 14, 20, 27])
draw = np.random.default_rng(5)


def saved(
    y: Any,
    speed: Any,
    begin: Any,
    carried: bool = True,
    read_at: Callable[[Any], Any] = lambda k: k,
    writes: Callable[[Any, Any], Any] = lambda more, out: more,
    begins: Callable[[Any], Any] = lambda out: out,
) -> Any:
    """A loop in the loop writes what a row is at all times that its step passed. `read_at` is where
    it reads what is written back, `writes` where it writes something else."""
    each = lambda f: reduce(lambda f, _: jax.vmap(f), range(y.ndim), f)  # noqa: E731
    at = each(lambda out, k: out[k])
    put = each(lambda out, k, value: out.at[k].set(value))

    def body(s: Any) -> Any:
        y, t, k, out, i, *masks = s
        going = masks[0] if carried else t < END
        later = t + speed
        new = jnp.where(going, y * 0.5 + speed, y)
        queries = lambda k: going & (k < 5) & (TIMES[jnp.minimum(k, 4)] <= later)  # noqa: E731

        def write(u: Any) -> Any:
            k, out, j = u
            more = queries(k)
            value = jnp.where(writes(more, out), new + k, at(out, read_at(k)))
            return jnp.where(more, k + 1, k), put(out, k, value), j + 1

        more = lambda u: jnp.any(queries(u[0])) & (u[2] < 5)  # noqa: E731
        k, out, _ = lax.while_loop(more, write, (k, begins(out), 0))
        t = jnp.where(going, later, t)
        return new, t, k, out, i + 1, *(mask & (later < END) for mask in masks)

    zeros, ones = jnp.zeros(y.shape, jnp.int32), jnp.ones(y.shape, bool)
    out = jnp.full((*y.shape, 5), -1.0, np.float32)
    start = y, zeros if carried else begin, zeros, out, 0, *([ones] if carried else [])
    more = lambda s: jnp.any(s[1] < END) & (s[4] < LIMIT)  # noqa: E731
    y, t, k, out, *_ = lax.while_loop(more, body, start)
    return y, t, k, out


def _drawn(*shape: int) -> list[np.ndarray]:
    """What rows are, how fast they are, and when they begin."""
    y = draw.integers(-50, 50, shape).astype(np.float32)
    return [y, *(draw.integers(low, 9, shape, dtype=np.int32) for low in (1, 0))]


def _with(number: int, at: Any, value: Any) -> list[np.ndarray]:
    rows = _drawn(37)
    rows[number][at] = value
    return rows


#: Rows, and the axes that threads share out.
ROWS: dict[str, tuple[list[np.ndarray], str]] = {
    "each its own": (_drawn(37), "37"),
    "one is no number": (_with(0, 4, np.nan), "37"),
    "one never ends": (_with(1, 5, 0), "37"),
    "one is there at first": (_with(2, 7, END), "37"),
    "all are there at first": (_with(2, slice(None), END), "37"),
    "several a thread": (_drawn(2, 3, 4, 3, 5), "3 x 4 x 3 x 5"),
}
BY: dict[str, Callable[..., Any]] = {
    "a mask that is carried": saved,
    "the condition itself": partial(saved, carried=False),
}


def same(fun: Callable[..., Any], args: list[np.ndarray]) -> str:
    """The form of the one kernel, which gives what XLA gives."""
    options = fs.Options(backend="emulate", scorer="model", fallback="error")
    found = fs.jit(fun, options=options).lower(*args).compile()
    for own, their in zip(found(*args), jax.jit(fun)(*args), strict=True):
        np.testing.assert_array_equal(own, their)
    [loop] = [k.template for k in found.kernels if k.template.startswith("loop")]
    return loop


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("rows", ROWS)
def test_rows_that_write_back_stop_on_their_own(rows: str, by: str) -> None:
    args, axes = ROWS[rows]
    assert same(BY[by], args) == f"loop rows {axes} threads 32"


def test_one_row_writes_back() -> None:
    assert same(saved, _drawn(1)).split()[1] == "rows"


@pytest.mark.parametrize(
    "fun",
    [
        partial(saved, read_at=lambda k: jnp.maximum(k - 1, 0)),
        partial(saved, writes=lambda more, out: more | (out[..., 0] > 0)),
        partial(saved, begins=lambda out: out + 1),
        partial(saved, begins=lambda out: out[..., ::-1]),
    ],
    ids=["of another place", "by more than the mask", "another array", "the array turned"],
)
def test_rows_that_write_something_else_go_on_together(fun: Callable[..., Any]) -> None:
    assert "rows 37" not in same(fun, _drawn(37))
