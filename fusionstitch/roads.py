"""How a jitted function reaches the compiler: inside XLA, through the emulator, or not at all."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from fusionstitch import env
from fusionstitch.errors import FusionStitchWarning, OptionError, StitchError, reason
from fusionstitch.hlo import foreign
from fusionstitch.options import Options
from fusionstitch.runtime.apart import alone, apart
from fusionstitch.runtime.outcome import Failed
from fusionstitch.supported import jax_version

if TYPE_CHECKING:
    from fusionstitch.core import Stitched

#: Finds, when asked, what was stitched in a compiled program.
Find: TypeAlias = Callable[[], "Stitched | None"]
#: Lowers the program once more, as jax.jit: JAX's Lowered.
Lower: TypeAlias = Callable[[], Any]
Jit: TypeAlias = Callable[..., Any]


class Road(Protocol):
    """What `fs.jit` hands its work to.

    `own` is the jax.jit that traces the user's function itself: the only one that does, so that
    calls, stages and shapes share their traces as under jax.jit. `jitted` is the jax.jit that runs.
    """

    own: Any
    jitted: Any

    def call(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the function as jax.jit would."""

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        """JAX's Traced of what is to be lowered."""

    def compile(
        self, traced: Any, plain: Lower, lowered: Any, *args: Any, **keywords: Any
    ) -> tuple[Any, Find]:
        """JAX's Compiled, and how to find what was stitched in it; `plain` lowers as jax.jit."""

    def clear_cache(self) -> None:
        """Forgets what was traced and compiled."""


def choose(fun: Callable[..., Any], plain: Any, jit: Jit, keywords: Any, options: Options) -> Road:
    """The road for `options` on this machine; initializes JAX's backends.

    Where the CUDA road cannot be taken although it was asked for, or although there is a GPU,
    one warning says why, or a StitchError under fallback="error"; so on either road if this JAX is
    not supported, once a process. Raises OptionError for an environment variable that is not
    allowed.
    """
    from fusionstitch import builders

    alone(env.check)
    if not (version := jax_version()):
        if options.backend != "auto" or builders.gpu():
            if options.fallback == "error":
                raise StitchError(version.reason)
            warn_once("every function", version.reason)
        return Plain(plain)

    _hide_own_frames()
    if options.backend == "emulate":
        from fusionstitch.road_emulated import Emulated

        return Emulated(fun, plain, jit, keywords, options)
    found = builders.gpu()
    if not found and options.backend == "auto":
        return Plain(plain)
    from fusionstitch.road_cuda import Cuda, Prepared, prepare

    if not found:
        why = f"{found.reason} backend='emulate' runs the kernels on the host."
        prepared: Prepared | Failed = Failed(StitchError(why))
    else:
        prepared = apart(lambda: prepare(options))
    if not isinstance(prepared, Failed):
        return Cuda(fun, plain, jit, keywords, options, prepared)
    error = prepared.error  # a broken installation raises what it likes
    if options.fallback == "error":
        if isinstance(error, (StitchError, OptionError)):
            raise error
        raise StitchError(f"{name_of(fun)} cannot be stitched: {reason(error)}") from error
    warn(name_of(fun), reason(error))
    return Plain(plain)


class Plain:
    """jax.jit itself."""

    def __init__(self, plain: Any):
        self.own = self.jitted = self.call = plain

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        return self.call.trace(*args, **kwargs)

    def compile(
        self, traced: Any, plain: Lower, lowered: Any, *args: Any, **keywords: Any
    ) -> tuple[Any, Find]:
        return lowered.compile(*args, **keywords), lambda: None

    def clear_cache(self) -> None:
        self.call.clear_cache()


@functools.cache
def _hide_own_frames() -> None:
    """Has JAX say where the user called, not where we did: in locations of ops and in its log."""
    from jax.extend import source_info_util

    source_info_util.register_exclusion(os.path.join(os.path.dirname(__file__), ""))


def name_of(fun: Callable[..., Any]) -> str:
    """What jax.jit calls a function."""
    return getattr(fun, "__name__", None) or type(fun).__name__


def warn(name: str, why: str, part: str = "") -> None:
    """Says that a program runs unstitched; `part` is " in part" where some of it is stitched."""
    said = foreign.lines(f"{name} runs as under jax.jit{part}: {why}")
    warnings.warn(said, FusionStitchWarning, stacklevel=2)


#: What `warn_once` has said.
_said: set[str] = set()


def warn_once(name: str, why: str) -> None:
    """`warn` for what concerns the whole process."""
    if why not in _said:
        _said.add(why)
        warn(name, why)


class Once:
    """`warn` for one function: the first reason is said, however often it is traced; explain() has
    those of each program. What is told of others (see `behind.settle`) does not count for it.
    """

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, name: str, why: str, part: str = "") -> None:
        if name not in self._said:
            self._said.add(name)
            warn(name, why, part)


def left(result: Stitched) -> tuple[str, str] | None:
    """What was left to XLA as the last arguments of `warn`: one warning, whatever the number."""
    if not result.fallbacks:
        return None
    first, more = result.fallbacks[0], len(result.fallbacks) - 1
    also = f" ({more} more: see explain())" if more else ""
    return f"{first.reason}{also}", " in part" if first.ops else ""
