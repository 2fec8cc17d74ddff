"""What planning a program costs, in steps: a test must not read the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from fusionstitch.compiler import builders, core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.hlo import graph
from fusionstitch.options import Options
from fusionstitch.plan import search


@dataclass(frozen=True)
class Planned:
    """What came of a program; `steps` are the ops visited in sets of ops, and the candidates."""

    result: Stitched
    steps: int


def planned(data: bytes, options: Options) -> Planned:
    """Plans a module and generates its kernels, counting."""
    steps = 0
    positions, add = graph._positions, search.Search.add

    class Counted:
        def __call__(self, bits: int) -> tuple[int, ...]:
            nonlocal steps
            steps += bits.bit_count()
            found: tuple[int, ...] = positions(bits)
            return found

        def cache_clear(self) -> None:
            positions.cache_clear()

    def added(self: Any, patterns: Any, refused: Any) -> None:
        nonlocal steps
        steps += len(patterns) + len(refused)
        add(self, patterns, refused)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(graph, "_positions", Counted())
        patched.setattr(search.Search, "add", added)
        result = core.stitch(data, options, builders.profile(options), None)
    assert not result.fallbacks
    return Planned(result, steps)
