"""Reads the text of a template. Errors name the line and column, and what was expected there."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NoReturn

from fusionstitch.codegen.schedule.template import (
    ANY,
    BOUNDS,
    CLAUSES,
    HEADER,
    IDENTIFIER,
    WORDS,
    Attr,
    Block,
    Level,
    Loop,
    Schedule,
    SubAttr,
    Template,
)
from fusionstitch.hlo.errors import TemplateSyntaxError

_LEVEL = re.compile("GRID|WARP|CTA|THREAD")
_INTEGER = re.compile(r"[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_BLANK = re.compile(r"\s*")


def parse_template(text: str) -> Template:
    """Reads a template. Raises TemplateSyntaxError with the position and what was expected."""
    reader = _Reader(text)
    header: dict[str, Any] = {}
    while (name := reader.word()) in HEADER:
        if name in header:
            reader.fail(f"{name} once")
        reader.take(IDENTIFIER, name)
        reader.expect("=")
        if name == BOUNDS and reader.word() == ANY:
            reader.keyword(ANY)
            header[name] = 0
        else:
            header[name] = reader.number(HEADER[name])
        reader.expect(";")
    if sunk := reader.word() == "sink":
        for word in ("sink", "concatenates"):
            reader.keyword(word)
        reader.expect(";")
    halo = _halo(reader) if reader.word() == "halo" else ()
    splits = []
    while reader.word() == "split":
        splits.append(_split(reader))
    if reader.word() != "group":
        return replace(
            Template(_schedules(reader), sunk=sunk, halo=halo, splits=tuple(splits)), **header
        )
    phases = [_phase(reader)]
    while not reader.at_end():
        reader.keyword("grid")
        reader.expect(";")
        phases.append(_phase(reader))
    return replace(
        Template(sunk=sunk, halo=halo, splits=tuple(splits), phases=tuple(phases)), **header
    )


def parse_attrs(text: str) -> tuple[tuple[Attr, ...], bool]:
    """Reads the short form of the paper's prose, `[GRID,WARP,WARP,CTA]S`: attrs and `shared`.

    Raises TemplateSyntaxError with the position and what was expected.
    """
    reader = _Reader(text)
    found = _attrs(reader), reader.take_if("S")
    if not reader.at_end():
        reader.fail("the end")
    return found


class _Reader:
    """The text and how far it is read; blanks are skipped before every symbol."""

    def __init__(self, text: str):
        self.text = text
        self.position = 0
        self._skip()

    def at_end(self) -> bool:
        return self.position == len(self.text)

    def word(self) -> str:
        """The identifier that is next, unless it is a schedule's: an op may be called cta_num."""
        found = IDENTIFIER.match(self.text, self.position)
        if found is None:
            return ""
        blank = _BLANK.match(self.text, found.end())
        end = blank.end() if blank else found.end()
        return "" if self.text.startswith("[", end) else found.group()

    def keyword(self, expected: str) -> None:
        if self.word() != expected:
            self.fail(f"'{expected}'")
        self.take(IDENTIFIER, expected)

    def number(self, least: int) -> int:
        if least:
            return int(self.take(_INTEGER, "a positive integer"))
        return int(self.take(_NUMBER, "an integer"))

    def take(self, symbol: re.Pattern[str], expected: str) -> str:
        """Reads one symbol or fails."""
        found = symbol.match(self.text, self.position)
        if found is None:
            self.fail(expected)
        self.position = found.end()
        self._skip()
        return found.group()

    def take_if(self, literal: str) -> bool:
        """Reads the literal when it is next."""
        if not self.text.startswith(literal, self.position):
            return False
        self.position += len(literal)
        self._skip()
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

    def _skip(self) -> None:
        found = _BLANK.match(self.text, self.position)
        self.position = found.end() if found else self.position


def _split(reader: _Reader) -> tuple[str, int]:
    reader.keyword("split")
    name = reader.take(IDENTIFIER, "an identifier")
    reader.keyword("into")
    parts = reader.number(1)
    reader.expect(";")
    return name, parts


def _halo(reader: _Reader) -> tuple[int, ...]:
    reader.keyword("halo")
    sizes = [reader.number(1)]
    while not reader.take_if(";"):
        sizes.append(reader.number(1))
    return tuple(sizes)


def _phase(reader: _Reader) -> tuple[Block, ...]:
    found = [_block(reader)]
    while reader.word() == "group":
        found.append(_block(reader))
    return tuple(found)


def _block(reader: _Reader) -> Block:
    reader.keyword("group")
    tile = None
    if not reader.take_if(";"):
        reader.keyword("tile")
        reader.expect("=")
        tile = reader.number(1)
        reader.expect(";")
    loops = [_loop(reader)]
    while reader.word() == "loop":
        loops.append(_loop(reader))
    return Block(tuple(loops), tile)


def _loop(reader: _Reader) -> Loop:
    reader.keyword("loop")
    words: dict[str, bool] = {}
    numbers: dict[str, int] = {}
    first = True
    while not reader.take_if(";"):
        if not first:
            reader.expect(",", "',' or ';'")
        first = False
        name = reader.word()
        if name in words or name in numbers or name not in (*WORDS, *CLAUSES):
            reader.fail(f"';' or another of {', '.join((*WORDS, *CLAUSES))}")
        reader.take(IDENTIFIER, "a clause")
        if name in WORDS:
            words[name] = True
        else:
            reader.expect("=")
            numbers[name] = reader.number(CLAUSES[name])
    found: dict[str, Any] = {**words, **numbers}
    return Loop(_schedules(reader), **found)


def _schedules(reader: _Reader) -> tuple[Schedule, ...]:
    found = [_schedule(reader)]
    while not reader.at_end() and not reader.word():
        found.append(_schedule(reader))
    return tuple(found)


def _schedule(reader: _Reader) -> Schedule:
    identifier = reader.take(IDENTIFIER, "an identifier")
    attrs = _attrs(reader)
    shared = reader.take_if("S")
    registers = not shared and reader.take_if("R")
    whole = reader.take_if("G")
    marked = shared or registers or whole
    reader.expect(";", "';'" if marked else "'S', 'R', 'G' or ';'")
    return Schedule(identifier, attrs, shared, registers, whole)


def _attrs(reader: _Reader) -> tuple[Attr, ...]:
    reader.expect("[")
    attrs = [_attr(reader)]
    while reader.take_if(","):
        attrs.append(_attr(reader))
    reader.expect("]", "',' or ']'")
    return tuple(attrs)


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
