"""What the pass is to know of the program on trial: it sees a module, and no more.

One program of a process is on trial at a time: what is timed has the GPU for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.xla_truth import XlaTruth


@dataclass(eq=False)
class Asked:
    """What is asked of the pass during a trial.

    Attributes:
        token: of the marks of its attempts, without what tells these apart
        runs_python: whether the program calls back: a callback may need another program's trial
        truth: gives what XLA's executable takes, once it was timed
        judge: makes the program again as its patterns win when they are measured, which was put
            off; None where that is done
        instead: what an attempt compiles instead of planning anew
    """

    token: str
    runs_python: bool
    truth: Callable[[], XlaTruth | None] = lambda: None
    judge: Callable[[], Stitched] | None = None
    instead: Stitched | None = None

    def put_off(self, judge: Callable[[], Stitched]) -> None:
        """Has the first attempt tried before its patterns are measured."""
        self.judge = judge


_lock = threading.Lock()
_now: Asked | None = None


@contextmanager
def on_trial(asked: Asked) -> Iterator[bool]:
    """Whether the trial may be held: not while that of a program that calls back goes on, which
    may wait for this very thread. Waits for any other."""
    global _now
    held = _lock.acquire(blocking=False)
    while not held and not ((other := _now) is not None and other.runs_python):
        held = _lock.acquire(timeout=0.05)
    if not held:
        yield False
        return
    try:
        _now = asked
        yield True
    finally:
        _now = None
        _lock.release()


def asked_of(token: str) -> Asked | None:
    """What is asked of modules with such a mark, if their program is on trial."""
    now = _now
    return now if now is not None and now.token == token else None
