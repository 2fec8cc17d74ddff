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


def jit_for_us(fun: Callable[..., Any], **keywords: Any) -> Any:
    """jax.jit with the methods that JAX gives it: it copies the attributes of `fun`, and those may
    be named `trace` or `lower`."""
    jitted = plain_jit()(fun, **keywords)
    own = vars(jitted)
    for name in [name for name in own if name[:2] != "__" and hasattr(type(jitted), name)]:
        del own[name]
    return jitted


def jit_again(fun: Callable[..., Any], **keywords: Any) -> Any:
    """The same with keywords that it has been given before: what it warns of has been said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jit_for_us(fun, **keywords)
