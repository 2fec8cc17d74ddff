"""Which ops of a program a question is about: by HLO name, JAX scope, source line or kernel."""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

from fusionstitch.errors import TargetError
from fusionstitch.reports.answers import Answer, Answers
from fusionstitch.reports.lines import cell_of

#: Names that are offered where nothing matches.
_CLOSE = 3
_LINE = re.compile(r"(.+):(\d+)")


@dataclass(frozen=True)
class Question:
    """What is asked for, all of it at once: `op` is an HLO name with or without its number, an
    opcode, a part of JAX's name (a scope, a function) or the name of a Python function that it was
    called through, the user's, a library's or JAX's, with or without what stands before it; `line`
    is "file:line", `kernel` the name of a kernel or its beginning. `what` is any of them. `*` and
    `?` stand for other characters."""

    op: str | None = None
    line: str | None = None
    kernel: str | None = None
    what: str | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            text = getattr(self, one.name)
            if text is not None and not isinstance(text, str):
                raise TargetError(
                    f"A question is a text, such as the name of an op or FILE:LINE, not {text!r}."
                )
            if text is not None and not text.strip():
                raise TargetError(f"An empty question ({one.name}) asks for nothing.")
        if self.line is not None and _LINE.fullmatch(self.line) is None:
            raise TargetError(f"{self.line!r} names no line: write it as FILE:LINE.")

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) is not None for one in fields(self))

    def asks_for(self, answer: Answer) -> bool:
        """Whether an op is among those that are asked for."""
        for name, matches in MATCHES.items():
            text = getattr(self, name)
            if text is not None and not matches(text, answer):
                return False
        return self.what is None or any(one(self.what, answer) for one in MATCHES.values())

    def names(self, kernel: str) -> bool:
        """Whether a kernel is asked for by its name."""
        return any(
            text is not None and _is_called(kernel, text) for text in (self.kernel, self.what)
        )

    def tells(self, kernel: str) -> bool:
        """Whether a kernel with ops that are asked for is told of: not if others are asked for."""
        return self.kernel is None or _is_called(kernel, self.kernel)

    def chosen(self, answers: Answers) -> list[Answer]:
        """What is asked for. Raises TargetError, with names that are close, where nothing is."""
        every = list(answers)
        found = [one for one in every if self.asks_for(one)]
        if not found:
            raise TargetError(_nothing(self, every))
        return found


def of_op(text: str, answer: Answer) -> bool:
    """By its name in the HLO, by a part of JAX's name, or by a function it was called through."""
    plain = re.sub(r"\.\d+$", "", answer.name)
    names = [answer.name, plain, answer.opcode]
    for function in answer.functions:  # such as Model.norm, program.<locals>.norm, jax.nn.softmax
        names += _endings(function)
    return any(fnmatch.fnmatchcase(name, text) for name in names) or _in_scope(text, answer.scope)


def of_line(text: str, answer: Answer) -> bool:
    """By a line of the user's that called it; files are named by the end of their path, cells of a
    notebook as "In[3]"."""
    asked = _LINE.fullmatch(text)
    if asked is None:
        return False
    file, line = asked[1], int(asked[2])
    return any(
        frame.line == line and (_ends(frame.file, file) or cell_of(frame.file) == file)
        for frame in answer.frames
        if frame.file
    )


def of_kernel(text: str, answer: Answer) -> bool:
    """By a kernel that computes it."""
    return any(_is_called(name, text) for name in answer.kernels)


def _is_called(kernel: str, text: str) -> bool:
    return kernel.startswith(text) or fnmatch.fnmatchcase(kernel, text)


#: By the field of a question, whether an op matches its text.
MATCHES: Mapping[str, Callable[[str, Answer], bool]] = {
    "op": of_op,
    "line": of_line,
    "kernel": of_kernel,
}


def _endings(function: str) -> list[str]:
    """A dotted name's parts, and what it ends with: "a.b.c" has a, b, c, b.c and itself."""
    parts = function.split(".")
    return [*parts, *(".".join(parts[n:]) for n in range(len(parts) - 1))]


def scopes(name: str) -> list[str]:
    """The parts of JAX's name of an op, without what transformations add:
    "jit(f)/transpose(jvp(norm))/mul" has f, norm and mul."""
    return [part for part in re.split(r"[/()]", name) if part]


def _in_scope(text: str, name: str) -> bool:
    if "/" in text:
        return text in name
    # JAX's own jitted functions have names of their own: jnp.var is jit(_var)
    named = [name for part in scopes(name) for name in (part, part.lstrip("_"))]
    return any(fnmatch.fnmatchcase(part, text) for part in named)


def _ends(path: str, file: str) -> bool:
    path, file = (os.path.normpath(one).replace(os.sep, "/") for one in (path, file))
    return path == file or path.endswith(f"/{file}") or file.endswith(f"/{path}")


def _nothing(question: Question, answers: Iterable[Answer]) -> str:
    asked = [
        f"{one.name} {text}" if one.name != "what" else text
        for one in fields(question)
        if (text := getattr(question, one.name)) is not None
    ]
    known: dict[str, None] = {}
    for answer in answers:
        names = (answer.name, *scopes(answer.scope), *answer.lines, *answer.kernels)
        functions = (part for name in answer.functions for part in name.split("."))
        known |= dict.fromkeys(filter(None, (*names, *functions)))
    words = [text.rpartition(" ")[2] for text in asked]
    close = [near for word in words for near in difflib.get_close_matches(word, known, _CLOSE)]
    return (
        f"No op of the program matches {' and '.join(asked)}. "
        + (f"Close to it: {', '.join(dict.fromkeys(close))}. " if close else "")
        + "Without a question, explain lists all patterns with their ops."
    )
