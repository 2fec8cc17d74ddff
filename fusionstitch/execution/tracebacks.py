"""Frames of this package are taken out of the tracebacks of users' errors, as JAX takes out its
own: who reads one sees the call, the functions called, and what they raised.

JAX's filter knows the files that JAX has told it of, and no public name tells it of others.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_PACKAGE = __name__.partition(".")[0]


def hide_own_frames(error: Exception) -> None:
    """Takes this package's frames out of an error that is to be raised again by a bare `raise`;
    none under jax_traceback_filtering="off" (JAX_TRACEBACK_FILTERING)."""
    import jax

    if getattr(jax.config, "jax_traceback_filtering", None) == "off":
        return
    frames, at = [], error.__traceback__
    while at is not None:
        if not _is_ours(at.tb_frame):
            frames.append(at)
        at = at.tb_next
    kept: types.TracebackType | None = None
    for one in reversed(frames):
        kept = types.TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    error.__traceback__ = kept


def _is_ours(frame: types.FrameType) -> bool:
    # not by the file: dataclasses write methods that have none
    module = str(frame.f_globals.get("__name__"))
    return module.partition(".")[0] == _PACKAGE


def without_own_frames(method: Callable[P, T]) -> Callable[P, T]:
    """A function of the public surface, whose errors show no frame of this package."""

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            hide_own_frames(error)
            raise

    return called
