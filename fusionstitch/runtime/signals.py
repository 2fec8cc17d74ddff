"""Deferred signals, for work that must run on the caller's thread (see `apart`)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from fusionstitch.runtime.outcome import Failed, caught

T = TypeVar("T")


def held(work: Callable[[], T]) -> T | Failed:
    """The result of `work`, or its Exception as a `Failed`, with signal handlers deferred.

    Handlers run after it, and what they raise is raised then. This is for short work that depends
    on the thread, for example what JAX lowers under the user's configuration.
    """
    if threading.current_thread() is not threading.main_thread():
        return caught(work)  # handlers do not run on this thread
    handlers: dict[int, Any] = {}
    arrived: dict[int, FrameType | None] = {}

    def arrive(number: int, frame: FrameType | None) -> None:
        arrived[number] = frame

    try:
        for number in signal.valid_signals():
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, arrive)
        found = caught(work)
    finally:
        back = [partial(signal.signal, number, handler) for number, handler in handlers.items()]
        # deferred signals are handled last: until its handler is restored, a signal may still
        # arrive
        _all([*back, lambda: _all([partial(handlers[n], n, arrived[n]) for n in arrived])])
    return found


def _all(steps: Sequence[Callable[[], Any]]) -> None:
    """Takes every step, even if one raises."""
    for number, step in enumerate(steps):
        try:
            step()
        except BaseException:
            _all(steps[number + 1 :])
            raise
