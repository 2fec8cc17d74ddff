"""The paper's implementation templates (section 5.2): dataclasses, parser, printer.

    template      ::= header schedule-list
    header        ::= [ 'cta_num' '=' integer ';' ] [ 'cta_size' '=' integer ';' ]
    schedule-list ::= schedule schedule-list | schedule
    schedule      ::= identifier '[' attr-list ']' [ 'S' ] ';'
    attr-list     ::= attr ',' attr-list | attr
    attr          ::= attrtype | subattr-list
    subattr-list  ::= subattr '-' subattr-list | subattr
    subattr       ::= attrtype '_' integer
    attrtype      ::= 'GRID' | 'WARP' | 'CTA' | 'THREAD'

A schedule has one attr per dimension of its op's input. The header is Figure 1's launch shape:
blocks in the grid, threads in a block. White space may stand between any two symbols.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import NoReturn

from fusionstitch.hlo.errors import TemplateSyntaxError


class Level(enum.StrEnum):
    """The `attrtype`: what runs along an axis."""

    GRID = "GRID"  # blocks
    WARP = "WARP"  # warps of a block
    CTA = "CTA"  # threads of a block
    THREAD = "THREAD"  # one thread, in sequence


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_LEVEL = re.compile("GRID|WARP|CTA|THREAD")
_INTEGER = re.compile(r"[1-9][0-9]*")
_BLANK = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class SubAttr:
    """One level of tiling of a dimension: `extent` steps along `level`; None is all there are."""

    level: Level
    extent: int | None = None

    def __post_init__(self) -> None:
        if self.extent is not None and self.extent < 1:
            raise TemplateSyntaxError(
                f"{self.level}_{self.extent}: the integer of a subattr must be at least 1."
            )

    def __str__(self) -> str:
        return f"{self.level}" if self.extent is None else f"{self.level}_{self.extent}"


@dataclass(frozen=True, slots=True)
class Attr:
    """How one dimension is spread: one level, or several sized ones, the outermost first."""

    parts: tuple[SubAttr, ...]

    def __post_init__(self) -> None:
        sized = all(part.extent is not None for part in self.parts)
        if not self.parts or (len(self.parts) > 1 and not sized):
            raise TemplateSyntaxError(
                f"{str(self)!r} is no attr: write one level, or subattrs that all have an integer."
            )

    @property
    def levels(self) -> tuple[Level, ...]:
        return tuple(part.level for part in self.parts)

    def __str__(self) -> str:
        return "-".join(map(str, self.parts))


def attr(level: Level | str, extent: int | None = None) -> Attr:
    """The attr of one level: `attr("GRID")` is GRID, `attr("CTA", 256)` is CTA_256."""
    return Attr((SubAttr(Level(level), extent),))


@dataclass(frozen=True, slots=True)
class Schedule:
    """One op that writes shared memory (`shared`) or an output of the pattern."""

    identifier: str
    attrs: tuple[Attr, ...]
    shared: bool = False

    def __post_init__(self) -> None:
        if _IDENTIFIER.fullmatch(self.identifier) is None:
            raise TemplateSyntaxError(
                f"{self.identifier!r} is no identifier: a letter or underscore, then letters, "
                "digits and any of _ . - may follow."
            )
        if not self.attrs:
            raise TemplateSyntaxError(
                f"Schedule {self.identifier} has no attr: a scalar is written as one dimension."
            )

    def __str__(self) -> str:
        attrs = ",".join(map(str, self.attrs))
        return f"{self.identifier}[{attrs}]{'S' if self.shared else ''};"


@dataclass(frozen=True, slots=True)
class Template:
    """A whole kernel's intent: `schedules` in the order they are emitted, and the launch shape.

    `str()` gives its text, one schedule per line; `parse_template` of that text gives it back.
    """

    schedules: tuple[Schedule, ...]
    cta_num: int | None = None
    cta_size: int | None = None

    def __post_init__(self) -> None:
        if not self.schedules:
            raise TemplateSyntaxError("A template needs at least one schedule.")
        if any(size is not None and size < 1 for size in (self.cta_num, self.cta_size)):
            raise TemplateSyntaxError("cta_num and cta_size must be at least 1.")

    def __str__(self) -> str:
        header = (("cta_num", self.cta_num), ("cta_size", self.cta_size))
        launch = [f"{name}={value};" for name, value in header if value is not None]
        return "\n".join([*launch, *map(str, self.schedules)])


def parse_template(text: str) -> Template:
    """Reads a template. Raises TemplateSyntaxError with the position and what was expected."""
    reader = _Reader(text)
    sizes = {name: _header(reader, name) for name in ("cta_num", "cta_size")}
    schedules = [_schedule(reader)]
    while not reader.at_end():
        schedules.append(_schedule(reader))
    return Template(tuple(schedules), **sizes)


def parse_attrs(text: str) -> tuple[tuple[Attr, ...], bool]:
    """Reads the short form of the paper's prose, `[GRID,WARP,WARP,CTA]S`: attrs and `shared`.

    Raises TemplateSyntaxError with the position and what was expected.
    """
    reader = _Reader(text)
    found = _attrs(reader)
    if not reader.at_end():
        reader.fail("the end")
    return found


class _Reader:
    """The text and how far it is read; blanks are skipped before every symbol."""

    def __init__(self, text: str):
        self.text = text
        self.position = 0
        self._skip(_BLANK)

    def at_end(self) -> bool:
        return self.position == len(self.text)

    def take(self, symbol: re.Pattern[str], expected: str) -> str:
        """Reads one symbol or fails."""
        found = symbol.match(self.text, self.position)
        if found is None:
            self.fail(expected)
        self.position = found.end()
        self._skip(_BLANK)
        return found.group()

    def take_if(self, literal: str) -> bool:
        """Reads the literal when it is next."""
        if not self.text.startswith(literal, self.position):
            return False
        self.position += len(literal)
        self._skip(_BLANK)
        return True

    def expect(self, literal: str, expected: str = "") -> None:
        if not self.take_if(literal):
            self.fail(expected or f"{literal!r}")

    def fail(self, expected: str) -> NoReturn:
        line = self.text.count("\n", 0, self.position) + 1
        column = self.position - (self.text.rfind("\n", 0, self.position) + 1) + 1
        found = "the end" if self.at_end() else repr(self.text[self.position])
        raise TemplateSyntaxError(
            f"Template, line {line}, column {column}: expected {expected}, found {found}."
        )

    def _skip(self, blank: re.Pattern[str]) -> None:
        found = blank.match(self.text, self.position)
        self.position = found.end() if found else self.position


def _header(reader: _Reader, name: str) -> int | None:
    start = reader.position
    if not reader.take_if(name) or not reader.take_if("="):
        reader.position = start  # an op may be called cta_num
        return None
    value = int(reader.take(_INTEGER, "a positive integer"))
    reader.expect(";")
    return value


def _schedule(reader: _Reader) -> Schedule:
    identifier = reader.take(_IDENTIFIER, "an identifier")
    attrs, shared = _attrs(reader)
    reader.expect(";", "';'" if shared else "'S' or ';'")
    return Schedule(identifier, attrs, shared)


def _attrs(reader: _Reader) -> tuple[tuple[Attr, ...], bool]:
    reader.expect("[")
    attrs = [_attr(reader)]
    while reader.take_if(","):
        attrs.append(_attr(reader))
    reader.expect("]", "',' or ']'")
    return tuple(attrs), reader.take_if("S")


def _attr(reader: _Reader) -> Attr:
    level = Level(reader.take(_LEVEL, "GRID, WARP, CTA or THREAD"))
    if not reader.take_if("_"):
        return Attr((SubAttr(level),))
    parts = [SubAttr(level, int(reader.take(_INTEGER, "a positive integer")))]
    while reader.take_if("-"):
        level = Level(reader.take(_LEVEL, "GRID, WARP, CTA or THREAD"))
        reader.expect("_")
        parts.append(SubAttr(level, int(reader.take(_INTEGER, "a positive integer"))))
    return Attr(tuple(parts))
