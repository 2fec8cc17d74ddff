"""The lines of the user's program that ops come from."""

from __future__ import annotations

import os
from collections.abc import Iterable

from fusionstitch.hlo.graph import Op


def source_lines(ops: Iterable[Op]) -> list[str]:
    """The lines of the user's program that ops come from, as "file:line", in order, once each.

    Files below the working folder are named from there.
    """
    sources = [op.source for op in ops if op.source.file]
    return shortened(dict.fromkeys(f"{s.file}:{s.line}" for s in sources))


def shortened(lines: Iterable[str]) -> list[str]:
    """Lines of files, those below the working folder named from there."""
    try:
        here = f"{os.getcwd()}{os.sep}"
    except OSError:  # the folder is gone
        here = os.sep * 2
    return [line.removeprefix(here) for line in lines]
