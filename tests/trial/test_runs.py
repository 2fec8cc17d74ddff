"""Copies of arguments for a trial: as many as fit into memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.trial import outcome, runs, sides
from fusionstitch.trial.runs import Runs
from fusionstitch.trial.trial import Baseline, Trial
from tests.trial.conftest import Stage, kinds, options

X = jnp.ones(1000, jnp.float32)


class Small:
    """A device with room for a few arrays."""

    id = 0

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_limit": 20 * X.nbytes, "bytes_in_use": 0}


class Equal:
    """A clock on which all calls take as long."""

    def us(self, calls: Any) -> float:
        for call in calls:
            call()
        return 100.0


@pytest.mark.parametrize("donates", [True, False])
def test_calls_in_a_row_are_no_more_than_fit(
    monkeypatch: pytest.MonkeyPatch, donates: bool
) -> None:
    made: list[int] = []
    copied = runs._copied
    monkeypatch.setattr(Runs, "devices", [Small()])
    monkeypatch.setattr(runs, "_copied", lambda given: made.append(1) or copied(given))
    given = Runs((X,), {}, donates)

    def function(x: Any) -> Any:
        most.append(len(made))
        made.clear()
        return x

    most: list[int] = []
    assert given.fit(X.nbytes)
    sides.timed(function, function, given, None, 1e-6, 10.0, Equal())
    assert max(most) * X.nbytes <= 10 * X.nbytes
    assert len(most) == 2 * sides.ROUNDS * (sides.WALL_CALLS if not donates else max(most))


def test_a_trial_without_memory_is_no_error_of_the_call(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Runs.calls

    def short(self: Runs, function: Any, number: int) -> Any:
        if number > 1:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return calls(self, function, number)

    monkeypatch.setattr(Runs, "calls", short)
    jitted = fs.jit(lambda x: x + 1, options=options())
    assert (jitted(X) == X + 1).all()
    assert kinds(jitted) == {"xla"}
    assert not outcome._known


class Fixed:
    """A clock on which one side takes given times, and the other one 100 us."""

    def __init__(self, *us: float):
        self.us_of_ours, self.read = us, 0

    def us(self, calls: Any) -> float:
        if calls[0]() is None:
            return 100.0
        self.read += 1
        return self.us_of_ours[self.read % len(self.us_of_ours)]


@pytest.mark.parametrize(
    ("wall", "span", "rounds"),
    [
        (Fixed(90), Fixed(90), sides.ROUNDS),
        (Fixed(110), Fixed(90), sides.ROUNDS),
        (Fixed(80, 90, 103, 104), Fixed(90), sides.MOST_ROUNDS),
    ],
)
def test_rounds_go_on_as_long_as_it_is_open_who_is_faster(
    wall: Fixed, span: Fixed, rounds: int
) -> None:
    times = sides.timed(lambda x: x, lambda x: None, Runs((X,), {}, False), span, 1e-6, 1.0, wall)
    assert times.rounds == wall.read == span.read == rounds


@pytest.mark.parametrize(("each_s", "wanted"), [(1e-5, 90.0), (1.0, 120.0)])
def test_what_xla_takes_alone_is_the_shortest_of_several_readings(
    each_s: float, wanted: float
) -> None:
    """Another process on the device makes some of them longer; a long run is read once."""
    clock = Fixed(90, 120, 300, 95, 91)
    baseline = Baseline(lambda x: x, 0, clock, lambda us: None)
    trial = Trial(lambda: baseline, pytest.fail, Runs((X,), {}, False))
    assert trial._alone_us(baseline, each_s) == wanted
