"""The original jax.jit, also while `fs.install` has replaced it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

#: The original jax.jit while `install` has replaced it; otherwise empty.
replaced: list[Any] = []


def plain_jit() -> Any:
    """The original jax.jit, which this project uses for all its own jits."""
    import jax

    return replaced[0] if replaced else jax.jit


def jit_for_us(fun: Callable[..., Any], **keywords: Any) -> Any:
    """jax.jit with its own methods: it copies the attributes of `fun`, which may be named `trace`
    or `lower`."""
    jitted = plain_jit()(fun, **keywords)
    own = vars(jitted)
    for name in [name for name in own if name[:2] != "__" and hasattr(type(jitted), name)]:
        del own[name]
    return jitted


def jit_again(fun: Callable[..., Any], **keywords: Any) -> Any:
    """The same with keywords that were used before: jax.jit has already warned about them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jit_for_us(fun, **keywords)
