"""Large literals taken out of a module's bytes and put back: what is between reads none of them,
and copies, parses and compares the rest alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from fusionstitch.hlo import schema
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.literals import to_numpy
from fusionstitch.hlo.progressions import form_of

#: Bytes of a literal from which on it is worth while.
LEAST = 1 << 16


def detach(data: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """HloModuleProto bytes without their large literals, and these, for `attach`.

    A literal stays where the importer reads it, or is to refuse it.
    """
    if len(data) < LEAST:
        return data, ()
    outline = schema.Outline()
    try:
        outline.ParseFromString(data)
    except DecodeError:  # the importer says what is wrong
        return data, ()
    taken: list[bytes] = []
    for computation in outline.computations:
        for instruction in computation.instructions:
            literal = instruction.literal
            if len(literal) >= LEAST and _is_unread(literal):
                taken.append(literal)
                instruction.literal = _stand_in(len(taken))
    return (outline.SerializeToString(), tuple(taken)) if taken else (data, ())


def attach(data: bytes, literals: Sequence[bytes]) -> bytes:
    """The module with the `literals` that `detach` took out of it, wherever they are needed."""
    if not literals:
        return data
    outline = schema.Outline.FromString(data)
    for computation in outline.computations:
        for instruction in computation.instructions:
            if 0 < len(instruction.literal) < LEAST:
                number = schema.Literal.FromString(instruction.literal).detached
                if number:
                    instruction.literal = literals[number - 1]
    whole: bytes = outline.SerializeToString()
    return whole


def _is_unread(literal: bytes) -> bool:
    """Whether the importer leaves the elements of a literal alone."""
    try:
        message = schema.Literal.FromString(literal)
        shape = _shape(message.shape)
        return to_numpy(message, shape) is None and form_of(message, shape) is None
    except (DecodeError, ValueError, KeyError):
        return False


def _shape(proto: Any) -> Shape:
    return Shape(schema.PRIMITIVE_TYPES[proto.element_type], tuple(proto.dimensions))


def _stand_in(number: int) -> bytes:
    stand_in: bytes = schema.Literal(detached=number).SerializeToString()
    return stand_in
