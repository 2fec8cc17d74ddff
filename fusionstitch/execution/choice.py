"""How a jitted function reaches the compiler: inside XLA, through the emulator, or not at all."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from fusionstitch import env
from fusionstitch.errors import OptionError, StitchError, reason
from fusionstitch.execution.path import (
    ExecutionPath,
    Find,
    Holder,
    Jit,
    Lower,
    name_of,
    warn,
    warn_once,
)
from fusionstitch.options import Options
from fusionstitch.runtime.apart import alone, apart
from fusionstitch.runtime.outcome import Failed
from fusionstitch.supported import jax_version
from fusionstitch.trial import triable


def choose(
    fun: Callable[..., Any], plain: Any, jit: Jit, keywords: Any, options: Options
) -> ExecutionPath:
    """The execution path for `options` on this machine. Initializes JAX's backends.

    If CUDA was asked for or a GPU is present, but CUDA cannot be used, one warning says why. Under
    fallback="error" a StitchError is raised instead. An unsupported JAX is treated alike, on either
    path, with one warning per process. Raises OptionError for an invalid environment variable.
    """
    from fusionstitch.compiler import builders

    alone(env.check)
    if options.backend == "xla":
        return Plain(plain)
    if not (version := jax_version()):
        if options.backend != "auto" or builders.gpu():
            if options.fallback == "error":
                raise StitchError(version.reason)
            warn_once("every function", version.reason)
        return Plain(plain)

    _hide_own_frames()
    if options.backend == "emulate":
        from fusionstitch.execution.emulated import Emulated

        return Emulated(fun, plain, jit, keywords, options)
    found = builders.gpu()
    if not found and options.backend == "auto":
        return Plain(plain)
    from fusionstitch.execution.cuda import Cuda, Prepared, prepare

    if not found:
        why = f"{found.reason} backend='emulate' runs the kernels on the host."
        prepared: Prepared | Failed = Failed(StitchError(why))
    else:
        prepared = apart(lambda: prepare(options))
    if not isinstance(prepared, Failed):
        if triable.in_this_process(options, prepared.device):
            from fusionstitch.execution.cuda_with_trials import CudaWithTrials

            return CudaWithTrials(fun, plain, jit, keywords, options, prepared)
        return Cuda(fun, plain, jit, keywords, options, prepared)
    error = prepared.error  # a broken installation may raise anything
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

    def held_by(self, holder: Holder) -> None:
        holder._call = self.call

    def trace(self, args: Any, kwargs: Any, platforms: Any) -> Any:
        return self.call.trace(*args, **kwargs)

    def compile(
        self, traced: Any, plain: Lower, lowered: Any, *args: Any, **keywords: Any
    ) -> tuple[Any, Find]:
        return lowered.compile(*args, **keywords), lambda: None

    def cache_size(self) -> int:
        size: int = self.call._cache_size()
        return size

    def clear_cache(self) -> None:
        self.call.clear_cache()


@functools.cache
def _hide_own_frames() -> None:
    """Makes JAX report the user's line and not ours, in the locations of ops and in its log."""
    from jax.extend import source_info_util

    package = os.path.dirname(os.path.dirname(__file__))
    source_info_util.register_exclusion(os.path.join(package, ""))
