"""Splitting HLO text into headers, instructions and attributes, before any of it is understood.

As in XLA's own reader, line ends mean nothing: a computation may stand on one line, an instruction
on several. They are counted, so that errors can name the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fusionstitch.hlo.errors import ImportModuleError

_STRING = r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)'
#: A string or a comment; what is not closed runs to the end, so that the text is walked once.
_COMMENT = re.compile(rf"({_STRING})|/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)
_BRACKET = re.compile(rf"{_STRING}|[(){{}}\[\]]", re.DOTALL)
_BRACKET_OR_COMMA = re.compile(rf"{_STRING}|[(){{}}\[\],]", re.DOTALL)
_NAME = r"%?([\w.\-<>:]+)"
_MODULE = re.compile(rf"HloModule\s+(?!ENTRY\b){_NAME}")
_HEADER = re.compile(rf"(ENTRY\s+)?{_NAME}\s*(?=[({{])")
_INSTRUCTION = re.compile(rf"(ROOT\s+)?{_NAME}\s*=\s*")
_ELEMENT = re.compile(r"[a-z]\w*\s*(?=\[)")
_LAYOUT = re.compile(r"\{[\d,\s]*(?::[^{}]*)?\}")
_OPCODE = re.compile(r"([a-z][\w\-]*)\s*(?=\()")
_KEY = re.compile(r",\s*([\w\-]+)\s*=\s*")
_PIECE = re.compile(rf'{_STRING}|[^\s,"(){{}}\[\]]+', re.DOTALL)
_TABLE = re.compile(r"([A-Z]\w+)\s+(?=\d+\s+[{\"]|[A-Z%])")
_ROW = re.compile(r"\d+\s+(?=[{\"])")
_BLANK = re.compile(r"\s*")
_CLOSES = {"(": ")", "{": "}", "[": "]"}
#: Brackets inside each other: a pair per dimension of a constant or level of a tuple, few more.
_MAX_DEPTH = 100
#: Characters that an error quotes.
_QUOTED = 60


@dataclass(frozen=True)
class Line:
    """One instruction: `name = shape opcode(operands), attributes`; `number` is its line's."""

    name: str
    is_root: bool
    shape: str
    opcode: str
    operands: str
    attributes: dict[str, str]
    number: int


@dataclass(frozen=True)
class Block:
    """One computation."""

    name: str
    is_entry: bool
    lines: tuple[Line, ...]
    number: int


@dataclass(frozen=True)
class Document:
    """A whole module; `tables` holds sections such as FileNames, row by row with their lines,
    `number` the line that it begins on."""

    name: str
    attributes: dict[str, str]
    tables: dict[str, tuple[tuple[int, str], ...]]
    blocks: tuple[Block, ...]
    number: int


def fault(number: int, what: str) -> ImportModuleError:
    """An error that names the line it was found on."""
    return ImportModuleError(f"HLO text, line {number}: {what}.")


def split_top(text: str) -> list[str]:
    """The parts between commas outside of brackets and strings, stripped and not empty."""
    depth, begin, parts = 0, 0, []
    for found in _BRACKET_OR_COMMA.finditer(text):
        c = found[0]
        if c in _CLOSES:
            depth += 1
        elif c == ",":
            if depth == 0:
                parts.append(text[begin : found.start()].strip())
                begin = found.end()
        elif c[0] != '"':
            depth -= 1
    parts.append(text[begin:].strip())
    return [part for part in parts if part]


def closing(text: str, begin: int) -> int:
    """The index of the bracket that closes the one at `begin`; ValueError if none does."""
    expected: list[str] = []
    for found in _BRACKET.finditer(text, begin):
        c = found[0]
        if c in _CLOSES:
            expected.append(_CLOSES[c])
            if len(expected) > _MAX_DEPTH:
                raise ValueError(f"brackets are nested more than {_MAX_DEPTH} deep")
        elif c[0] != '"':
            if expected.pop() != c:
                break
            if not expected:
                return found.start()
    shown = " ".join(text[begin : begin + _QUOTED].split())
    raise ValueError(f"a bracket is not closed in {shown!r}")


def attributes_of(text: str) -> dict[str, str]:
    """`a=1, b={2, 3}` as a mapping of texts."""
    found: dict[str, str] = {}
    for part in split_top(text):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} is not of the form name=value")
        found[key.strip()] = value.strip()
    return found


class _Cursor:
    """A position in a text without comments that moves past what is read, and past the blanks after
    it."""

    def __init__(self, text: str):
        self.text = text
        self.at = self.counted = 0
        self.lines = 1
        self.take(_BLANK)

    def number(self) -> int:
        """The line that the cursor is on."""
        self.lines += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.lines

    def fail(self, what: str) -> ImportModuleError:
        return fault(self.number(), what)

    def rest(self) -> str:
        """What stands here, as an error quotes it."""
        return repr(self.text[self.at : self.at + _QUOTED].split("\n")[0])

    def sees(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def move(self, end: int) -> str:
        """What stands between here and `end`."""
        found = self.text[self.at : end]
        blank = _BLANK.match(self.text, end)
        self.at = blank.end() if blank else end
        return found

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.move(found.end())
        return found

    def bracketed(self) -> str:
        """The brackets that open here, and what is inside."""
        return self.move(self._closing(self.at) + 1)

    def _closing(self, begin: int) -> int:
        try:
            return closing(self.text, begin)
        except ValueError as error:
            raise self.fail(str(error)) from None

    def value(self) -> str:
        """Words, strings and brackets up to a blank, a comma or a bracket that closes."""
        end = self.at
        while end < len(self.text):
            if self.text[end] in _CLOSES:
                end = self._closing(end) + 1
            elif (piece := _PIECE.match(self.text, end)) is not None:
                end = piece.end()
            else:
                break
        return self.move(end)

    def attributes(self) -> dict[str, str]:
        """`, a=1, b={2, 3}`, as long as commas follow."""
        found: dict[str, str] = {}
        while self.sees(","):
            key = self.take(_KEY)
            if key is None:
                raise self.fail(f"{self.rest()} is not of the form name=value")
            if key[1] in found:
                raise self.fail(f"attribute {key[1]} is given twice")
            found[key[1]] = self.value()
        return found

    def shape(self) -> str:
        """A shape, or what has the form of one."""
        if self.sees("("):
            return self.bracketed()
        if (element := self.take(_ELEMENT)) is None:
            raise self.fail(f"a shape is missing at {self.rest()}")
        dims = self.bracketed()
        layout = self.take(_LAYOUT)  # a brace may also begin a computation
        return f"{element[0].strip()}{dims}{layout[0] if layout else ''}"


def split_text(text: str) -> Document:
    """The parts of an HLO module's text; raises ImportModuleError where it is malformed."""
    cursor = _Cursor(_COMMENT.sub(_bare, text))
    if cursor.at == len(cursor.text):
        raise ImportModuleError("This is no HLO text: it is empty.")
    number = cursor.number()
    module = cursor.take(_MODULE)
    if module is None:
        raise ImportModuleError(
            f"This is no HLO text: it begins with {cursor.rest()}, not with HloModule and a name."
        )
    attributes = cursor.attributes()
    tables: dict[str, tuple[tuple[int, str], ...]] = {}
    blocks: list[Block] = []
    while cursor.at < len(cursor.text):
        if (header := _HEADER.match(cursor.text, cursor.at)) is not None:
            blocks.append(_block(cursor, header))
        elif (table := cursor.take(_TABLE)) is not None:
            tables[table[1]] = tuple(_rows(cursor))
        else:
            raise cursor.fail(f"{cursor.rest()} stands outside a computation")
    return Document(module[1], attributes, tables, tuple(blocks), number)


def _bare(found: re.Match[str]) -> str:
    """A string as it is; of a comment the line ends, so that lines are counted on."""
    return found[1] or "\n" * found[0].count("\n") or " "


def _rows(cursor: _Cursor) -> Iterator[tuple[int, str]]:
    while cursor.take(_ROW) is not None:
        number = cursor.number()
        yield number, cursor.value()


def _block(cursor: _Cursor, header: re.Match[str]) -> Block:
    number = cursor.number()
    cursor.move(header.end())
    if cursor.sees("("):  # the signature says what the parameters and the root say again
        cursor.bracketed()
        if not cursor.sees("->"):
            raise cursor.fail(f"computation {header[2]} lacks its result's shape")
        cursor.move(cursor.at + 2)
        cursor.shape()
    if not cursor.sees("{"):
        raise cursor.fail(f"computation {header[2]} does not begin with a brace")
    cursor.move(cursor.at + 1)
    lines: list[Line] = []
    while not cursor.sees("}"):
        if cursor.at == len(cursor.text):
            raise cursor.fail(f"the text ends inside computation {header[2]}")
        lines.append(_line(cursor))
    if not lines:
        raise cursor.fail(f"computation {header[2]} holds no instruction")
    cursor.move(cursor.at + 1)
    cursor.attributes()  # such as the thread it runs on
    return Block(header[2], header[1] is not None, tuple(lines), number)


def _line(cursor: _Cursor) -> Line:
    number = cursor.number()
    head = cursor.take(_INSTRUCTION)
    if head is None:
        raise cursor.fail(f"{cursor.rest()} is no instruction")
    shape = cursor.shape()
    opcode = cursor.take(_OPCODE)
    if opcode is None:
        raise fault(number, f"{head[2]} has no opcode")
    operands = cursor.bracketed()[1:-1]
    return Line(
        head[2], head[1] is not None, shape, opcode[1], operands, cursor.attributes(), number
    )
