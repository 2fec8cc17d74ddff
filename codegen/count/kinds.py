"""C types of values and memory, by how they are spelled: bytes, and fields to compute with."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from fusionstitch.codegen.text.types import C_TYPES, record_bytes

_BYTES: Mapping[str, int] = {
    **{kind.storage: kind.bytes for kind in C_TYPES.values()},
    "int": 4,
    "long long": 8,
}
_UNITS: Mapping[str, str] = {
    **{kind.storage: "int_ops" for kind in C_TYPES.values() if kind.compute == kind.storage},
    "int": "int_ops",
    "long long": "int_ops",
    "float": "flops",
    "double": "flops64",
}
_GENERIC = re.compile(r"(fs_vec|fs_loaded|fs_record)<(.*)>")


@dataclass(frozen=True)
class Kind:
    """A value of `bytes` with so many `fields`, or an array of `size` of them; `unit` is the
    `Instructions` that its arithmetic counts as."""

    bytes: int
    fields: int = 1
    size: int = 1
    unit: str = "flops"


@functools.cache
def kind_of(spelled: str) -> Kind:
    """A C type; what is not known counts as a float."""
    generic = _GENERIC.fullmatch(spelled)
    if not generic:
        return Kind(_BYTES.get(spelled, 4), unit=_UNITS.get(spelled, "flops"))
    name, inside = generic.groups()
    if name != "fs_record":
        element, _, count = inside.rpartition(", ")
        own = kind_of(element)
        return Kind(own.bytes * int(count), int(count), unit=own.unit)
    members = [kind_of(member) for member in inside.split(", ")]
    size = record_bytes([member.bytes for member in members])
    return Kind(size, len(members), unit=members[0].unit)


def bytes_of(spelled: str) -> int:
    """The bytes of an element, given its C type or that of a pointer to it."""
    return kind_of(spelled.removeprefix("const ").rstrip("*")).bytes
