"""Pages of plain text: aligned columns and short lines, whatever a module calls its parts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from fusionstitch.hlo import foreign
from fusionstitch.hlo.graph import Op

#: Characters of a line, of a name, and the least of a last column.
WIDTH, NAME, LEAST = 100, 24, 40


def page(lines: Iterable[str]) -> str:
    """Lines as a text. What others wrote cannot break one."""
    return "".join(f"{foreign.line(line)}\n" for line in lines)


def table(rows: Iterable[Sequence[str]], indent: int = 2) -> list[str]:
    """Rows in columns as wide as they need; the last one is wrapped."""
    cells = [[foreign.line(cell) for cell in row] for row in rows]
    count = max(map(len, cells), default=0)
    widths = [max((len(row[n]) for row in cells if n < len(row)), default=0) for n in range(count)]
    lines: list[str] = []
    for row in cells:
        start = " " * indent
        for cell, width in zip(row[: count - 1], widths, strict=False):
            start += f"{cell.ljust(width)}  "
        last = row[count - 1] if len(row) == count else ""
        rest = max(LEAST, WIDTH - len(start))
        parts = textwrap.wrap(last, rest, break_long_words=False, break_on_hyphens=False)
        lines.append(start + (parts[0] if parts else ""))
        lines += [" " * len(start) + part for part in parts[1:]]
    return lines


def counted(number: int, noun: str) -> str:
    """Such as "1 op", "7 ops"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def name(op: Op) -> str:
    """What the program calls a value, not too long."""
    return foreign.line(foreign.name(op.name), NAME)


def label(op: Op) -> str:
    """The number of a value in its region, and its name."""
    return f"%{op.id} {name(op)}".rstrip()


def numbers(ops: Iterable[Op]) -> str:
    """Values by their numbers alone."""
    return ", ".join(f"%{op.id}" for op in ops)
