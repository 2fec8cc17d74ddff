"""Arguments for lowering and running: static ones bound, missing ones drawn."""

from __future__ import annotations

import inspect
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fusionstitch.hlo.errors import OptionError
from fusionstitch.roads.original import plain_jit
from fusionstitch.runtime.outcome import Failed, caught

_STATIC = ("static_argnums", "static_argnames")


class Statics:
    """Which arguments of a function jax.jit's `keywords` call static: by their numbers, by their
    names, and by the names that its signature has for numbers."""

    def __init__(self, fun: Callable[..., Any], keywords: Mapping[str, Any]):
        self._numbers, self._names = (_as_list(keywords.get(name)) for name in _STATIC)
        self._parameters = list(inspect.signature(fun).parameters) if self else []

    def __bool__(self) -> bool:
        return bool(self._numbers or self._names)

    def of(self, args: Sequence[Any]) -> tuple[set[int], set[str]]:
        """The numbers and the names of those that are static in a call with so many `args`."""
        parameters = self._parameters
        numbers = {n % len(args) for n in self._numbers if args}
        names = {str(name) for name in self._names}
        names |= {parameters[n] for n in numbers if n < len(parameters)}
        numbers |= {n for n, name in enumerate(parameters[: len(args)]) if name in names}
        return numbers, names


def bind_static(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], keywords: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """`fun` with the arguments that jax.jit's `keywords` call static filled in, and the others."""
    if not (statics := Statics(fun, keywords)):
        return fun, tuple(args), dict(kwargs)
    numbers, names = statics.of(args)
    fixed = {n: args[n] for n in numbers}
    fixed_kwargs = {name: value for name, value in kwargs.items() if name in names}

    def bound(*rest: Any, **more: Any) -> Any:
        given = iter(rest)
        filled = [fixed[n] if n in fixed else next(given) for n in range(len(args))]
        return fun(*filled, **fixed_kwargs, **more)

    bound.__name__ = bound.__qualname__ = getattr(fun, "__name__", "fun")
    rest = tuple(arg for n, arg in enumerate(args) if n not in fixed)
    return bound, rest, {k: v for k, v in kwargs.items() if k not in fixed_kwargs}


def static_of(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Which of its arguments a function of jax.jit's calls static, as keywords for jax.jit; {} for
    other functions. Raises what the function raises.

    JAX tells how many they are: as many as a trace lacks. Which ones is tried out, for one that is
    called static cannot be traced.
    """
    import jax

    given = [n for n, arg in enumerate(args) if _is_hashable(arg)]
    if not isinstance(fun, jax.stages.Wrapped) or not (given or kwargs):
        return {}
    positional, named = fun.trace(*args, **kwargs).args_info
    names = [name for name in kwargs if name not in named]
    keywords: dict[str, Any] = {"static_argnames": names} if names else {}
    count = len(args) - len(positional)
    for chosen in itertools.combinations(given, count) if count else ():
        found = {**keywords, "static_argnums": chosen}
        jitted = plain_jit()(fun, **found)
        if not isinstance(caught(partial(jitted.trace, *args, **kwargs)), Failed):
            return found
    return keywords


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def concrete(tree: Any) -> Any:
    """`tree` with values drawn for every jax.ShapeDtypeStruct, always the same ones.

    Raises OptionError for more bytes than this machine has.
    """
    import jax

    specs = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.ShapeDtypeStruct)]
    needed = sum(math.prod(x.shape) * x.dtype.itemsize for x in specs)
    if needed > (there := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
        raise OptionError(
            f"The arguments take {needed} bytes and this machine has {there}: use smaller shapes, "
            "or name a device that is not here (--device h200) to plan without running."
        )
    draw = np.random.default_rng(0)

    def value(leaf: Any) -> Any:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return random_value(draw, leaf.shape, leaf.dtype)
        return leaf

    return jax.tree.map(value, tree)


def random_value(draw: np.random.Generator, shape: Sequence[int], dtype: Any) -> Any:
    """Standard normal floats, integers below 2 (valid as an index of most things), coin flips."""
    import jax.numpy as jnp

    if jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.complexfloating):
        return jnp.asarray(draw.standard_normal(shape), dtype)
    return jnp.asarray(draw.integers(0, 2, shape), dtype)
