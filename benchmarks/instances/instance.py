"""One instance of a kind of op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Instance:
    """A function, the shapes of its arguments, which are normal numbers, and their type; `rounds`:
    whether its results depend on how sums are rounded."""

    fun: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    rounds: bool = False
