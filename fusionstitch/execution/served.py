"""What serves the programs of one function: XLA's executable, or a stitched one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from fusionstitch.arguments import Statics
from fusionstitch.execution.variants import NewProgram, under_a_trace
from fusionstitch.trial.outcome import XLA


class Served:
    """The jits that serve a function, by kind, and `call`, which finds the one for a call. All
    wrappers of the function with equal options share one, on any thread.

    As long as one kind serves all programs, `call` is its jit. After that a short description of
    the arguments finds the kind. The description may not tell all programs apart. A jit that lacks
    the program then raises `NewProgram`, as every jit does for a program it has not been traced
    for.
    """

    def __init__(self, make: Callable[[str], Any], statics: Statics):
        self._make, self._statics = make, statics
        self._jits: dict[str, Any] = {}
        self._kinds: dict[Hashable, str] = {}
        self._alternations: dict[Hashable, Callable[..., Any]] = {}
        self._lock = threading.RLock()
        self._deciding = 0
        self.call: Callable[..., Any] = _nothing_yet

    def jit(self, kind: str) -> Any:
        """The jit of a kind."""
        with self._lock:
            if kind not in self._jits:
                self._jits[kind] = self._make(kind)
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
            self.call = self.jit(kind) if self._is_alone else self._dispatch

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
            size: int = self.call._cache_size()  # type: ignore[attr-defined]
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
        return jit(*args, **kwargs)

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


class Left:
    """jax.jit serves alone, after a stitched program has failed."""

    def __init__(self, own: Any):
        self.call, self.kinds = own, {XLA}

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
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None:
        return dtype, getattr(leaf, "shape", None), getattr(leaf, "weak_type", False)
    return type(leaf).__qualname__
