"""jax.jit itself, also while `fs.install` has put `fs.jit` in its place."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

#: What jax.jit was before `install`; empty while it is in its place.
replaced: list[Any] = []


def plain_jit() -> Any:
    """jax.jit as JAX made it: whatever this project jits for itself goes through it."""
    import jax

    return replaced[0] if replaced else jax.jit


def jit_again(fun: Callable[..., Any], **keywords: Any) -> Any:
    """jax.jit with keywords that it has been given before: what it warns of has been said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return plain_jit()(fun, **keywords)
