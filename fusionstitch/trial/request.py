"""What the pass needs to know about the program on trial, since it sees only a module.

Only one program of a process is on trial at a time, so that the timed one has the GPU to itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.xla_truth import XlaTruth


@dataclass(eq=False)
class TrialRequest:
    """What a trial requests of the pass.

    Attributes:
        token: the part of the mark's token that all attempts share
        runs_python: whether the program calls back; a callback may need another program's trial
        truth: returns the time of XLA's executable, once measured
        judge: remakes the program from the patterns that win when measured, if that was put off;
            None once it is done
        instead: what an attempt compiles instead of planning again
    """

    token: str
    runs_python: bool
    truth: Callable[[], XlaTruth | None] = lambda: None
    judge: Callable[[], Stitched] | None = None
    instead: Stitched | None = None

    def put_off(self, judge: Callable[[], Stitched]) -> None:
        """Puts off measuring the patterns until after the first attempt."""
        self.judge = judge


_lock = threading.Lock()
_now: TrialRequest | None = None


@contextmanager
def on_trial(request: TrialRequest) -> Iterator[bool]:
    """Yields whether the trial may be held. It may not during the trial of a program that calls
    back, which may be waiting for this very thread. Waits for any other trial."""
    global _now
    held = _lock.acquire(blocking=False)
    while not held and not ((other := _now) is not None and other.runs_python):
        held = _lock.acquire(timeout=0.05)
    if not held:
        yield False
        return
    try:
        _now = request
        yield True
    finally:
        _now = None
        _lock.release()


def request_of(token: str) -> TrialRequest | None:
    """What is requested for modules with such a mark, if their program is on trial."""
    now = _now
    return now if now is not None and now.token == token else None
