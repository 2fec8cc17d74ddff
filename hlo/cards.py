"""What a notebook shows of our objects: a card of HTML, each part of it escaped here.

Cards have no scripts and no colours of their own, so that they fit into light and dark notebooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import compress

from fusionstitch.hlo import foreign

#: Characters of a text that is shown: a notebook is a file that people keep.
MOST = 100_000
#: Characters of a cell that stand on one line, such as a number with its unit.
SHORT = 16
_CELL = "text-align:left;padding:2px 14px 2px 0;vertical-align:top"
_FRAME = "border:1px solid #8886;border-radius:6px;padding:8px 14px;margin:4px 0;max-width:75em"
_TEXT = "max-height:30em;overflow:auto;margin:4px 0;white-space:pre;text-align:left"


def card(title: str, *parts: str) -> str:
    """A framed card; its parts come from the functions below."""
    return f'<div style="{_FRAME}"><b>{_line(title)}</b>{"".join(parts)}</div>'


def note(text: str) -> str:
    """A line of text."""
    return f'<div style="opacity:.75">{_line(text)}</div>'


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values, side by side."""
    cells = (f"<b>{_line(value)}</b> {_line(name)}" for name, value in pairs)
    return f'<div style="margin:4px 0">{" &nbsp;·&nbsp; ".join(cells)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts, without the columns that are empty; nothing without a row."""
    rows = list(rows)
    if not rows:
        return ""
    filled = [any(column) for column in zip(*rows, strict=True)]
    top = _row("th", compress(head, filled))
    body = "".join(_row("td", compress(row, filled)) for row in rows)
    inside = f'<table style="border:0"><thead>{top}</thead><tbody>{body}</tbody></table>'
    return f'<div style="overflow-x:auto">{inside}</div>'


def folded(title: str, text: str, opened: bool = False) -> str:
    """A text of several lines after its title."""
    shown = text if len(text) <= MOST else f"{text[:MOST]}\n... {len(text) - MOST} more characters"
    body = escape(foreign.lines(shown))
    return (
        f"<details{' open' * opened}><summary>{_line(title)}</summary>"
        f'<pre style="{_TEXT}">{body}</pre></details>'
    )


def _row(tag: str, texts: Iterable[str]) -> str:
    cells = []
    for text in texts:
        kept = ";white-space:nowrap" if len(text) <= SHORT else ""
        cells.append(f'<{tag} style="{_CELL}{kept}">{_line(text)}</{tag}>')
    return f"<tr>{''.join(cells)}</tr>"


def _line(text: object) -> str:
    return escape(foreign.line(str(text)))
