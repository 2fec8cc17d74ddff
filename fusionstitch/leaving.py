"""`fs.leave`: excludes a part of a program from stitching."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from fusionstitch.execution.original import plain_jit
from fusionstitch.execution.tracebacks import without_own_frames
from fusionstitch.hlo.marks import LEAVE

F = TypeVar("F", bound=Callable[..., Any])


def leave(fun: F, /) -> F:
    """Returns a function like `fun` whose ops, and their derivatives, `fs.jit` leaves to XLA.

    Results are those of `fun`, and there is no cost at run time: while JAX traces it, the names of
    its ops are marked. It works under jit, grad, vmap, scan and checkpoint, and can be nested. A
    loop that contains such a part stays an XLA loop. Outside of any trace it just calls `fun`.

    Raises:
        TypeError: `fun` is not callable.

    Example:
        >>> import jax.numpy as jnp
        >>> import fusionstitch as fs
        >>> @fs.leave
        ... def norm(x):
        ...     return jnp.sqrt((x * x).sum())
        >>> @fs.jit
        ... def scaled(x):
        ...     return x / norm(x)
        >>> scaled(jnp.full(4, 2.0)).tolist()
        [0.5, 0.5, 0.5, 0.5]
    """
    if not callable(fun):
        raise TypeError(f"fs.leave takes a function, not {type(fun).__name__}.")

    @without_own_frames
    @functools.wraps(fun)
    def left(*args: Any, **kwargs: Any) -> Any:
        return _marked(fun, args, kwargs) if _is_traced() else fun(*args, **kwargs)

    return left  # type: ignore[return-value]


def _is_traced() -> bool:
    """Whether ops are being traced here and not run. The arguments alone do not show it: `fun` may
    work only on values that it closes over."""
    import jax
    import numpy as np

    return isinstance(jax.lax.neg(np.float32(0)), jax.core.Tracer)


def _marked(fun: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Calls `fun` inside a jitted function whose name the compiler recognizes.

    Only traced arrays are its arguments and results. Everything else, such as numbers, strings and
    concrete arrays, is passed through unchanged.
    """
    import jax

    given, tree = jax.tree.flatten((args, kwargs))
    traced = [number for number, leaf in enumerate(given) if isinstance(leaf, jax.core.Tracer)]
    structure: list[Any] = []

    def inside(*values: Any) -> list[Any]:
        leaves = [*given]
        for number, value in zip(traced, values, strict=True):
            leaves[number] = value
        args, kwargs = jax.tree.unflatten(tree, leaves)
        made, shape = jax.tree.flatten(fun(*args, **kwargs))
        arrays = [leaf for leaf in made if isinstance(leaf, jax.core.Tracer)]
        rest = [None if isinstance(leaf, jax.core.Tracer) else (leaf,) for leaf in made]
        structure[:] = [shape, rest]
        return arrays

    inside.__name__ = inside.__qualname__ = LEAVE
    arrays = iter(plain_jit()(inside)(*(given[number] for number in traced)))
    shape, rest = structure
    return jax.tree.unflatten(shape, [next(arrays) if one is None else one[0] for one in rest])
