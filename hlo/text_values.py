"""Shapes and literals of HLO text."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from fusionstitch.hlo import schema
from fusionstitch.hlo.edit import fill_shape
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES, fill_literal
from fusionstitch.hlo.text_lines import closing, split_top

_ARRAY = re.compile(r"([a-z]\w*)\s*\[([^\]]*)\]\s*(?:\{([\d,\s]*)(?::[^}]*)?\})?$")
_ATOM = re.compile(r"[^\s{},()]+")


def integers(text: str) -> list[int]:
    """The numbers of `{1, 0}` or `1,0`."""
    return [int(part) for part in split_top(text.strip("{}"))]


def read_shape(text: str) -> Any:
    """A ShapeProto; layouts that are not written are row-major. ValueError says what is wrong."""
    text = text.strip()
    proto = schema.Shape()
    if text.startswith("("):
        proto.element_type = schema.PRIMITIVE_NUMBERS["tuple"]
        for part in split_top(text[1 : closing(text, 0)]):
            proto.tuple_shapes.append(read_shape(part))
        return proto
    match = _ARRAY.match(text)
    if match is None or match[1] not in schema.PRIMITIVE_NUMBERS:
        raise ValueError(f"{text!r} is no shape this version knows")
    dims = [part.strip() for part in match[2].split(",") if part.strip()]
    if any(d.startswith("<=") for d in dims):
        raise ValueError(f"{text!r} has a dynamic dimension; export with static shapes")
    fill_shape(proto, Shape(match[1], tuple(int(d) for d in dims)))
    if match[3]:
        proto.layout.minor_to_major[:] = integers(match[3])
    return proto


def read_literal(text: str, shape: Any, literal: Any) -> None:
    """Writes the value between the brackets of `constant(...)` into a LiteralProto; ValueError
    says what is wrong."""
    name = schema.PRIMITIVE_TYPES[shape.element_type]
    dtype = NUMPY_DTYPES.get(name)
    if dtype is None:
        raise ValueError(f"constants of type {name} cannot be read")
    if "..." in text:
        raise ValueError("the constant is elided; print the module with print_large_constants=True")
    dims = tuple(shape.dimensions)
    if dtype.kind == "c":
        pairs = re.findall(r"\(([^,()]+),([^()]+)\)", text)
        flat = np.array([complex(float(real), float(imag)) for real, imag in pairs], dtype)
    else:
        flat = np.array([_atom(atom, dtype) for atom in _ATOM.findall(text)], dtype)
    if flat.size != math.prod(dims):
        raise ValueError(f"{text[:60]!r} holds {flat.size} elements, not {dims}")
    fill_literal(literal, flat.reshape(dims), _row_major(name, dims))


def _row_major(name: str, dims: tuple[int, ...]) -> Any:
    # a literal's text is in logical order whatever its layout says
    proto = schema.Shape()
    fill_shape(proto, Shape(name, dims))
    return proto


def _atom(text: str, dtype: np.dtype[Any]) -> Any:
    if dtype == np.bool_:
        return text in ("true", "1")
    if dtype.kind in "iu":
        return int(text)
    if text.lstrip("-").startswith("nan"):
        return float("-nan" if text.startswith("-") else "nan")
    return float(text)
