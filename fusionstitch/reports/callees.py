"""What a line of Python calls, by the name that it uses: JAX records a stack of frames without its
own functions, but where on a line each frame was, and there stands what was called."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

from fusionstitch.hlo.frames import Span

#: Spans of programs that are asked about; each is read and parsed once.
_KNOWN = 4096
#: Lines that one call may be written on.
_LONGEST = 200


@lru_cache(_KNOWN)
def callees(span: Span) -> tuple[str, ...]:
    """The names of the function that is called at a span: "jax.nn.softmax" for
    `jax.nn.softmax(x)`; none where no function is called by a name, or the text is not there."""
    try:
        called = ast.parse(f"({_text(span)}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    name = _dotted(called.func) if isinstance(called, ast.Call) else ""
    return (name,) if name else ()


def _text(span: Span) -> str:
    """The text of a span; nothing where its end is unknown."""
    if not span.line <= span.end_line < span.line + _LONGEST:
        return ""
    lines = [
        linecache.getline(span.file, number).encode()
        for number in range(span.line, span.end_line + 1)
    ]
    lines[-1] = lines[-1][: span.end_column]
    lines[0] = lines[0][span.column :]
    return b"".join(lines).decode("utf-8", "replace")


def _dotted(function: ast.expr) -> str:
    """A function's name with what stands before it: "" for what has no name."""
    if isinstance(function, ast.Name):
        return function.id
    if not isinstance(function, ast.Attribute):
        return ""
    before = _dotted(function.value)
    return f"{before}.{function.attr}" if before else function.attr
