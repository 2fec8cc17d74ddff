"""What may be put around a function, and around that: JAX's transformations, decorators, classes.

`WRAPPINGS` maps a name to a `Wrapping`, which takes a jit and a `fun(x, scale)` and gives such a
function again. It is wrapped directly, without a lambda between, since it is JAX's own wrappers and
functools.wraps that copy attributes from one function to the next.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Fun = Callable[..., Any]
Jit = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Wrapping:
    """`make(jit, fun)` is the wrapped function.

    `of_scalars`: `fun` has to return one scalar. `scalar`: the result is one if that of `fun` is.
    `axes`: leading axes that its arguments have beyond those of `fun`. `jits`: it uses `jit`.
    """

    make: Callable[[Jit, Fun], Fun]
    of_scalars: bool = False
    scalar: bool = True
    axes: int = 0
    jits: bool = False


WRAPPINGS: dict[str, Wrapping] = {}


def wrapping(**fields: Any) -> Callable[[Callable[[Jit, Fun], Fun]], None]:
    def enter(make: Callable[[Jit, Fun], Fun]) -> None:
        WRAPPINGS[make.__name__.strip("_")] = Wrapping(make, **fields)

    return enter


def copied(fun: Fun) -> Callable[[Fun], Fun]:
    """As functools.wraps, for a function with other arguments."""

    def copy(made: Fun) -> Fun:
        functools.update_wrapper(made, fun)
        del made.__dict__["__wrapped__"]
        return made

    return copy


# --- jits -----------------------------------------------------------------------------------------


@wrapping(jits=True)
def _jit(jit: Jit, fun: Fun) -> Fun:
    return jit(fun)


@wrapping(jits=True)
def donating_jit(jit: Jit, fun: Fun) -> Fun:
    return jit(fun, donate_argnums=0)


@wrapping(jits=True)
def static_jit(jit: Jit, fun: Fun) -> Fun:
    """With an argument of its own that is static."""

    @copied(fun)
    def powers(n: int, x: Any, scale: Any) -> Any:
        return fun(x**n, scale)

    return functools.partial(jit(powers, static_argnums=0), 3)


@wrapping(jits=True)
def method_jit(jit: Jit, fun: Fun) -> Fun:
    """A method that is jitted in the class, its object an argument like others."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Model:
        factor: Any

        @jit
        @copied(fun)
        def apply(self, x: Any, scale: Any) -> Any:
            return fun(x, self.factor * scale)

    applied: Fun = Model(2.0).apply
    return applied


# --- transformations ------------------------------------------------------------------------------


@wrapping(of_scalars=True, scalar=False)
def grad(jit: Jit, fun: Fun) -> Fun:
    return jax.grad(fun)


@wrapping(of_scalars=True, scalar=False)
def value_and_grad(jit: Jit, fun: Fun) -> Fun:
    return jax.value_and_grad(fun)


@wrapping(scalar=False, axes=1)
def vmap(jit: Jit, fun: Fun) -> Fun:
    return jax.vmap(fun)


@wrapping()
def checkpoint(jit: Jit, fun: Fun) -> Fun:
    return jax.checkpoint(fun)


@wrapping()
def custom_jvp(jit: Jit, fun: Fun) -> Fun:
    made = jax.custom_jvp(fun)
    made.defjvp(lambda primals, tangents: jax.jvp(fun, primals, tangents))
    return made


@wrapping()
def custom_vjp(jit: Jit, fun: Fun) -> Fun:
    made = jax.custom_vjp(fun)
    made.defvjp(functools.partial(jax.vjp, fun), lambda pull, g: pull(g))
    return made


@wrapping(scalar=False)
def jvp(jit: Jit, fun: Fun) -> Fun:
    return functools.wraps(fun)(lambda x, scale: jax.jvp(fun, (x, scale), (x, scale)))


@wrapping(scalar=False)
def vjp(jit: Jit, fun: Fun) -> Fun:
    @functools.wraps(fun)
    def pulled(x: Any, scale: Any) -> Any:
        out, pull = jax.vjp(fun, x, scale)
        return pull(out)

    return pulled


@wrapping(scalar=False)
def linearize(jit: Jit, fun: Fun) -> Fun:
    @functools.wraps(fun)
    def pushed(x: Any, scale: Any) -> Any:
        out, push = jax.linearize(fun, x, scale)
        return out, push(x, scale)

    return pushed


# --- Python's own ---------------------------------------------------------------------------------


@wrapping()
def partial(jit: Jit, fun: Fun) -> Fun:
    return functools.partial(fun)


@wrapping()
def Partial(jit: Jit, fun: Fun) -> Fun:
    return jax.tree_util.Partial(fun)


@wrapping()
def wraps(jit: Jit, fun: Fun) -> Fun:
    return functools.wraps(fun)(lambda x, scale: jax.tree.map(lambda y: 3.0 * y, fun(x, scale)))


@wrapping()
def methods(jit: Jit, fun: Fun) -> Fun:
    """A method, a class method and a static one, each of the next."""

    class Model:
        static = staticmethod(fun)

        @classmethod
        def of_class(cls, x: Any, scale: Any) -> Any:
            return cls.static(x, scale)

        def apply(self, x: Any, scale: Any) -> Any:
            return self.of_class(x, scale)

    return Model().apply


class CallableObject:
    """An object that is called, with attributes that others use for their own."""

    def __init__(self, fun: Fun):
        self.fun = fun
        self.options = self.keywords = self.plain = self.execution = self.name = "the user's"
        self._execution = self._plain = self._fusionstitch = "the user's"

    def __call__(self, x: Any, scale: Any) -> Any:
        return self.fun(x, scale)


@wrapping()
def callable_object(jit: Jit, fun: Fun) -> Fun:
    return CallableObject(fun)


# --- sequences ------------------------------------------------------------------------------------


def base(x: jax.Array, scale: jax.Array) -> jax.Array:
    """What is wrapped; small, since it is traced thousands of times."""
    return (lax.exp(x * scale) * x).sum()


def total(fun: Fun) -> Fun:
    """`fun` as a loss."""

    @functools.wraps(fun)
    def loss(x: Any, scale: Any) -> Any:
        return sum(leaf.sum() for leaf in jax.tree.leaves(fun(x, scale)))

    return loss


def sequences(length: int, jits: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All sequences of `length` wrappings, the outermost first, with one of `jits` or more, and no
    other jit."""
    others = [name for name, one in WRAPPINGS.items() if not one.jits]
    for names in itertools.product([*jits, *others], repeat=length):
        if not set(names).isdisjoint(jits):
            yield names


def wrapped(names: tuple[str, ...], jit: Jit) -> Fun:
    """`base` in the wrappings of `names`, the last one innermost."""
    fun, scalar = base, True
    for name in reversed(names):
        one = WRAPPINGS[name]
        if one.of_scalars and not scalar:
            fun, scalar = total(fun), True
        fun, scalar = one.make(jit, fun), scalar and one.scalar
    return fun


def arguments(names: tuple[str, ...]) -> tuple[jax.Array, jax.Array]:
    lead = (2,) * sum(WRAPPINGS[name].axes for name in names)
    x = np.random.default_rng(0).standard_normal((*lead, 4, 6), np.float32)
    return jnp.asarray(x), jnp.full(lead, 0.5, jnp.float32)
