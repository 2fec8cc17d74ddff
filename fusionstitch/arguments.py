"""Arguments for lowering and running: static ones bound, missing ones filled with random values."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fusionstitch.execution.original import plain_jit
from fusionstitch.hlo.errors import OptionError
from fusionstitch.runtime.outcome import Failed, caught

#: The keywords of jax.jit that say which arguments are static.
STATIC = ("static_argnums", "static_argnames")
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD


class Statics:
    """Which arguments of a function are static under jax.jit's `keywords`, by position and by name.
    If only one of the two is given, the signature supplies the other, as in JAX."""

    def __init__(self, fun: Callable[..., Any], keywords: Mapping[str, Any]):
        self._numbers, names = (_as_list(keywords.get(name)) for name in STATIC)
        self._names = {str(name) for name in names}
        if not self or all(keywords.get(name) is not None for name in STATIC):
            return
        try:
            parameters = inspect.signature(fun).parameters.values()
        except (TypeError, ValueError):  # not every function has a signature
            return
        either = [(n, one.name) for n, one in enumerate(parameters) if one.kind == _EITHER]
        if self._numbers:
            self._names = {name for n, name in either if n in self._numbers}
        else:
            self._numbers = [n for n, name in either if name in self._names]

    def __bool__(self) -> bool:
        return bool(self._numbers or self._names)

    def of(self, args: Sequence[Any]) -> tuple[set[int], set[str]]:
        """Positions and names of the static arguments in a call with these `args`. Positions past
        the end are left out."""
        count = len(args)
        return {n % count for n in self._numbers if -count <= n < count}, self._names


def bind_static(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], keywords: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Returns `fun` with the arguments bound that jax.jit's `keywords` make static, and the
    others."""
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
    """The static arguments of a function jitted by jax.jit, as keywords for jax.jit; {} for other
    functions. Raises what the function raises.

    JAX shows how many there are: as many as are missing from a trace. Which ones they are is found
    by trial, because a static argument that is passed as a traced one fails.
    """
    import jax

    given = [n for n, arg in enumerate(args) if _is_hashable(arg)]
    if not isinstance(fun, jax.stages.Wrapped) or not (given or kwargs):
        return {}
    traced = fun.trace(*args, **kwargs)
    info = caught(lambda: traced.args_info)
    if isinstance(info, Failed):  # a user's class accepts arrays only
        return _static_of_leaves(fun, args, kwargs, len(traced.jaxpr.in_avals))
    positional, named = info
    names = [name for name in kwargs if name not in named]
    keywords: dict[str, Any] = {"static_argnames": names} if names else {}
    count = len(args) - len(positional)
    for chosen in itertools.combinations(given, count) if count else ():
        found = {**keywords, "static_argnums": chosen}
        if _is_traced(fun, args, kwargs, found):
            return found
    return keywords


def _static_of_leaves(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], count: int
) -> dict[str, Any]:
    """Like `static_of`, given the number of traced leaves: finds the fewest arguments whose removal
    leaves that many."""
    import jax

    every: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    leaves = {key: len(jax.tree.leaves(value)) for key, value in every.items()}
    may = [key for key, value in every.items() if leaves[key] and _is_hashable(value)]
    lacking = sum(leaves.values()) - count
    for number in range(len(may) + 1):
        for chosen in itertools.combinations(may, number):
            if sum(leaves[key] for key in chosen) != lacking:
                continue
            found = {
                name: [key for key in chosen if isinstance(key, kind)]
                for name, kind in zip(STATIC, (int, str), strict=True)
            }
            if _is_traced(fun, args, kwargs, found):
                return found if chosen else {}
    return {}


def _is_traced(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], keywords: Any
) -> bool:
    jitted = plain_jit()(fun, **keywords)
    return not isinstance(caught(partial(jitted.trace, *args, **kwargs)), Failed)


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


class _Taken:
    """An argument as a JAX pytree of its leaves, with the names they have in the user's own pytree.
    JAX may put anything in the place of the leaves."""

    def __init__(self, leaves: Sequence[Any], tree: Any, names: tuple[_Name, ...]):
        self.leaves, self.tree, self.names = tuple(leaves), tree, names

    @property
    def value(self) -> Any:
        import jax

        return jax.tree.unflatten(self.tree, self.leaves)


@dataclass(frozen=True)
class _Name:
    text: str

    def __str__(self) -> str:
        return self.text


def takeable(
    fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Returns `fun` and arguments that JAX can lower it for.

    JAX rebuilds the user's classes with placeholders (`jax.stages.ArgInfo`) for arrays, which
    classes that check their fields reject. For those, the function itself rebuilds them, from
    arrays.
    """
    import jax

    info = jax.stages.ArgInfo(jax.core.ShapedArray((), np.float32), False)
    if not isinstance(caught(lambda: jax.tree.map(lambda _: info, (args, kwargs))), Failed):
        return fun, tuple(args), kwargs

    @functools.wraps(fun)
    def taking(*args: Any, **kwargs: Any) -> Any:
        return fun(*(one.value for one in args), **{k: one.value for k, one in kwargs.items()})

    return taking, tuple(map(_taken, args)), {k: _taken(v) for k, v in kwargs.items()}


def _taken(value: Any) -> _Taken:
    import jax

    _register_taken()
    named, tree = jax.tree_util.tree_flatten_with_path(value)
    names = tuple(_Name(jax.tree_util.keystr(path)) for path, _ in named)
    return _Taken([leaf for _, leaf in named], tree, names)


@functools.cache
def _register_taken() -> None:
    import jax

    jax.tree_util.register_pytree_with_keys(
        _Taken,
        lambda one: (list(zip(one.names, one.leaves, strict=True)), (one.tree, one.names)),
        lambda fields, leaves: _Taken(tuple(leaves), *fields),
        lambda one: (one.leaves, (one.tree, one.names)),
    )


def concrete(tree: Any) -> Any:
    """`tree` with random values for every jax.ShapeDtypeStruct, the same ones each time.

    Raises OptionError if they need more bytes than this machine has.
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
    """Standard normal floats, integers below 2 (valid as an index into almost anything), or
    booleans."""
    import jax.numpy as jnp

    if jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.complexfloating):
        return jnp.asarray(draw.standard_normal(shape), dtype)
    return jnp.asarray(draw.integers(0, 2, shape), dtype)
