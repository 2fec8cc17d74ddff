"""Loads the planner and the code generator while XLA compiles its side of a trial.

XLA compiles without the GIL, and loading several hundred modules takes as long as compiling a small
program. Loading ends before the compile is used: programs are timed next.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from fusionstitch.runtime.outcome import Failed, caught
from fusionstitch.runtime.threads import start

logger = logging.getLogger(__name__)

#: The modules that every plan needs.
PLANNER = ("fusionstitch.compiler.core", "fusionstitch.guard.live")


@contextmanager
def loaded_meanwhile() -> Iterator[None]:
    """Loads the planner on another thread while the body runs, and waits for it. Then loads NVRTC,
    which new kernels need, if the body is still running. Errors are raised on first use."""
    if all(name in sys.modules for name in PLANNER):
        yield
        return
    is_over = threading.Event()
    thread = threading.Thread(target=_load, args=(is_over,), name="fusionstitch-load")
    is_begun = start(thread)  # if no thread can be started, modules are loaded on demand
    try:
        yield
    finally:
        is_over.set()
    if is_begun:
        thread.join()


def _load(is_over: threading.Event) -> None:
    for name in PLANNER:
        _try(partial(importlib.import_module, name))
    if not is_over.is_set():
        _try(_load_nvrtc)


def _load_nvrtc() -> None:
    from fusionstitch.runtime import nvrtc

    nvrtc.prepare().join()


def _try(load: Callable[[], object]) -> None:
    if isinstance(found := caught(load), Failed):
        logger.debug("it is not loaded beforehand", exc_info=found.error)
