"""Work on several threads, also while the interpreter ends and starts no more of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`work` of each item, in order, on as many threads as there are cores."""
    todo = list(items)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        try:
            running = [pool.submit(work, item) for item in todo]
        except RuntimeError:  # functions that run at exit come after the pools were closed
            return [work(item) for item in todo]
        return [future.result() for future in running]
