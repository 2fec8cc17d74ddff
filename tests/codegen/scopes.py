"""Names that a kernel's text reads where they are not declared, found without a compiler.

Generated text declares one name per statement, in C's plain form: `const float x = ...;`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_COMMENT = re.compile(r"//[^\n]*|#[^\n]*|\"[^\"\n]*\"")
#: A name after a type: templates close and pointers end without a space before.
_DECLARED = re.compile(r"(?:(?<=\w)|(?<=[\w>][>*&]))(?<!\breturn)(?<!\belse) ([A-Za-z_]\w*)")
_USED = re.compile(r"(?<![\w.:])([A-Za-z_]\w*)\b(?!::)")
_FUNCTION = re.compile(r"\b([A-Za-z_]\w*)(?=\()|\b(?:struct|class|namespace) ([A-Za-z_]\w*)")
#: Words of the language that stand where a name could, and what the launch defines.
_KNOWN = frozenset(
    {
        *("auto", "bool", "char", "const", "double", "else", "extern", "false", "float", "for"),
        *("if", "int", "long", "return", "short", "static", "struct", "template", "true"),
        *("break", "class", "continue", "unsigned", "void", "while"),
        *("threadIdx", "blockIdx", "blockDim", "gridDim", "shared_memory"),
    }
)
#: Types, and what the device header defines.
_DEFINED = re.compile(r"u?int\d+_t|b?f\d+\w*|(?:fs|Fs|FS)_?\w+|__\w+__")


def undeclared(source: str) -> list[str]:
    """The names that `source` reads outside of the blocks that declare them, in order."""
    scopes: list[set[str]] = [set(_KNOWN)]
    missing: list[str] = []
    for statement, end in _statements(_COMMENT.sub("", source)):
        outer, inside = _apart(statement)
        local = set(_DECLARED.findall(inside))
        scopes[-1] |= set(_DECLARED.findall(outer)) | set(
            filter(None, sum(_FUNCTION.findall(statement), ()))
        )
        known = local.union(*scopes)
        missing += [
            n for n in _USED.findall(statement) if n not in known and not _DEFINED.fullmatch(n)
        ]
        if end == "{":
            scopes.append(local)
        elif end == "}":
            scopes.pop()
    return list(dict.fromkeys(missing))


def _statements(text: str) -> Iterator[tuple[str, str]]:
    """What lies between semicolons and the braces of blocks, and which of them ends it."""
    start = nested = 0
    for at, c in enumerate(text):
        before = text[:at].rstrip()[-1:] if c == "{" else ""
        if c in "([" or (c == "{" and (nested or before in tuple("=>,{"))):
            nested += 1
        elif nested and c in ")]}":
            nested -= 1
        elif not nested and c in ";{}":
            yield text[start:at], c
            start = at + 1


def _apart(statement: str) -> tuple[str, str]:
    """The text outside of round brackets, and the text within."""
    outer, inside, nested = [], [], 0
    for c in statement:
        nested -= c == ")"
        (inside if nested else outer).append(c)
        nested += c == "("
    return "".join(outer), "".join(inside)
