"""Tracebacks of users' errors: the frames that jax.jit shows, and none of this package."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from tests.behaviour.table import Jit, mixed

X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 6), np.float32))
OURS = str(Path(fs.__file__).parent)


def shown(run: Callable[[], Any]) -> list[str]:
    """The functions in the traceback of what `run` raises, from the call on."""
    with pytest.raises(Exception, match=r".") as caught:
        run()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert not [frame for frame in frames if frame.filename.startswith(OURS)]
    return [frame.name for frame in frames[1:]]


def inner(x: jax.Array) -> jax.Array:
    return jnp.reshape(mixed(x), (7, 7))


def outer(x: jax.Array) -> jax.Array:
    return inner(x) + 1.0


def wrong_shape(compiled: Any) -> Any:
    return compiled(X[:2])


class Refusing:
    """A callable that raises while it is traced."""

    def __call__(self, x: jax.Array) -> jax.Array:
        raise ValueError("never")


def missing(x: jax.Array) -> jax.Array:
    table: dict[str, jax.Array] = {}
    return table["missing"] + x


CALLS: dict[str, Callable[[Jit], Any]] = {
    "a call": lambda jit: jit(outer)(X),
    "a decorator": lambda jit: jit(3),
    "an argument": lambda jit: jit(outer)("text"),
    "trace": lambda jit: jit(outer).trace(X),
    "lower": lambda jit: jit(outer).lower(X),
    "shapes": lambda jit: jit(outer).eval_shape(X),
    "a compiled program": lambda jit: wrong_shape(jit(mixed).lower(X).compile()),
    "a compiler option": lambda jit: jit(mixed).lower(X).compile({"xla_is_no_option": 1}),
    "in an outer jit": lambda jit: jax.jit(lambda x: jit(outer)(x))(X),
    "in a gradient": lambda jit: jax.grad(lambda x: jit(outer)(x).sum())(X),
    "mapped": lambda jit: jax.vmap(jit(outer))(X),
    "nested": lambda jit: jit(lambda x: jit(outer)(x))(X),
    "an object": lambda jit: jit(Refusing())(X),
    "a part that is left": lambda jit: jit(fs.leave(missing))(X),
}


@pytest.mark.parametrize("name", CALLS)
def test_tracebacks_are_those_of_jax_jit(name: str, jit: Jit) -> None:
    ours = shown(lambda: CALLS[name](jit))
    assert ours == shown(lambda: CALLS[name](jax.jit))


@pytest.mark.parametrize("name", CALLS)
def test_where_nothing_is_stitched(name: str) -> None:
    plain = functools.partial(fs.jit, options=fs.Options(backend="xla"))
    assert shown(lambda: CALLS[name](plain)) == shown(lambda: CALLS[name](jax.jit))


def test_reports_raise_what_the_function_raises() -> None:
    assert shown(lambda: fs.report(outer, X)) == shown(lambda: jax.jit(outer)(X))


def test_all_frames_are_there_without_jax_filter(jit: Jit) -> None:
    filtering = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    try:
        with pytest.raises(TypeError, match="reshape") as caught:
            jit(outer)(X)
    finally:
        jax.config.update("jax_traceback_filtering", filtering)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert any(file.startswith(OURS) for file in files)
