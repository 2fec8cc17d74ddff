"""A trial: XLA's executable and stitched ones run alternately; the faster one serves the
program."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.xla_truth import XlaTruth
from fusionstitch.errors import NOT_RUN, REFUSED, why_failed
from fusionstitch.trial.fewer import fewer
from fusionstitch.trial.outcome import ATTEMPTS, DIRECT, XLA, Outcome
from fusionstitch.trial.request import TrialRequest
from fusionstitch.trial.runs import Runs
from fusionstitch.trial.sides import Clock, Times, timed, warmed

logger = logging.getLogger(__name__)

#: The most time for all timed runs: this many seconds, or this share of the compile time.
LEAST_S, COMPILE_SHARE = 0.3, 0.1
#: A run shorter than this many seconds is timed several times: this often.
QUICK_S, READINGS = 0.01, 5
NOTHING = "Nothing in it is stitched."


class AttemptFailed(Exception):
    """A stitched program cannot be compiled or run: `why`, and the `error`."""

    def __init__(self, why: str, error: BaseException):
        super().__init__(why)
        self.why, self.error = why, error


@dataclass(frozen=True, eq=False)
class Baseline:
    """The program as XLA compiles it.

    Attributes:
        call: how it is called
        size: bytes of its results and temporaries
        span: measures spans on its device; None if that is impossible, or it has several devices
        truth: the time of its kernels, from the span of a run in microseconds
    """

    call: Callable[..., Any]
    size: int
    span: Clock | None
    truth: Callable[[float], XlaTruth | None]


@dataclass(frozen=True, eq=False)
class Attempt:
    """A compiled stitched program.

    Attributes:
        call: how it is called
        stitched: whether anything is stitched in it
        planned: the pass's plan, if the pass ran and planned
        program: key of its plan
        find: returns `planned`, planned again if needed
    """

    call: Callable[..., Any]
    stitched: bool
    planned: Stitched | None
    program: str
    find: Callable[[], Stitched | None]


@dataclass(eq=False)
class Trial:
    """What a trial needs of its program.

    Attributes:
        xla: compiles the program as XLA does
        attempt: compiles a stitched one under the mark of an attempt
        runs: calls with the user's arguments
    """

    xla: Callable[[], Baseline]
    attempt: Callable[[str], Attempt]
    runs: Runs

    def hold(self, request: TrialRequest) -> Outcome:
        """Returns what serves the program. Raises errors of XLA's side and of alternating runs, and
        AttemptFailed if an attempt fails and XLA's side did not."""
        began = time.perf_counter()
        baseline = self.xla()
        compile_s, theirs = time.perf_counter() - began, baseline.call
        if not (verdict := self.runs.fit(2 * baseline.size)):
            return Outcome(DIRECT, verdict.reason)
        most_s = max(LEAST_S, COMPILE_SHARE * compile_s)
        each_s = warmed(theirs, self.runs, most_s)
        alone_us = self._alone_us(baseline, each_s)
        if alone_us is not None:
            request.truth = functools.partial(baseline.truth, alone_us)
        heard: list[Times] = []
        program = ""
        for kind in ATTEMPTS:
            found, times = self._attempted(kind, baseline, each_s, most_s)
            program = program or found.program
            if times is None:
                return Outcome(XLA, NOTHING, (), program, alone_us)
            heard.append(times)
            logger.info("%s: %s", kind, times)
            if times.won:
                return Outcome.of(kind, tuple(heard), found.program, alone_us)
            judge, request.judge = request.judge, None
            request.instead = fewer(found.planned, judge) if found.planned is not None else None
            if request.instead is None:
                break
        return Outcome.of(XLA, tuple(heard), program, alone_us)

    def _attempted(
        self, kind: str, baseline: Baseline, each_s: float, most_s: float
    ) -> tuple[Attempt, Times | None]:
        """An attempt, with its times and XLA's if anything is stitched in it."""
        import jax

        what = REFUSED
        try:
            found = self.attempt(kind)
            if not found.stitched:
                return found, None
            what = NOT_RUN
            took = max(each_s, warmed(found.call, self.runs, most_s))
        except jax.errors.JaxRuntimeError as error:
            raise AttemptFailed(why_failed(what, error), error) from error
        theirs, span = baseline.call, baseline.span
        return found, timed(found.call, theirs, self.runs, span, took, most_s)

    def _alone_us(self, baseline: Baseline, each_s: float) -> float | None:
        """The span of XLA's executable."""
        span = baseline.span
        if span is None:
            return None
        if each_s >= QUICK_S:
            return span.us(self.runs.calls(baseline.call, 1))
        # another process on the device makes some runs longer, but none shorter
        return min(span.us(self.runs.calls(baseline.call, 4)) for _ in range(READINGS))
