"""A program of a jitted function: its executables, its trial, and which of them serves."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fusionstitch.errors import REFUSED, MeasureError, why_failed
from fusionstitch.execution import recall
from fusionstitch.execution.meanwhile import loaded_meanwhile
from fusionstitch.execution.recovery import jax_runtime_error
from fusionstitch.execution.variants import tracing
from fusionstitch.hlo.brief import brief
from fusionstitch.runtime import xla_pass
from fusionstitch.trial import outcome, triable
from fusionstitch.trial.outcome import ATTEMPTS, DIRECT, XLA, Outcome
from fusionstitch.trial.request import TrialRequest, on_trial
from fusionstitch.trial.runs import Runs, arrays_of

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.costmodel.devices import Device
    from fusionstitch.trial.sides import Clock, Times
    from fusionstitch.trial.trial import Attempt, Baseline

logger = logging.getLogger(__name__)

#: The reason if a trial would wait for itself.
BUSY = "The program on trial has host callbacks, and this one may be called by them."
#: The reason if XLA's executable fails during a trial, for example without memory for runs in a
#: row.
CUT_SHORT = "It failed during its trial, which runs it many times."
#: Above this many characters of compiled text, only the span of the program is known, not its
#: kernels: reading the text would take seconds.
MOST_TEXT = 300_000


@dataclass(eq=False)
class Program:
    """A program of a function.

    Attributes:
        name: the function's name
        token: token of the function's marks
        device: the profile to plan for
        compile: compiles it for XLA, for an attempt, or for the pass alone; returns JAX's Compiled
        run: how the executable of a kind is called
        deliver: issues the deferred warnings of the pass, and raises its deferred error
        refuse: called with the reason and the error if a stitched executable cannot be made or run
        key: the key of its outcome
        attempts: the stitched executables so far
        planned: the plan of the first of them, also if XLA refused it
    """

    name: str
    token: str
    device: Device
    compile: Callable[[str], Any]
    run: Callable[[str, Any], Callable[..., Any]]
    deliver: Callable[[], None]
    refuse: Callable[[str, BaseException], None]
    key: str
    attempts: dict[str, Attempt] = field(default_factory=dict)
    planned: Stitched | None = None

    def attempt(self, kind: str) -> Attempt:
        """A stitched executable, compiled on first use. Raises what XLA raises."""
        if kind not in self.attempts:
            self.attempts[kind] = self._attempt(kind)
        return self.attempts[kind]

    def hold_trial(self, args: Any, kwargs: Any, donates: bool, text: str) -> Outcome:
        """Holds a trial with these arguments, which stay unchanged; returns its outcome."""
        from fusionstitch.trial.trial import AttemptFailed, Trial

        _await((args, kwargs))
        request = TrialRequest(self.token, triable.calls_back(text))
        with on_trial(request) as held, tracing():
            if not held:
                return Outcome(XLA, BUSY)
            if (known := outcome.known(self.key)) is not None:  # another thread decided it
                return known
            if not (verdict := triable.now()):
                return Outcome(DIRECT, verdict.reason)
            runs = Runs(args, kwargs, donates)
            began = time.perf_counter()
            try:
                found = Trial(self._xla, self.attempt, runs).hold(request)
            except AttemptFailed as failed:
                self.refuse(failed.why, failed.error)
                return Outcome(XLA, failed.why)
            except jax_runtime_error() as error:  # the user's errors are raised by the call itself
                logger.info("the trial of %s was cut short: %s", self.name, error)
                return Outcome(XLA, CUT_SHORT)
            if found.times or found.program:  # the pass saw it, so it is not for another platform
                outcome.remember(self.key, found)
            logger.info("%s: %s (%.2f s)", self.name, found.reason, time.perf_counter() - began)
            return found

    def alternation(self, serve: Callable[[str], None]) -> Callable[..., Any]:
        """Makes the program's own calls the trial: what serves it meanwhile. Calls `serve` with the
        winner."""
        from fusionstitch.trial.alternation import Alternation

        with loaded_meanwhile():
            theirs = self.run(XLA, self.compile(XLA))
        try:
            attempt = self.attempt(ATTEMPTS[0])
        except jax_runtime_error() as error:  # XLA's own compile has succeeded
            self.refuse(why_failed(REFUSED, error), error)
            serve(XLA)
            return theirs
        if not attempt.stitched:
            serve(XLA)
            return theirs

        def decided(times: Times) -> None:
            kind = ATTEMPTS[0] if times.won else XLA
            outcome.remember(self.key, Outcome.of(kind, (times,), attempt.program))
            serve(kind)

        return Alternation(attempt.call, theirs, decided)

    def _xla(self) -> Baseline:
        from fusionstitch.costmodel.xla_truth import XlaTruth, kernels_us, truth_of
        from fusionstitch.trial.trial import Baseline

        with loaded_meanwhile():
            compiled = self.compile(XLA)
        memory = compiled.memory_analysis()
        size = 0 if memory is None else memory.output_size_in_bytes + memory.temp_size_in_bytes

        def truth(span_us: float) -> XlaTruth | None:
            text = compiled.as_text()
            text = text if len(text) <= MOST_TEXT else ""
            return truth_of(text, kernels_us(span_us, self.device), self.device)

        return Baseline(self.run(XLA, compiled), size, self._clock(compiled), truth)

    def _attempt(self, kind: str) -> Attempt:
        from fusionstitch.trial.trial import Attempt

        event: xla_pass.Event | None = None
        mark = self.token + ("" if kind == DIRECT else kind)
        with xla_pass.collect(mark, self.name) as events:
            try:
                compiled = self.compile(kind)
                event = xla_pass.event_of(events, compiled.as_text)
            except jax_runtime_error() as error:
                event = xla_pass.event_of_failure(events, str(error))
                if event is None or not event.given_up:
                    raise
                compiled = None
            finally:
                planned, program = planned_in(event)
                self.planned = self.planned or planned
        self.deliver()

        def find() -> Stitched | None:
            known = [event] if event is not None else []
            return planned or recall.find("" if compiled is None else compiled.as_text(), known)

        if compiled is None:
            return Attempt(_not_there, False, planned, program, find)
        keys = xla_pass.keys_in(compiled.as_text()) if event is None else event.keys
        return Attempt(self.run(kind, compiled), bool(keys), planned, program, find)

    def _clock(self, compiled: Any) -> Clock | None:
        """The clock for spans of an executable, if it runs on a single device."""
        from fusionstitch.measure.spans import spans

        # shardings would be put into the user's classes, which may accept only arrays
        devices = compiled.runtime_executable().local_devices()
        if len(devices) > 1:
            return None
        try:
            return spans(self.device, devices[0])
        except MeasureError as error:
            logger.info("%s is timed by the host alone: %s", self.name, error)
            return None


def planned_in(event: xla_pass.Event | None) -> tuple[Stitched | None, str]:
    """What a compile stitched, and the key of its plan, if the pass saw it."""
    from fusionstitch.compiler.stitched import Stitched

    result = None if event is None else event.result
    if isinstance(result, Stitched):
        return result, result.program
    return None, result.program if isinstance(result, recall.StoredProgram) else ""


def _await(arguments: Any) -> None:
    """Waits for arguments before the trial starts. An argument may come from a program whose
    callback needs a trial first. Errors in it are raised by the call."""
    import jax

    try:
        jax.block_until_ready([leaf for leaf in arrays_of(arguments) if not leaf.is_deleted()])
    except jax_runtime_error() as error:
        logger.info("an argument is not available: %s", error)


def _not_there(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("a compile that was given up is not called")


class Contest:
    """A program compiled ahead of time both ways. Its first call is a trial, and the winner serves
    that call and all others. Attributes come from the stitched executable before the trial, and
    from the winner after it."""

    def __init__(self, program: Program, attempt: Attempt, donates: bool, text: str):
        self._program, self._attempt = program, attempt
        self._stage, self._find = attempt.call, attempt.find
        self._trial: tuple[bool, str] | None = donates, text

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if (trial := self._trial) is not None:
            self._decided(self._program.hold_trial(args, kwargs, *trial))
        return self._stage(*args, **kwargs)

    def _decided(self, found: Outcome) -> None:
        if found.serves == XLA:
            planned = self._find
            self._stage = self._program.compile(XLA)
            self._find = lambda: lost(planned(), found)
        else:
            attempt = self._program.attempt(found.serves)
            self._stage = attempt.call
            self._find = lambda: with_trial(attempt.find(), found)
        self._trial = None

    @property
    def is_undecided(self) -> bool:
        """Whether the trial is still to come."""
        return self._trial is not None

    def find(self) -> Stitched | None:
        """What is stitched in it, with the outcome of the trial."""
        return self._find()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._stage, name)

    def __repr__(self) -> str:
        return brief(repr(self._stage))


def with_trial(planned: Stitched | None, found: Outcome) -> Stitched | None:
    """The plan of a program, with the result of its trial."""
    return None if planned is None else dataclasses.replace(planned, trial=found.reason)


def lost(planned: Stitched | None, found: Outcome) -> Stitched | None:
    """The plan of a program that XLA serves, with the reason."""
    from fusionstitch.compiler.stitched import Fallback

    if planned is None or not planned.stitches:
        return planned
    whole = Fallback((), found.reason)
    return dataclasses.replace(
        planned,
        module=planned.given,
        stitches=(),
        fallbacks=(*planned.fallbacks, whole),
        trial=found.reason,
    )
