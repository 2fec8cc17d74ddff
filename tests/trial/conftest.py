"""Trials without a GPU: XLA compiles for the CPU, and scripted clocks provide the times."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel import devices
from fusionstitch.execution import deferred, programs, variants
from fusionstitch.execution.cuda_with_trials import CudaWithTrials
from fusionstitch.hlo.verdict import allow
from fusionstitch.measure import spans
from fusionstitch.runtime import cuda, xla_pass
from fusionstitch.runtime.cache import Store
from fusionstitch.trial import outcome, sides
from fusionstitch.trial.trial import Attempt


@dataclass
class Stage:
    """What is told to trials, and what they did.

    Attributes:
        us: microseconds of a run of each kind, on the device and as the host sees it
        patterns: how many the pass stitches in each program
        compiled: how often each kind was compiled for a trial
        timed: how many calls of each kind were timed
    """

    us: dict[str, float] = field(default_factory=lambda: {"xla": 10.0, "c0": 5.0})
    wall_us: dict[str, float] = field(default_factory=dict)
    patterns: int = 1
    compiled: Counter[str] = field(default_factory=Counter)
    timed: Counter[str] = field(default_factory=Counter)
    kinds: dict[int, str] = field(default_factory=dict)
    broken: str = ""

    def kind(self, call: Any) -> str:
        return self.kinds[id(call.func)]


class ScriptedClock:
    """A clock that makes the calls and shows scripted times."""

    def __init__(self, stage: Stage, us: Callable[[], dict[str, float]]):
        self.stage, self._us = stage, us

    def us(self, calls: Sequence[Callable[[], Any]]) -> float:
        kind = self.stage.kind(calls[0])
        for call in calls:
            call()
        self.stage.timed[kind] += len(calls)
        return self._us()[kind]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Stage]:
    store, stage = Store(tmp_path / "cache"), Stage()
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA H200"))
    monkeypatch.setattr(builders, "_of_gpu", lambda kind, number: devices.device("h200"))
    monkeypatch.setattr(builders, "store", lambda: store)
    monkeypatch.setattr(cuda, "register_launcher", lambda store: allow())
    monkeypatch.setattr(xla_pass, "register", lambda callback: allow())
    monkeypatch.setattr(outcome, "_known", {})
    monkeypatch.setattr(variants, "_shared", WeakKeyDictionary())
    span = ScriptedClock(stage, lambda: stage.us)
    monkeypatch.setattr(spans, "spans", lambda profile, device: span)
    wall = ScriptedClock(stage, lambda: {**stage.us, **stage.wall_us})
    monkeypatch.setattr(sides.Wall, "us", lambda self, calls: wall.us(calls))
    attempt, run = programs.Program._attempt, programs.Program.__init__

    def init(self: programs.Program, *args: Any, **keywords: Any) -> None:
        run(self, *args, **keywords)
        given = self.run

        def seen(kind: str, compiled: Any) -> Any:
            function = given(kind, compiled)
            stage.kinds[id(function)] = kind
            stage.compiled[kind] += 1
            return function

        self.run = seen

    def attempted(self: programs.Program, kind: str) -> Attempt:
        if kind == stage.broken:
            import jax

            raise jax.errors.JaxRuntimeError("INTERNAL: fusionstitch: a kernel is broken\nat once")
        found = attempt(self, kind)
        planned = Stitched(self.name, b"", self.device, program=f"plan of {kind}")
        store.put(outcome.plan_key(planned.program), b"")
        stitched = stage.patterns > 0
        program = planned.program if stitched else found.program
        return dataclasses.replace(found, stitched=stitched, planned=planned, program=program)

    monkeypatch.setattr(programs.Program, "__init__", init)
    monkeypatch.setattr(programs.Program, "_attempt", attempted)
    deferred.reasons.clear()
    deferred.errors.clear()
    yield stage
    deferred.reasons.clear()
    deferred.errors.clear()


def kinds(jitted: Any) -> set[str]:
    """Who serves the programs of a function."""
    execution = jitted._fusionstitch.execution
    assert isinstance(execution, CudaWithTrials)
    return execution.served.kinds


def options(**changes: Any) -> fs.Options:
    return fs.Options(**{"scorer": "guarded", "trial": "copies", **changes})
