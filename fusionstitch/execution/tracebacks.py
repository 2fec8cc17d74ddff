"""Removes this package's frames from the tracebacks of users' errors, as JAX removes its own. The
reader sees the call, the functions called, and what they raised.

JAX's filter knows only files registered with JAX, and has no public name to register others.
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
    """Removes this package's frames from an error, before a bare `raise` raises it again. Does
    nothing under jax_traceback_filtering="off" (JAX_TRACEBACK_FILTERING)."""
    import jax

    if getattr(jax.config, "jax_traceback_filtering", None) == "off":
        return
    frames, at = [], error.__traceback__
    while at is not None:
        if not _is_ours(at.tb_frame):
            frames.append(at)
        at = at.tb_next
    visible: types.TracebackType | None = None
    for one in reversed(frames):
        visible = types.TracebackType(visible, one.tb_frame, one.tb_lasti, one.tb_lineno)
    error.__traceback__ = visible


def _is_ours(frame: types.FrameType) -> bool:
    # not by file: methods written by dataclasses have none
    module = str(frame.f_globals.get("__name__"))
    return module.partition(".")[0] == _PACKAGE


def without_own_frames(method: Callable[P, T]) -> Callable[P, T]:
    """Decorates a public function: its errors show no frame of this package."""

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            hide_own_frames(error)
            raise

    return called
