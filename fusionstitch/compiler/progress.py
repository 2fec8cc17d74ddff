"""One line on stderr that says what is being compiled, where somebody is looking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fusionstitch import env
from fusionstitch.hlo import foreign
from fusionstitch.runtime.apart import alone

_WIDTH = 78
Step = Callable[[str], None]


def silent(step: str) -> None:
    """Shows nothing."""


def enabled() -> bool:
    """Whether the line is shown: as FUSIONSTITCH_PROGRESS says, else when stderr is a terminal."""
    asked = env.PROGRESS.get()
    if getattr(sys.stderr, "closed", True):  # a process without a terminal may have none
        return False
    return sys.stderr.isatty() if asked is None else asked


@contextmanager
def line(title: str) -> Iterator[Step]:
    """Yields a function that shows `title: step` in place; the line is wiped at the end."""
    if not enabled():
        yield silent
        return
    stream = sys.stderr
    in_place = stream.isatty()

    def put(text: str) -> None:
        with suppress(OSError, ValueError):  # whoever was looking may be gone
            stream.write(text)
            stream.flush()

    def write(text: str) -> None:
        alone(lambda: put(text))

    def show(step: str) -> None:
        text = foreign.line(f"fusionstitch {title}: {step}")[:_WIDTH]
        write(f"\r{text:{_WIDTH}}" if in_place else f"{text}\n")

    try:
        yield show
    finally:
        if in_place:
            write(f"\r{'':{_WIDTH}}\r")
