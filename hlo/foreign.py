"""Text that others wrote: names, scopes, file names and messages, made fit to be printed.

A module may come from anywhere, and what it says about itself ends up in comments of C text, in
reports, in messages and on terminals. Nothing here can break a line, drive a terminal, reorder
what is read, or mean anything to a C preprocessor.
"""

from __future__ import annotations

import re

#: Characters of a name and of a line that are shown; of longer ones the beginning and the end.
MOST_OF_A_NAME = 128
MOST_OF_A_LINE = 1000
_CUT = "..."

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def name(text: str) -> str:
    """A name as HLO spells names: letters, digits and `_.-` of ASCII, no digit first, not too
    long. An empty one stays empty, and two that differ may become equal."""
    if len(text) <= MOST_OF_A_NAME and _NAME.fullmatch(text):
        return text
    found = _shortened(_NO_NAME.sub("_", _shortened(text, MOST_OF_A_NAME)), MOST_OF_A_NAME)
    return found if not found or _NAME.match(found) else f"_{found}"


def line(text: str, most: int = MOST_OF_A_LINE) -> str:
    """One line of printable characters; others are written as code points, such as <U+000A>.

    It ends neither in a blank nor in a backslash, holds no trigraph, and stays as it is if it was
    a line already.
    """
    if not text.isprintable() or len(text) > most or "??" in text:
        text = _printable(_shortened(text, most)).replace("??", "?<U+003F>")
        text = _shortened(text, most)
    text = text.rstrip()
    return f"{text[:-1]}<U+005C>" if text.endswith("\\") else text


def lines(text: str) -> str:
    """The same for text of several lines, such as a compiler's log; tabs stay."""
    return "\n".join("\t".join(map(_printable, row.split("\t"))) for row in text.split("\n"))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"<U+{ord(c):04X}>" for c in text)


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    length = most - len(_CUT)
    return f"{text[: length - length // 2]}{_CUT}{text[len(text) - length // 2 :]}"
