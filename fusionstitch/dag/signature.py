"""Signatures of kernels in NIDL, GrCUDA's interface language, as parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusionstitch.dag.errors import SignatureError

#: The names of element types, with their NumPy and C types.
TYPES: dict[str, tuple[type[np.generic], str]] = {
    "bool": (np.bool_, "bool"),
    "char": (np.int8, "char"),
    "sint8": (np.int8, "signed char"),
    "uint8": (np.uint8, "unsigned char"),
    "sint16": (np.int16, "short"),
    "uint16": (np.uint16, "unsigned short"),
    "sint32": (np.int32, "int"),
    "uint32": (np.uint32, "unsigned"),
    "sint64": (np.int64, "long long"),
    "uint64": (np.uint64, "unsigned long long"),
    "float": (np.float32, "float"),
    "double": (np.float64, "double"),
}
#: The names of an array's direction, and whether the kernel only reads it.
DIRECTIONS = {"const": True, "in": True, "out": False, "inout": False}

_WORDS = re.compile(r"(?:(?P<name>\w+)\s*:)?\s*(?P<words>\w+(?:\s+\w+)*)", re.ASCII)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        name: name in messages and on the edges of graphs
        pointer: whether it is an array; otherwise a number
        const: whether the kernel only reads the array. This is trusted, not checked
        scalar: NumPy type of the number or of the array's elements; None for any
        c_type: that type in C; "void" for any
    """

    name: str
    pointer: bool
    const: bool
    scalar: Any
    c_type: str

    def __str__(self) -> str:
        words = [] if not self.pointer else ["const pointer" if self.const else "inout pointer"]
        known = next((word for word, (_, c) in TYPES.items() if c == self.c_type), "")
        return " ".join([*words, *([known] if known else [])])


def parse(text: str) -> tuple[Parameter, ...]:
    """The parameters of a signature such as "x: const pointer float, inout pointer float, sint32".

    A parameter is a type, or a pointer: `[const|in|out|inout] pointer [type]`. Without a direction,
    an array counts as read and written. A name with a colon may come first. Raises SignatureError.
    """
    if not text.strip():
        return ()
    return tuple(_parameter(part, i, text) for i, part in enumerate(text.split(",")))


def _parameter(part: str, position: int, text: str) -> Parameter:
    def refuse(why: str) -> SignatureError:
        return SignatureError(
            f"Parameter {position} of the signature {text!r}, {part.strip()!r}, cannot be read: "
            f"{why}. Write `[const|in|out|inout] pointer [type]` for an array and `type` for a "
            f"number; types are {', '.join(TYPES)}."
        )

    found = _WORDS.fullmatch(part.strip())
    if found is None:
        raise refuse("it is empty" if not part.strip() else "it is not a list of words")
    name, words = found["name"] or f"argument {position}", found["words"].split()
    if "pointer" not in words:
        if len(words) == 1 and words[0] in TYPES:
            return Parameter(name, False, True, *TYPES[words[0]])
        if words[0] in DIRECTIONS:
            raise refuse(f"{words[0]!r} is for arrays, and there is no `pointer`")
        raise refuse(f"{' '.join(words)!r} is not a type")
    before, after = words[: words.index("pointer")], words[words.index("pointer") + 1 :]
    if len(before) > 1 or (before and before[0] not in DIRECTIONS):
        raise refuse(f"{' '.join(before)!r} is not a direction")
    if len(after) > 1 or (after and after[0] not in TYPES):
        raise refuse(f"{' '.join(after)!r} is not a type")
    scalar, c_type = TYPES[after[0]] if after else (None, "void")
    return Parameter(name, True, bool(before) and DIRECTIONS[before[0]], scalar, c_type)
