"""Who serves the programs of one function: XLA's executable, or a stitched one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from fusionstitch.arguments import Statics
from fusionstitch.roads.variants import NewProgram, under_a_trace


class Served:
    """The jits that serve a function, by kind, and `call`, which finds the one for a call.

    As long as one kind serves all programs, `call` is its jit. After that a short description of
    the arguments finds the kind. It may be too short to tell programs apart; then the jit that it
    finds may lack the program, and raises `NewProgram`, as every jit does for one that it has not
    been traced for.
    """

    def __init__(self, make: Callable[[str], Any], statics: Statics):
        self._make, self._statics = make, statics
        self._jits: dict[str, Any] = {}
        self._kinds: dict[Hashable, str] = {}
        self._turns: dict[Hashable, Callable[..., Any]] = {}
        self.call: Callable[..., Any] = _nothing_yet

    def jit(self, kind: str) -> Any:
        """The jit of a kind."""
        if kind not in self._jits:
            self._jits[kind] = self._make(kind)
        return self._jits[kind]

    def add(self, args: Any, kwargs: Any, kind: str) -> None:
        """Has `kind` serve the program of these arguments."""
        self._serve(self._described(args, kwargs), kind)

    def take_turns(
        self, args: Any, kwargs: Any, turns: Callable[[Callable[[str], None]], Any]
    ) -> Any:
        """Has `turns` serve that program until it tells what it is given who does; returns what
        serves now."""
        program = self._described(args, kwargs)
        found = turns(lambda kind: self._serve(program, kind))
        if program not in self._kinds:
            self._turns[program] = found
            self.call = self._dispatch
        return found

    def _serve(self, program: Hashable, kind: str) -> None:
        self.jit(kind).__wrapped__.serves = True
        self._kinds[program] = kind
        self._turns.pop(program, None)
        alone = len(self.kinds) == 1 and not self._turns
        self.call = self.jit(kind) if alone else self._dispatch

    @property
    def kinds(self) -> set[str]:
        """Those that serve some program."""
        return set(self._kinds.values())

    def forget_losers(self) -> None:
        """Lets go of what serves nothing, here or in another jit of the function, once nobody takes
        turns."""
        if self._turns:
            return
        for kind in self._jits.keys() - self.kinds:
            jit = self._jits.pop(kind)
            if not jit.__wrapped__.serves:
                jit.clear_cache()

    def clear(self) -> None:
        """Forgets what was traced, compiled and decided."""
        for jit in self._jits.values():
            jit.clear_cache()
        self._kinds.clear()
        self._turns.clear()
        self.call = _nothing_yet

    def cache_size(self) -> int:
        """How many programs are compiled to serve."""
        return sum(self._jits[kind]._cache_size() for kind in self.kinds)

    def _dispatch(self, /, *args: Any, **kwargs: Any) -> Any:
        program = self._described(args, kwargs)
        try:
            turns, kind = self._turns.get(program), self._kinds.get(program)
        except Exception:  # a static argument without a hash: JAX says so where it is traced
            raise NewProgram from None
        if turns is not None and not under_a_trace((args, kwargs)):
            return turns(*args, **kwargs)
        if kind is None:
            raise NewProgram
        return self._jits[kind](*args, **kwargs)

    def _described(self, args: Any, kwargs: Any) -> Hashable:
        """What tells most programs of a function apart: the values of static arguments, structure,
        shapes and types of the others."""
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


def _nothing_yet(*args: Any, **kwargs: Any) -> Any:
    raise NewProgram


def _leaf(leaf: Any) -> Hashable:
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None:
        return dtype, getattr(leaf, "shape", None), getattr(leaf, "weak_type", False)
    return type(leaf).__qualname__
