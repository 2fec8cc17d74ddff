"""When Python looks for garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collected_later() -> Iterator[None]:
    """Cycles are not looked for meanwhile: not where programs run, whose cycles hold their arrays.

    Planning and code generation make millions of objects, hardly one of them part of a cycle, and
    keep many of them to their end: going through these again and again took a fifth of their time.
    """
    wanted = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if wanted:
            gc.enable()
