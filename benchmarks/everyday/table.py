"""The table of everyday programs, filled by the files beside it, one per field."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.unseen.inputs import Draw

FIELDS = (
    *("vision", "language", "speech", "recommendation", "graphs", "reinforcement"),
    *("simulation", "statistics", "optimizers", "signals"),
)


@dataclass(frozen=True)
class Program:
    """`fun(*args)`, of a `field`; `make` draws the arguments."""

    name: str
    field: str
    fun: Callable[..., Any]
    make: Callable[[Draw], tuple[Any, ...]]

    @property
    def args(self) -> tuple[Any, ...]:
        return self.make(Draw(2026))


_PROGRAMS: dict[str, Program] = {}


def program(make: Callable[[Draw], tuple[Any, ...]]) -> Callable[..., Any]:
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
