"""Splitting HLO text into headers, instructions and attributes, before any of it is understood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hlo.errors import ImportModuleError

#: A string or a comment; what is not closed runs to the end, so that the text is walked once.
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*(?:"|\\?\Z))|/\*.*?(?:\*/|\Z)', re.DOTALL)
_NAME = r"%?([\w.\-<>:]+)"
_HEADER = re.compile(rf"(ENTRY )?{_NAME}(?: \(.*\) -> .*)?(?:, execution_thread=\"(.*)\")? \{{$")
_INSTRUCTION = re.compile(rf"(ROOT )?{_NAME} = ")
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_OPEN, _CLOSE = "({[", ")}]"
#: Brackets inside each other: a pair per dimension of a constant or level of a tuple, few more.
_MAX_DEPTH = 100


@dataclass(frozen=True)
class Line:
    """One instruction: `name = shape opcode(operands), attributes`."""

    name: str
    is_root: bool
    shape: str
    opcode: str
    operands: str
    attributes: dict[str, str]


@dataclass(frozen=True)
class Block:
    """One computation."""

    name: str
    is_entry: bool
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Document:
    """A whole module; `tables` holds sections such as FileNames, line by line."""

    name: str
    attributes: dict[str, str]
    tables: dict[str, tuple[str, ...]]
    blocks: tuple[Block, ...]


def _unquoted(text: str, begin: int = 0) -> Iterator[tuple[int, str, int]]:
    """(position, character, bracket depth) outside of strings; a bracket has the depth after it."""
    depth, quoted, i = 0, False, begin
    while i < len(text):
        c = text[i]
        if quoted:
            i += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        else:
            depth += (c in _OPEN) - (c in _CLOSE)
            yield i, c, depth
        i += 1


def split_top(text: str, separator: str = ",") -> list[str]:
    """The parts between separators outside of brackets and strings, stripped and not empty."""
    cuts = [i for i, c, depth in _unquoted(text) if c == separator and depth == 0]
    bounds = zip([0, *(i + 1 for i in cuts)], [*cuts, len(text)], strict=True)
    parts = [text[begin:end].strip() for begin, end in bounds]
    return [part for part in parts if part]


def closing(text: str, begin: int) -> int:
    """The index of the bracket that closes the one at `begin`."""
    for i, c, depth in _unquoted(text, begin):
        if c in _CLOSE and depth == 0:
            return i
    raise ImportModuleError(f"HLO text: a bracket is not closed in {text[begin : begin + 60]!r}.")


def attributes_of(text: str) -> dict[str, str]:
    """`a=1, b={2, 3}` as a mapping of texts."""
    found: dict[str, str] = {}
    for part in split_top(text):
        key, equals, value = part.partition("=")
        if not equals:
            raise ImportModuleError(f"HLO text: {part!r} is not of the form name=value.")
        found[key.strip()] = value.strip()
    return found


def _statements(text: str) -> Iterator[str]:
    """Lines, joined while their brackets are open; a computation's braces stand on their own."""
    pending: list[str] = []
    depth = 0
    for raw in text.splitlines():
        line = raw.strip()
        if not pending and (line == "}" or (line.endswith("{") and _HEADER.match(line))):
            yield line
            continue
        inside = [depth + d for _, c, d in _unquoted(line) if c in _OPEN or c in _CLOSE]
        depth = inside[-1] if inside else depth
        if max(inside, default=0) > _MAX_DEPTH:
            raise ImportModuleError(
                f"HLO text: brackets are nested more than {_MAX_DEPTH} deep in {line[:60]!r}."
            )
        pending.append(line)
        if depth <= 0:
            yield " ".join(pending)
            pending, depth = [], 0
    if pending:
        raise ImportModuleError(f"HLO text ends inside {pending[0][:60]!r}.")


def _line(statement: str) -> Line:
    head = _INSTRUCTION.match(statement)
    if head is None:
        raise ImportModuleError(f"HLO text: {statement[:80]!r} is no instruction.")
    # a tuple shape holds brackets itself, so the opcode is looked for behind it
    begin = head.end()
    behind = closing(statement, begin) if statement[begin] == "(" else begin
    opcode = _OPCODE.search(statement, behind)
    if opcode is None:
        raise ImportModuleError(f"HLO text: {statement[:80]!r} has no opcode.")
    end = closing(statement, opcode.end() - 1)
    return Line(
        name=head[2],
        is_root=head[1] is not None,
        shape=statement[begin : opcode.start()],
        opcode=opcode[1],
        operands=statement[opcode.end() : end],
        attributes=attributes_of(statement[end + 1 :].lstrip(", ")),
    )


def split_text(text: str) -> Document:
    """The parts of an HLO module's text; raises ImportModuleError where it is malformed."""
    bare = _COMMENT.sub(lambda match: match[1] or "", text)
    header: dict[str, str] | None = None
    name = ""
    tables: dict[str, list[str]] = {}
    table: list[str] | None = None
    blocks: list[Block] = []
    lines: list[Line] | None = None
    opened = ("", False)
    for statement in _statements(bare):
        if header is None:
            if not statement:
                continue
            word, _, rest = statement.partition(" ")
            if word != "HloModule":
                raise ImportModuleError(
                    f"This is no HLO text: it begins with {statement[:40]!r}, not with HloModule."
                )
            name, _, rest = rest.partition(",")
            header = attributes_of(rest)
        elif lines is not None:
            if statement == "}":
                blocks.append(Block(*opened, tuple(lines)))
                lines = None
            elif statement:
                lines.append(_line(statement))
        elif (match := _HEADER.match(statement)) is not None:
            opened, lines, table = (match[2], match[1] is not None), [], None
        elif not statement:
            table = None
        elif table is not None:
            table.append(statement)
        elif re.fullmatch(r"[A-Z]\w+", statement):
            table = tables.setdefault(statement, [])
        else:
            raise ImportModuleError(f"HLO text: {statement[:80]!r} stands outside a computation.")
    if header is None:
        raise ImportModuleError("This is no HLO text: it is empty.")
    if lines is not None:
        raise ImportModuleError(f"HLO text ends inside computation {opened[0]}.")
    done = {key: tuple(rows) for key, rows in tables.items()}
    return Document(name.strip(), header, done, tuple(blocks))
