"""Texts of programs with what each stretch of them is, by Pygments, for the page to colour."""

from __future__ import annotations

from functools import cache
from itertools import groupby
from typing import Any

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, String, _TokenType

#: What the page tells apart, by a letter.
_LETTERS: tuple[tuple[_TokenType, str], ...] = (
    (Comment.Preproc, "p"),
    (Comment.PreprocFile, "s"),
    (Comment, "c"),
    (Keyword.Type, "t"),
    (Keyword, "k"),
    (Name.Function, "f"),
    (Name.Builtin, "f"),
    (Number, "n"),
    (String, "s"),
)
#: Characters beyond which a text stays plain: colours are not worth seconds.
MOST = 1_000_000


def coloured(text: str, language: str) -> dict[str, Any]:
    """The text, and its stretches as numbers of characters with a letter each."""
    if language == "text" or len(text) > MOST:
        return {"text": text, "runs": ""}
    # as it is: by default lexers strip and end texts
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    tokens = ((_letter(kind), len(value)) for _, kind, value in lexer.get_tokens_unprocessed(text))
    runs = (
        f"{sum(size for _, size in group)}{letter}"
        for letter, group in groupby(tokens, key=lambda token: token[0])
    )
    return {"text": text, "runs": " ".join(runs)}


@cache
def _letter(kind: _TokenType) -> str:
    return next((letter for known, letter in _LETTERS if kind in known), "o")
