"""The interface of execution paths, and how they warn."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import fusionstitch
from fusionstitch.errors import FusionStitchWarning
from fusionstitch.hlo import foreign

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched

#: Finds what was stitched in a compiled program.
Find: TypeAlias = Callable[[], "Stitched | None"]
#: Lowers the program again, with jax.jit or the given jit: returns a jax.stages.Lowered.
Lower: TypeAlias = Callable[..., Any]
Jit: TypeAlias = Callable[..., Any]


class Holder(Protocol):
    """What users call: its calls go to `_call`."""

    _call: Callable[..., Any]


class ExecutionPath(Protocol):
    """What `fs.jit` delegates to.

    `own` is the jax.jit that provides stages and shapes. Calls share its traces of the user's
    function, as under jax.jit.
    """

    own: Any

    @property
    def call(self) -> Callable[..., Any]:
        """Runs the function as jax.jit would."""

    def held_by(self, holder: Holder) -> None:
        """Sets what the holder calls, now and whenever a shorter way is found."""

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        """The jax.stages.Traced of what is to be lowered."""

    def compile(
        self, traced: Any, plain: Lower, lowered: Any, *args: Any, **keywords: Any
    ) -> tuple[Any, Find]:
        """The jax.stages.Compiled, and how to find what was stitched in it. `plain` lowers as
        jax.jit."""

    def cache_size(self) -> int:
        """The number of programs compiled for calls."""

    def clear_cache(self) -> None:
        """Forgets everything traced and compiled."""


def name_of(fun: Callable[..., Any]) -> str:
    """The name that jax.jit uses for a function."""
    return getattr(fun, "__name__", None) or type(fun).__name__


def warn(name: str, why: str, part: str = "") -> None:
    """Warns that a program runs unstitched; `part` is " in part" if some of it is stitched."""
    said = foreign.lines(f"{name} runs as under jax.jit{part}: {why}")
    warnings.warn(said, FusionStitchWarning, stacklevel=_user_level())


def _user_level() -> int:
    """How many frames above `warn` the user's code is: the first frame that is neither ours nor
    JAX's, or the outermost one."""
    import jax

    folders = tuple(f"{m.__path__[0]}{os.sep}" for m in (fusionstitch, jax))
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(folders):
        frame, level = frame.f_back, level + 1
    return level


#: What `warn_once` has warned about.
_said: set[str] = set()


def warn_once(name: str, why: str) -> None:
    """`warn` for something that concerns the whole process."""
    if why not in _said:
        _said.add(why)
        warn(name, why)


class Once:
    """`warn` for one function: only the first reason is reported, however often it is traced.
    explain() has the reasons of each program. Warnings about other functions, which
    `deferred.deliver` issues, do not count."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, name: str, why: str, part: str = "") -> None:
        if name not in self._said:
            self._said.add(name)
            warn(name, why, part)


def left(result: Stitched) -> tuple[str, str] | None:
    """What was left to XLA, as the last arguments of `warn`: a single warning for all of it."""
    if not result.fallbacks:
        return None
    first, more = result.fallbacks[0], len(result.fallbacks) - 1
    also = f" ({more} more: see explain())" if more else ""
    return f"{first.reason}{also}", " in part" if first.ops else ""
