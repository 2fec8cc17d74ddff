"""What a notebook shows of our objects: a card of HTML, each part of it escaped here.

Cards have no scripts and no colours of their own, so that they fit into light and dark notebooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import compress

from fusionstitch.hlo import foreign

#: Characters of a text that is shown: a notebook is a file that people keep.
MOST = 100_000
#: Characters of a cell that stand on one line, such as a number with its unit.
SHORT = 16
#: How many times the longest lower bar a scale goes up to at most: what is longer is cut off.
CUT = 3.0
_CELL = "text-align:left;padding:2px 14px 2px 0;vertical-align:top"
_FRAME = "border:1px solid #8886;border-radius:6px;padding:8px 14px;margin:4px 0;max-width:75em"
_TRACK = "position:relative;width:180px;padding:2px 0;overflow:hidden"
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


@dataclass(frozen=True)
class Bar:
    """Two bars, one above the other, a mark across both if there is one, and texts beside them."""

    name: str
    upper: float
    lower: float
    mark: float | None = None
    texts: Sequence[str] = ()


def scale(rows: Iterable[Bar]) -> float:
    """Where the scale ends on which bars are drawn."""
    rows = list(rows)
    upper = max((row.upper for row in rows), default=0.0)
    lower = max((max(row.lower, row.mark or 0.0) for row in rows), default=0.0)
    return max(lower, min(upper, CUT * lower))


def bars(head: Sequence[str], rows: Iterable[Bar]) -> str:
    """A table of bars on one scale, the upper ones faint; `head` names the bars' name, the bars and
    their texts. Nothing without a row."""
    rows = list(rows)
    if not rows:
        return ""
    whole = scale(rows) or 1.0
    body = "".join(
        f'<tr>{_cell("td", row.name)}<td style="{_CELL}">{_drawn(row, whole)}</td>'
        f"{''.join(_cell('td', text) for text in row.texts)}</tr>"
        for row in rows
    )
    inside = (
        f'<table style="border:0"><thead>{_row("th", head)}</thead><tbody>{body}</tbody></table>'
    )
    return f'<div style="overflow-x:auto">{inside}</div>'


def _drawn(row: Bar, whole: float) -> str:
    """A row's bars in the colour of the text, as percentages of the scale."""
    made = [
        f'<div style="height:6px;margin:1px 0;background:currentColor;opacity:{opacity};'
        f'width:{min(100.0, 100 * value / whole):.2f}%"></div>'
        for value, opacity in ((row.upper, 0.35), (row.lower, 0.8))
    ]
    if row.mark is not None:
        at = min(99.0, 100 * row.mark / whole)
        made.append(
            '<div style="position:absolute;top:0;bottom:0;border-left:2px solid currentColor;'
            f'left:{at:.2f}%"></div>'
        )
    return f'<div aria-hidden="true" style="{_TRACK}">{"".join(made)}</div>'


def folded(title: str, text: str, opened: bool = False) -> str:
    """A text of several lines after its title."""
    shown = text if len(text) <= MOST else f"{text[:MOST]}\n... {len(text) - MOST} more characters"
    body = escape(foreign.lines(shown))
    return (
        f"<details{' open' * opened}><summary>{_line(title)}</summary>"
        f'<pre style="{_TEXT}">{body}</pre></details>'
    )


def _row(tag: str, texts: Iterable[str]) -> str:
    return f"<tr>{''.join(_cell(tag, text) for text in texts)}</tr>"


def _cell(tag: str, text: str) -> str:
    kept = ";white-space:nowrap" if len(text) <= SHORT else ""
    return f'<{tag} style="{_CELL}{kept}">{_line(text)}</{tag}>'


def _line(text: object) -> str:
    return escape(foreign.line(str(text)))
