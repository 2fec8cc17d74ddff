"""The lines of the user's program that ops come from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from fusionstitch.hlo.graph import Op


def source_lines(ops: Iterable[Op]) -> list[str]:
    """The lines of the user's program that ops come from, as "file:line", in order, once each.

    Files are named as by `shortened`.
    """
    sources = [op.source for op in ops if op.source.file]
    return shortened(dict.fromkeys(f"{s.file}:{s.line}" for s in sources))


def shortened(lines: Iterable[str]) -> list[str]:
    """Lines of files, those below the working folder named from there, those of a notebook's cells
    by the cell's number."""
    try:
        here = f"{os.getcwd()}{os.sep}"
    except OSError:  # the folder is gone
        here = os.sep * 2
    shown = []
    for line in lines:
        file, _, number = line.rpartition(":")
        cell = cell_of(file)
        shown.append(f"{cell}:{number}" if cell else line.removeprefix(here))
    return shown


def cell_of(file: str) -> str:
    """What IPython calls a cell that it compiled under a file's name: "In[3]"; else nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return ""
    named = shell.compile.format_code_name(file)
    return str(named[1]) if named else ""
