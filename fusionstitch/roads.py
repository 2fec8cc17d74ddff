"""How a jitted function reaches the compiler: inside XLA, through the emulator, or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from fusionstitch.errors import FusionStitchError, FusionStitchWarning, StitchError
from fusionstitch.options import Options

if TYPE_CHECKING:
    from fusionstitch.core import Stitched

#: Finds, when asked, what was stitched in a compiled program.
Find: TypeAlias = Callable[[], "Stitched | None"]
Jit: TypeAlias = Callable[..., Any]


class Road(Protocol):
    """What `fs.jit` hands its work to.

    `own` is the jax.jit that traces the user's function itself: the only one that does, so that
    calls, stages and shapes share their traces as under jax.jit.
    """

    own: Any

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function as jax.jit would."""

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        """JAX's Traced of what is to be lowered."""

    def compile(self, traced: Any, lowered: Any, *args: Any, **keywords: Any) -> tuple[Any, Find]:
        """JAX's Compiled, and how to find what was stitched in it."""

    def clear_cache(self) -> None:
        """Forgets what was traced and compiled."""


def choose(fun: Callable[..., Any], plain: Any, jit: Jit, keywords: Any, options: Options) -> Road:
    """The road for `options` on this machine; initializes JAX's backends.

    Where the CUDA road cannot be taken although it was asked for, or although there is a GPU,
    one warning says why, or a StitchError under fallback="error".
    """
    from fusionstitch import builders
    from fusionstitch.road_cuda import Cuda
    from fusionstitch.road_emulated import Emulated

    if options.backend == "emulate":
        return Emulated(fun, plain, jit, keywords, options)
    found = builders.gpu()
    if not found and options.backend == "auto":
        return Plain(plain)
    try:
        if not found:
            raise StitchError(f"{found.reason} backend='emulate' runs the kernels on the host.")
        return Cuda(fun, plain, jit, keywords, options, builders.profile(options))
    except FusionStitchError as error:
        if options.fallback == "error":
            raise
        warn(name_of(fun), str(error))
        return Plain(plain)


class Plain:
    """jax.jit itself."""

    def __init__(self, plain: Any):
        self.own = self.call = plain

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        return self.call.trace(*args, **kwargs)

    def compile(self, traced: Any, lowered: Any, *args: Any, **keywords: Any) -> tuple[Any, Find]:
        return lowered.compile(*args, **keywords), lambda: None

    def clear_cache(self) -> None:
        self.call.clear_cache()


def name_of(fun: Callable[..., Any]) -> str:
    """What jax.jit calls a function."""
    return getattr(fun, "__name__", None) or type(fun).__name__


def warn(name: str, why: str) -> None:
    """Says that a program runs unstitched."""
    warnings.warn(f"{name} runs as under jax.jit: {why}", FusionStitchWarning, stacklevel=2)
