"""Work on several threads, also while the interpreter exits and can start no more of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fusionstitch.runtime.outcome import Failed
from fusionstitch.runtime.signals import held

T = TypeVar("T")
R = TypeVar("R")

_starting = threading.Lock()


def start(thread: threading.Thread, stack_bytes: int | None = None) -> bool:
    """Starts a thread with a stack of that size; False if no more threads can be started.

    Signal handlers are deferred meanwhile: an exception inside `Thread.start` leaves the threading
    module in an inconsistent state, and is replaced by another error.
    """

    def begin() -> None:
        with _starting:
            before = threading.stack_size()
            threading.stack_size(before if stack_bytes is None else stack_bytes)
            try:
                thread.start()
            finally:
                threading.stack_size(before)

    begun = held(begin)
    if isinstance(begun, Failed) and not isinstance(begun.error, RuntimeError):
        raise begun.error
    return not isinstance(begun, Failed)


def in_parallel(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`work` of each item, in order, on as many threads as there are cores."""
    todo = list(items)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        try:
            running = [pool.submit(work, item) for item in todo]
        except RuntimeError:  # at exit, pools are already closed
            return [work(item) for item in todo]
        return [future.result() for future in running]
