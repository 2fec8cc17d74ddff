"""What is under way, on stderr where somebody is looking: a line for a compile, bars for what takes
long, which are lines in a notebook. Bars are rich's, which is loaded for them alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fusionstitch import env
from fusionstitch.hlo import foreign
from fusionstitch.runtime.apart import alone

_WIDTH = 78
#: Seconds from which on a line says how many have passed.
_SLOW_S = 2
Step = Callable[[str], None]


def silent(step: str) -> None:
    """Shows nothing."""


def enabled(long: bool = False) -> bool:
    """Whether the line is shown: as FUSIONSTITCH_PROGRESS says, else when stderr is a terminal, and
    of what takes `long` in a notebook, too."""
    asked = env.PROGRESS.get()
    if getattr(sys.stderr, "closed", True):  # a process without a terminal may have none
        return False
    return sys.stderr.isatty() or (long and _in_a_notebook()) if asked is None else asked


def _in_a_notebook() -> bool:
    """Whether stderr is below a cell, where a line may be written over but nothing else is."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


@contextmanager
def line(title: str, long: bool = False) -> Iterator[Step]:
    """Yields a function that shows `title: step` in place, with the seconds that have passed once
    there are some; the line is wiped at the end."""
    if not enabled(long):
        yield silent
        return
    stream = sys.stderr
    in_place = stream.isatty() or _in_a_notebook()

    def put(text: str) -> None:
        with suppress(OSError, ValueError):  # whoever was looking may be gone
            stream.write(text)
            stream.flush()

    def write(text: str) -> None:
        alone(lambda: put(text))

    begun = time.monotonic()

    def show(step: str) -> None:
        passed = time.monotonic() - begun
        seconds = f"{passed:.0f} s, " if passed >= _SLOW_S else ""
        text = foreign.line(f"fusionstitch {title}: {seconds}{step}")[:_WIDTH]
        write(f"\r{text:{_WIDTH}}" if in_place else f"{text}\n")

    try:
        yield show
    finally:
        if in_place:
            write(f"\r{'':{_WIDTH}}\r")


@contextmanager
def counted(title: str, total: int) -> Iterator[Step]:
    """Yields a function that says what is done next, `total` times in all, with a bar of how many
    were said before."""
    said = 0

    def done() -> float:
        nonlocal said
        said += 1
        return said - 1

    with _bar(title, total, done) as step:
        yield step


@contextmanager
def timed(title: str, seconds: float) -> Iterator[Step]:
    """The same for what takes about so many seconds, with a bar of those that have passed."""
    begun = time.monotonic()
    with _bar(title, seconds, lambda: time.monotonic() - begun) as step:
        yield step


@contextmanager
def _bar(title: str, total: float, done: Callable[[], float]) -> Iterator[Step]:
    """A bar that is as far as `done` says whenever a step is told; it is wiped at the end. Lines
    in a notebook, and where stderr is no terminal and is asked for all the same."""
    if not (enabled() and sys.stderr.isatty()):
        with line(title, long=True) as step:
            yield step
        return
    progress = _progress()
    task = progress.add_task(
        foreign.line(f"fusionstitch {title}", _WIDTH // 2), total=total, now=""
    )

    def show(step: str) -> None:
        at, now = min(done(), total), foreign.line(step, _WIDTH // 2)
        alone(lambda: progress.update(task, completed=at, now=now, refresh=True))

    alone(progress.start)
    try:
        yield show
    finally:
        alone(progress.stop)  # which gives the terminal its cursor back


def _progress() -> Any:
    """A bar that is drawn when it is told to: no thread of rich's runs beside ours."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    # what a module calls its parts is no markup
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[now]}", markup=False),
        console=Console(file=sys.stderr, highlight=False),
        auto_refresh=False,
        transient=True,
    )
