"""Progress on stderr if somebody is watching: a line for a compile, bars for long tasks. In a
notebook, bars become lines. Bars come from rich, which is loaded only for them."""

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
#: From this many seconds on, a line shows how many have passed.
_SLOW_S = 2
Step = Callable[[str], None]


def silent(step: str) -> None:
    """Shows nothing."""


def enabled(long: bool = False) -> bool:
    """Whether the line is shown: as FUSIONSTITCH_PROGRESS says, else if stderr is a terminal. Long
    tasks (`long`) are also shown in a notebook."""
    asked = env.PROGRESS.get()
    if getattr(sys.stderr, "closed", True):  # a process without a terminal may have no stderr
        return False
    return sys.stderr.isatty() or (long and _in_a_notebook()) if asked is None else asked


def _in_a_notebook() -> bool:
    """Whether stderr is shown below a notebook cell, where only the current line can be
    overwritten."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


@contextmanager
def line(title: str, long: bool = False) -> Iterator[Step]:
    """Yields a function that shows `title: step`, with the elapsed seconds after a while. The line
    is erased at the end."""
    if not enabled(long):
        yield silent
        return
    stream = sys.stderr
    in_place = stream.isatty() or _in_a_notebook()

    def put(text: str) -> None:
        with suppress(OSError, ValueError):  # the reader may be gone
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
    """Yields a function to call before each of `total` steps, with a bar of the steps done."""
    said = 0

    def done() -> float:
        nonlocal said
        said += 1
        return said - 1

    with _bar(title, total, done) as step:
        yield step


@contextmanager
def timed(title: str, seconds: float) -> Iterator[Step]:
    """The same for a task of about this many seconds, with a bar of the elapsed time."""
    begun = time.monotonic()
    with _bar(title, seconds, lambda: time.monotonic() - begun) as step:
        yield step


@contextmanager
def _bar(title: str, total: float, done: Callable[[], float]) -> Iterator[Step]:
    """A bar that is updated to `done()` at every step and erased at the end. In a notebook, and if
    stderr is no terminal but progress is requested, lines are written instead."""
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
        alone(progress.stop)  # which restores the cursor of the terminal


def _progress() -> Any:
    """A bar that is drawn only on request: no thread of rich's runs beside ours."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    # names from a module are not markup
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[now]}", markup=False),
        console=Console(file=sys.stderr, highlight=False),
        auto_refresh=False,
        transient=True,
    )
