"""One function under several names: XLA compiles a separate program for each.

A variant is what jax.jit gets instead of the user's function. It has a name, which may carry a mark
for the pass, and passes its arguments on to an inlined jit of the function. So all variants share
traces, and the user's Python runs as often as under jax.jit.

If a call makes JAX trace a variant again, the variant raises `NewProgram` before it runs any of the
user's code. The caller then decides what is to run. On a thread that is `tracing`, the trace
proceeds. So it does, from then on, in a variant that was ever called directly, where nobody catches
what it raises; it tells `Served` instead.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from fusionstitch.arguments import STATIC
from fusionstitch.execution.original import plain_jit
from fusionstitch.execution.path import name_of
from fusionstitch.execution.recovery import Recovery
from fusionstitch.execution.tracebacks import hide_own_frames

T = TypeVar("T")
#: Returns a function while it is alive.
FunctionRef: TypeAlias = Callable[[], Callable[..., Any] | None]


class NewProgram(BaseException):
    """A call needs a program that this variant has not been traced for. Not an Exception, so that
    `except Exception` does not catch it."""


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


class Deciding(Protocol):
    """Who decides what serves a program."""

    def undecided(self, args: Any, kwargs: Any) -> None:
        """The program of these arguments, which are tracers, runs before a decision."""


class Variant:
    """The user's function under another name; JAX's messages show the function itself.

    It lives as long as that function (see `shared`) and must not keep it alive. `function` returns
    it.
    """

    def __init__(
        self,
        function: FunctionRef,
        name: str,
        free: bool,
        inner: Callable[[Callable[..., Any]], Callable[..., Any]],
    ):
        self._function, self._free, self._inner = function, free, inner
        #: to be notified when it is traced again
        self.recoveries: WeakSet[Recovery] = WeakSet()
        self._deciding: WeakSet[Deciding] = WeakSet()
        #: whether jits of it have been called without anybody who catches `NewProgram`
        self.is_direct = False
        self.__module__ = getattr(self.__wrapped__, "__module__", __name__)
        self.__doc__ = self.__wrapped__.__doc__
        self.__name__ = name
        self.__qualname__ = getattr(self.__wrapped__, "__qualname__", name_of(self.__wrapped__))

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        fun = self._function()
        assert fun is not None, "a Jitted holds its function"
        return fun

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if not self._free and not _thread.depth and under_a_trace((args, kwargs)):
            if not self.is_direct:
                raise NewProgram
            with _sharing:
                deciding = list(self._deciding)
            for one in deciding:
                one.undecided(args, kwargs)
        for recovery in self.recoveries:
            recovery.tracing()
        try:
            return self._inner(self.__wrapped__)(*args, **kwargs)
        except Exception as error:  # nobody else hides this frame where it is called directly
            hide_own_frames(error)
            raise

    def tell(self, deciding: Deciding) -> None:
        """Tells of programs that run before a decision, which they do once it `is_direct`."""
        with _sharing:
            self._deciding.add(deciding)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


#: Shared objects of each function by key, each with a reference to the function.
_shared: WeakKeyDictionary[Callable[..., Any], dict[Hashable, tuple[FunctionRef, Any]]] = (
    WeakKeyDictionary()
)
_sharing = threading.RLock()


def shared(fun: Callable[..., Any], key: Hashable, make: Callable[[FunctionRef], T]) -> T:
    """What `make` returns for a function: one object per `key` for as long as the function lives.
    So several jits of it share JAX's caches, as under jax.jit. With None as key, nothing is shared.
    The object must not keep the function alive: `make` gets a reference to it."""
    if key is None:
        return make(lambda: fun)
    with _sharing:
        try:
            known = _shared.setdefault(fun, {})
        except TypeError:  # not hashable, or not weakly referenceable
            return make(lambda: fun)
        if key not in known:
            weak = weakref.ref(fun)
            known[key] = weak, make(weak)
        function, made = known[key]
    # equal but not identical: bound methods
    return made if function() is fun else make(lambda: fun)


def frozen(keywords: Mapping[str, Any]) -> Hashable:
    """Keywords of a jit as a key; None if a value is not hashable."""
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
    guarded: bool = False,
) -> Variant:
    """`fun` under a name, shared by jits of it with equal keywords.

    With the `keywords` of its jit it shares traces with the function's other variants. If `free`,
    it lets every trace pass. One that is `guarded` is never called directly.
    """
    if keywords is None:
        key: Hashable = Variant, f"{name}", free
        return shared(fun, key, lambda function: Variant(function, name, free, _itself))
    inner = functools.partial(_inlined, {key: keywords.get(key) for key in STATIC})
    given = frozen(keywords)
    key = None if given is None else (Variant, f"{name}", free, guarded, given)
    return shared(fun, key, lambda function: Variant(function, name, free, inner))


def _itself(fun: Callable[..., Any]) -> Callable[..., Any]:
    return fun


def _inlined(static: Mapping[str, Any], fun: Callable[..., Any]) -> Callable[..., Any]:
    inlined: Callable[..., Any] = plain_jit()(fun, inline=True, **static)
    return inlined


def _is_traced(arguments: Any) -> bool:
    """Whether a call is a trace, and not a run of the function op by op."""
    import jax

    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments))


def under_a_trace(arguments: Any) -> bool:
    """Whether a call with these arguments is part of an outer trace."""
    import jax

    if _is_traced(arguments):
        return True
    with jax.transfer_guard("allow"):
        return isinstance(jax.device_put(0), jax.core.Tracer)


def is_op_by_op() -> bool:
    """Whether jit is disabled, so that functions run as plain Python."""
    import jax

    config: Any = jax.config
    return bool(config.jax_disable_jit)
