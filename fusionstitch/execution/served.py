"""What serves the programs of one function: XLA's executable, or a stitched one."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np

from fusionstitch.arguments import Statics
from fusionstitch.execution import deferred
from fusionstitch.execution.variants import NewProgram, Variant, under_a_trace
from fusionstitch.trial.outcome import XLA

#: So many calls in a row that XLA serves make wrappers call its jit directly. By then a function
#: has seen the programs that it begins with, whose first calls decide.
DIRECT_AFTER = 100
#: After so many calls of other programs, one that ran once without a decision is taken not to come
#: again. Finding out whether it does costs each of them some microseconds.
ONCE_AFTER = 10_000


class Wrapper(Protocol):
    """What calls go through."""

    def directly(self, jit: Any) -> None:
        """Calls go to this jit of XLA's from now on, with nothing in between."""

    def indirectly(self) -> None:
        """Calls go through `Served.call` again."""


class Served:
    """The jits that serve a function, by kind, and `call`, which finds the one for a call. All
    wrappers of the function with equal options share one, on any thread.

    As long as one kind serves all programs, `call` is its jit. After that a short description of
    the arguments finds the kind. The description may not tell all programs apart. A jit that lacks
    the program then raises `NewProgram`, as every jit does for a program it has not been traced
    for.

    A Python frame around each call costs more than finding the executable. So if XLA serves
    everything for long enough, and `goes_direct`, wrappers call its jit without one. Nobody catches
    a `NewProgram` there: XLA runs the first call of a new program, and the second one decides.
    """

    def __init__(self, make: Callable[[str], Any], statics: Statics, goes_direct: bool = True):
        self._make, self._statics, self._goes_direct = make, statics, goes_direct
        self._jits: dict[str, Any] = {}
        self._kinds: dict[Hashable, str] = {}
        self._alternations: dict[Hashable, Callable[..., Any]] = {}
        #: programs that XLA ran before a decision
        self._undecided: set[Hashable] = set()
        self._others = 0  # calls of other programs since the last of these
        self._wrappers: WeakSet[Wrapper] = WeakSet()
        self._is_direct = False
        self._lock = threading.RLock()
        self._deciding = 0
        self.call: Callable[..., Any] = _nothing_yet
        deferred.listen(self)

    def jit(self, kind: str) -> Any:
        """The jit of a kind."""
        with self._lock:
            if kind not in self._jits:
                made = self._jits[kind] = self._make(kind)
                if kind == XLA and isinstance(fun := getattr(made, "__wrapped__", None), Variant):
                    fun.tell(self)
            return self._jits[kind]

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """Keeps the jits compiled meanwhile: they may be on trial."""
        with self._lock:
            self._deciding += 1
        try:
            yield
        finally:
            with self._lock:
                self._deciding -= 1

    def add(self, args: Any, kwargs: Any, kind: str) -> None:
        """Makes `kind` serve the program of these arguments."""
        self._serve(self._described(args, kwargs), kind)

    def alternate(
        self, args: Any, kwargs: Any, alternation: Callable[[Callable[[str], None]], Any]
    ) -> Any:
        """Makes `alternation` serve that program until it calls its argument with the winner's
        kind. Returns what serves now."""
        program = self._described(args, kwargs)
        found = alternation(lambda kind: self._serve(program, kind))
        with self._lock:
            if program not in self._kinds:
                self._alternations[program] = found
                self.call = self._dispatch
        return found

    def _serve(self, program: Hashable, kind: str) -> None:
        with self._lock:
            self._kinds[program] = kind
            self._alternations.pop(program, None)
            self._undecided.discard(program)
            self._choose()

    def _choose(self) -> None:
        """Sets `call`. The lock is held."""
        if not self._is_alone or self._undecided:
            self.call = self._dispatch
            return
        [kind] = self.kinds
        jit = self.jit(kind)
        counts = kind == XLA and self._goes_direct
        self.call = Counting(jit, weakref.ref(self)) if counts else jit

    def go_direct(self, counting: Counting) -> None:
        """Calls go to a jit that has served long enough, if it still serves everything."""
        with self._lock:
            if self.call is not counting or not deferred.is_quiet():
                return  # `deliver` is told under this lock: nothing comes in between
            jit = counting.jit
            jit.__wrapped__.is_direct = True
            self._is_direct, self.call = True, jit
            for wrapper in list(self._wrappers):
                wrapper.directly(jit)

    def _go_indirect(self) -> None:
        """The lock is held."""
        if self._is_direct:
            self._is_direct = False
            for wrapper in list(self._wrappers):
                wrapper.indirectly()

    def attach(self, wrapper: Wrapper) -> None:
        """Tells a wrapper how to call, for as long as it lives."""
        with self._lock:
            self._wrappers.add(wrapper)
            if self._is_direct:
                wrapper.directly(self.jit(XLA))

    def deliver(self) -> None:
        """Something is to be delivered by the next call."""
        with self._lock:
            if self._is_direct:
                self._go_indirect()
                self._choose()

    def undecided(self, args: Any, kwargs: Any) -> None:
        """XLA runs the program of these arguments before a decision: its next call decides."""
        program = self._described(args, kwargs)
        with self._lock:
            self._go_indirect()
            if self.call is not _nothing_yet:  # otherwise all programs are
                self._kinds.pop(program, None)  # equally described, under other settings of JAX's
                self._undecided.add(program)
                self._others, self.call = 0, self._dispatch

    @property
    def kinds(self) -> set[str]:
        """The kinds that serve some program."""
        with self._lock:
            return set(self._kinds.values())

    @property
    def _is_alone(self) -> bool:
        return len(self.kinds) == 1 and not self._alternations

    def forget_losers(self) -> None:
        """Releases jits that serve nothing, unless a program alternates or another thread is
        deciding."""
        with self._lock:
            if self._alternations or self._deciding > 1:
                return
            for kind in self._jits.keys() - self.kinds:
                self._jits.pop(kind).clear_cache()

    def clear(self) -> None:
        """Forgets everything traced, compiled and decided."""
        with self._lock:
            jits = list(self._jits.values())
            self._kinds.clear()
            self._alternations.clear()
            self._undecided.clear()
            self._go_indirect()
            self.call = _nothing_yet
        for jit in jits:
            jit.clear_cache()

    def cache_size(self) -> int:
        """The number of programs compiled to serve: as jax.jit counts them, or, if several kinds
        serve, as `_described` tells them apart. Each kind has then also run others' programs on
        trial."""
        with self._lock:
            if not self._is_alone:
                return len(self._kinds) + len(self._alternations)
            [kind] = self.kinds
            size: int = self.jit(kind)._cache_size()
            return size

    def _dispatch(self, /, *args: Any, **kwargs: Any) -> Any:
        program = self._described(args, kwargs)
        try:
            alternation, kind = self._alternations.get(program), self._kinds.get(program)
        except Exception:  # a static argument that is not hashable: JAX says so when it traces
            raise NewProgram from None
        if alternation is not None and not under_a_trace((args, kwargs)):
            return alternation(*args, **kwargs)
        jit = None if kind is None else self._jits.get(kind)
        if jit is None:
            raise NewProgram
        if self._undecided:
            self._wait_less()
        return jit(*args, **kwargs)

    def _wait_less(self) -> None:
        """Another program ran than those that are undecided."""
        self._others += 1
        if self._others >= ONCE_AFTER:
            with self._lock:
                self._undecided.clear()
                self._choose()

    def _described(self, args: Any, kwargs: Any) -> Hashable:
        """What tells most programs of a function apart: the values of static arguments, and the
        structure, shapes and types of the others."""
        import jax

        static: tuple[Hashable, ...] = ()
        if self._statics:
            numbers, names = self._statics.of(args)
            static = (
                *((n, args[n]) for n in sorted(numbers)),
                *((name, kwargs[name]) for name in sorted(names & kwargs.keys())),
            )
            args = [arg for n, arg in enumerate(args) if n not in numbers]
            kwargs = {name: value for name, value in kwargs.items() if name not in names}
        leaves, tree = jax.tree.flatten((args, kwargs))
        return (static, tree, *map(_leaf, leaves))


#: Arguments that are no arrays of JAX's.
_OF_HOST = (bool, int, float, complex, np.ndarray, np.generic)


class Counting:
    """A jit of XLA's, until it has served long enough to be called directly."""

    def __init__(self, jit: Any, served: Callable[[], Served | None]):
        self.jit, self._served, self._left = jit, served, DIRECT_AFTER

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        results = self.jit(*args, **kwargs)
        self._left -= 1
        if self._left <= 0 and (served := self._served()) is not None:
            served.go_direct(self)
        return results


class Left:
    """jax.jit serves alone, after a stitched program has failed."""

    def __init__(self, own: Any):
        self.call, self.kinds = own, {XLA}

    def attach(self, wrapper: Wrapper) -> None:
        """As `Served.attach`."""

    def cache_size(self) -> int:
        """As `Served.cache_size`."""
        size: int = self.call._cache_size()
        return size

    def clear(self) -> None:
        """As `Served.clear`."""
        self.call.clear_cache()


def _nothing_yet(*args: Any, **kwargs: Any) -> Any:
    raise NewProgram


def _leaf(leaf: Any) -> Hashable:
    if isinstance(leaf, _OF_HOST):  # as in a trace
        import jax

        with contextlib.suppress(TypeError):
            leaf = jax.typeof(leaf)
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None:
        return dtype, getattr(leaf, "shape", None), getattr(leaf, "weak_type", False)
    return type(leaf).__qualname__
