"""What work came to, as a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Failed:
    """What our work raised, as a value: an `except` of the caller's would also see the user's."""

    error: Exception


def caught(work: Callable[[], T]) -> T | Failed:
    """What `work` returns, or the Exception that it raised, on this thread."""
    try:
        return work()
    except Exception as error:
        return Failed(error)
