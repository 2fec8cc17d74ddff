"""Interrupts that Python would lose."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds until a lost interrupt is repeated.
AGAIN_S = 0.05


@contextmanager
def heard() -> Iterator[None]:
    """Repeats an interrupt a moment later if it arrives where nothing can be raised. In a
    destructor, or in a callback of the garbage collector (JAX has one), Python only prints it and
    continues."""
    before = sys.unraisablehook
    main = threading.main_thread().ident
    timers: list[threading.Timer] = []

    def again() -> None:
        if main is not None:
            signal.pthread_kill(main, signal.SIGINT)

    def hook(lost: Any) -> None:
        if lost.exc_type is not KeyboardInterrupt:
            before(lost)
            return
        timers.append(threading.Timer(AGAIN_S, again))
        timers[-1].start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()
