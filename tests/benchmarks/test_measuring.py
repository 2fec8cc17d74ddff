"""How many rounds are timed, in which order, and that chains go on from round to round."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import measuring
from benchmarks.measuring import wall_times


class Call:
    """A contestant that takes a second of a clock, and says when its turn is."""

    now = 0.0

    def __init__(self, name: str, turns: list[str]):
        self.name, self.turns = name, turns

    def reset(self) -> None:
        self.turns.append(f"{self.name} reset")

    def calls(self, count: int) -> None:
        Call.now += count
        self.turns.append(f"{self.name}{count}")


@pytest.mark.parametrize(("seconds", "rounds"), [(0, 2), (29, 2), (61, 4)])
def test_rounds_take_turns_until_there_are_enough_and_time_is_over(
    seconds: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: Call.now)
    turns: list[str] = []
    sides: dict[str, Any] = {name: Call(name, turns) for name in "ab"}
    times = wall_times(sides, rounds=2, seconds=seconds, in_flight=10)
    assert times == {"a": [1e6] * rounds, "b": [1e6] * rounds}
    begun, in_turns = ["a reset", "a3", "b reset", "b3"], ["a10", "b10", "b10", "a10"] * 2
    assert turns == begun + in_turns[: 2 * rounds]
