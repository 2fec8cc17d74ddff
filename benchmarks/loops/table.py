"""The table of loop programs, filled by the files beside it, one per kind."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KINDS = (
    *("ode", "sde", "samplers", "filters", "dynamic_programming", "recurrent", "state_space"),
    *("stencils", "linear_algebra", "optimisation", "control", "scalar", "control_flow", "clients"),
)
#: What the loop should become: independent rows that each run alone; a cooperative launch, since
#: no axis survives the body; or one block or thread, since the state is small.
FORMS = ("rows", "grid", "block")

#: A function and what it is called with.
Program = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Loop:
    """A program with a loop: `make()` gives it with the sizes as people use it, `make(**small)`
    with those of tests.

    XLA runs it with the sizes `xla` instead, where its own take minutes, and its time counts
    `scale` times then. The first `donated` arguments are donated: carries that are overwritten.
    `needs` is the library that the program is written with.
    """

    name: str
    kind: str
    form: str
    make: Callable[..., Program]
    small: Mapping[str, int]
    xla: Mapping[str, int]
    scale: float = 1.0
    donated: int = 0
    needs: str = ""

    def program(self, sizes: Mapping[str, int] | None = None) -> Program:
        return self.make(**(sizes or {}))

    @property
    def jit_keywords(self) -> dict[str, Any]:
        return {"donate_argnums": tuple(range(self.donated))} if self.donated else {}

    def is_there(self) -> bool:
        return not self.needs or importlib.util.find_spec(self.needs) is not None


_LOOPS: dict[str, Loop] = {}


def loop(
    form: str,
    xla: Mapping[str, int] | None = None,
    scale: float = 1.0,
    donated: int = 0,
    needs: str = "",
    **small: int,
) -> Callable[[Callable[..., Program]], Callable[..., Program]]:
    """Puts the decorated function, which makes a program of given sizes, into the table."""

    def put(make: Callable[..., Program]) -> Callable[..., Program]:
        name = make.__name__
        assert form in FORMS, form
        assert name not in _LOOPS, name
        kind = make.__module__.rpartition(".")[2]
        _LOOPS[name] = Loop(name, kind, form, make, small, xla or {}, scale, donated, needs)
        return make

    return put


def loops() -> dict[str, Loop]:
    """All of them, by name."""
    for kind in KINDS:
        importlib.import_module(f"benchmarks.loops.{kind}")
    return dict(sorted(_LOOPS.items(), key=lambda found: KINDS.index(found[1].kind)))


def find(names: Sequence[str]) -> list[Loop]:
    """The loops of these names or kinds whose library is there, in the table's order; all for no
    names. Raises ValueError for a name that is none."""
    known = loops()
    words = {*known, *KINDS}
    for name in names:
        if name not in words:
            raise ValueError(f"No loop is called {name}. There are: {', '.join(known)}.")
    return [
        one
        for one in known.values()
        if one.is_there() and (not names or one.name in names or one.kind in names)
    ]
