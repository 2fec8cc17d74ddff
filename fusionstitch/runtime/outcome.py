"""The outcome of work as a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Failed:
    """An exception of our work, as a value: an `except` of the caller would also catch the
    user's."""

    error: Exception


def caught(work: Callable[[], T]) -> T | Failed:
    """The result of `work`, or its Exception as a `Failed`, on this thread."""
    try:
        return work()
    except Exception as error:
        return Failed(error)
