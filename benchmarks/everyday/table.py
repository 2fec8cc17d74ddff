"""The table of everyday programs, filled by the files beside it, one per field."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

FIELDS = (
    *("vision", "language", "speech", "recommendation", "graphs", "reinforcement"),
    *("simulation", "statistics", "optimizers", "signals"),
)


class Inputs:
    """Arguments of a program, always the same."""

    def __init__(self) -> None:
        self._draw = np.random.default_rng(2026)

    def normal(self, *shape: int, dtype: Any = np.float32, scale: float = 1.0) -> np.ndarray:
        return (scale * self._draw.standard_normal(shape, np.float32)).astype(dtype)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
        return self._draw.uniform(low, high, shape).astype(np.float32)

    def integers(self, high: int, *shape: int, dtype: Any = np.int32, low: int = 0) -> np.ndarray:
        return self._draw.integers(low, high, shape).astype(dtype)

    def chance(self, share: float, *shape: int) -> np.ndarray:
        return self._draw.random(shape) < share

    def key(self) -> np.ndarray:
        """A raw key of threefry."""
        return np.array([0, 2026], np.uint32)

    def layers(self, *widths: int) -> list[dict[str, np.ndarray]]:
        """Weights and biases of dense layers."""
        return [
            {"w": self.normal(a, b, scale=a**-0.5), "b": self.normal(b, scale=0.1)}
            for a, b in itertools.pairwise(widths)
        ]


@dataclass(frozen=True)
class Program:
    """`fun(*make(Inputs()))`, of a `field`."""

    name: str
    field: str
    fun: Callable[..., Any]
    make: Callable[[Inputs], tuple[Any, ...]]

    @property
    def args(self) -> tuple[Any, ...]:
        return self.make(Inputs())


_PROGRAMS: dict[str, Program] = {}


def program(make: Callable[[Inputs], tuple[Any, ...]]) -> Callable[..., Any]:
    """Puts the decorated function into the table under its own name."""

    def put(fun: Callable[..., Any]) -> Callable[..., Any]:
        field = fun.__module__.rpartition(".")[2]
        assert fun.__name__ not in _PROGRAMS, fun.__name__
        _PROGRAMS[fun.__name__] = Program(fun.__name__, field, fun, make)
        return fun

    return put


def programs() -> dict[str, Program]:
    """All of them, by name."""
    for field in FIELDS:
        importlib.import_module(f"benchmarks.everyday.{field}")
    return _PROGRAMS
