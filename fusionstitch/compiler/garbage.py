"""When Python's garbage collector runs."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collected_later() -> Iterator[None]:
    """Disables the cycle collector meanwhile. It must not be used while programs run, whose cycles
    hold their arrays.

    Planning and code generation make millions of objects, few of them in cycles, and keep many of
    them. Traversing these again and again took a fifth of their time.
    """
    wanted = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if wanted:
            gc.enable()
