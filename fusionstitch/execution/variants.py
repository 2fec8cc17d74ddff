"""One function under several names: XLA compiles a program of its own for each.

A variant is what jax.jit is given in the place of the user's function: it has a name, which may
carry a mark for the pass, and hands its arguments on to an inlined jit of the function. So all
variants share what was traced, and the user's Python runs as often as under jax.jit.

A variant that a call traces anew says so by raising `NewProgram` before it runs any of the user's
code: the caller then decides what is to run. On a thread that is `tracing` it lets the trace pass.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from fusionstitch.arguments import STATIC
from fusionstitch.execution.original import plain_jit
from fusionstitch.execution.path import name_of
from fusionstitch.execution.recovery import Recovery

T = TypeVar("T")
#: Gives a function, as long as that lives.
Held: TypeAlias = Callable[[], Callable[..., Any] | None]


class NewProgram(BaseException):
    """A call needs a program that this variant has not been traced for. No `except Exception` is
    to take it for an error."""


class _Thread(threading.local):
    """How many `tracing` contexts this thread is in."""

    depth = 0


_thread = _Thread()


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Variants may be traced on this thread."""
    _thread.depth += 1
    try:
        yield
    finally:
        _thread.depth -= 1


class Variant:
    """The user's function under another name; JAX's messages show the function itself.

    It lives as long as that function (see `shared`), so it may not keep it alive: `held` gives it.
    """

    def __init__(
        self,
        held: Held,
        name: str,
        free: bool,
        inner: Callable[[Callable[..., Any]], Callable[..., Any]],
    ):
        self._held, self._free, self._inner = held, free, inner
        #: who wants to know that it is traced anew
        self.recoveries: WeakSet[Recovery] = WeakSet()
        self.__module__ = getattr(self.__wrapped__, "__module__", __name__)
        self.__doc__ = self.__wrapped__.__doc__
        self.__name__ = name
        self.__qualname__ = getattr(self.__wrapped__, "__qualname__", name_of(self.__wrapped__))

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        fun = self._held()
        assert fun is not None, "a Jitted holds its function"
        return fun

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if not self._free and not _thread.depth and under_a_trace((args, kwargs)):
            raise NewProgram
        for recovery in self.recoveries:
            recovery.tracing()
        return self._inner(self.__wrapped__)(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


#: What is known of each function, by what it is known for, with how to get that function.
_shared: WeakKeyDictionary[Callable[..., Any], dict[Hashable, tuple[Held, Any]]] = (
    WeakKeyDictionary()
)
_sharing = threading.RLock()


def shared(fun: Callable[..., Any], key: Hashable, make: Callable[[Held], T]) -> T:
    """What `make` gives for a function: the same object for each `key` as long as the function
    lives, so that several jits of it share what JAX knows of it, as under jax.jit. None as key
    gives one of its own. What is made may not keep the function alive: it is told how to get it.
    """
    if key is None:
        return make(lambda: fun)
    with _sharing:
        try:
            known = _shared.setdefault(fun, {})
        except TypeError:  # neither hashable nor weakly referable
            return make(lambda: fun)
        if key not in known:
            weak = weakref.ref(fun)
            known[key] = weak, make(weak)
        held, made = known[key]
    # equal but not the same: bound methods
    return made if held() is fun else make(lambda: fun)


def frozen(keywords: Mapping[str, Any]) -> Hashable:
    """Keywords of a jit as a key; None where values of theirs have no hash."""
    key = tuple((name, _frozen(keywords[name])) for name in sorted(keywords))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _frozen(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value), *map(_frozen, value)
    if isinstance(value, dict):
        return dict, *((key, _frozen(one)) for key, one in value.items())
    return value


def variant(
    fun: Callable[..., Any],
    name: str,
    keywords: Mapping[str, Any] | None = None,
    free: bool = True,
) -> Variant:
    """`fun` under a name, which jits of it with equal keywords share.

    With the `keywords` of its jit it shares traces with the function's other variants. One that is
    `free` lets every trace pass.
    """
    if keywords is None:
        key: Hashable = Variant, f"{name}", free
        return shared(fun, key, lambda held: Variant(held, name, free, _itself))
    inner = functools.partial(_inlined, {key: keywords.get(key) for key in STATIC})
    given = frozen(keywords)
    key = None if given is None else (Variant, f"{name}", free, given)
    return shared(fun, key, lambda held: Variant(held, name, free, inner))


def _itself(fun: Callable[..., Any]) -> Callable[..., Any]:
    return fun


def _inlined(static: Mapping[str, Any], fun: Callable[..., Any]) -> Callable[..., Any]:
    inlined: Callable[..., Any] = plain_jit()(fun, inline=True, **static)
    return inlined


def _is_traced(arguments: Any) -> bool:
    """Whether a call is a trace, and no run of the function op by op."""
    import jax

    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments))


def under_a_trace(arguments: Any) -> bool:
    """Whether a call with these arguments is part of something else that is traced."""
    import jax

    if _is_traced(arguments):
        return True
    with jax.transfer_guard("allow"):
        return isinstance(jax.device_put(0), jax.core.Tracer)


def is_op_by_op() -> bool:
    """Whether jit is off, so that functions run as Python has them."""
    import jax

    config: Any = jax.config
    return bool(config.jax_disable_jit)
