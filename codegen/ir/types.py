"""Types of what kernels compute with and of what lies in memory; `spelling.py` has their C text.

A scalar is an HLO element type. Most lie in memory as they are computed with; floats of 16 and 8
bits are computed with as f32 (`stored`, `computed`).
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable
from dataclasses import dataclass

from fusionstitch.codegen.text.types import c_type, members_of, record_bytes
from fusionstitch.hlo.graph import FLOATS, FLOATS8


@dataclass(frozen=True, slots=True)
class Scalar:
    """An element of HLO type `dtype`."""

    dtype: str

    @property
    def bytes(self) -> int:
        return c_type(self.dtype).bytes

    @property
    def fields(self) -> int:
        """Values to compute with."""
        return 1

    @property
    def unit(self) -> str:
        """The `Instructions` that arithmetic of it counts as."""
        if self.dtype == "f64":
            return "flops64"
        return "flops" if self.dtype in FLOATS | FLOATS8 else "int_ops"


@dataclass(frozen=True, slots=True)
class IndexType:
    """An integer that says where something is, of so many bits."""

    bits: int

    @property
    def bytes(self) -> int:
        return self.bits // 8

    fields = 1
    unit = "int_ops"


@dataclass(frozen=True, slots=True)
class Record:
    """Several values that travel together."""

    members: tuple[Scalar, ...]

    @property
    def bytes(self) -> int:
        return record_bytes([member.bytes for member in self.members])

    @property
    def fields(self) -> int:
        return len(self.members)

    @property
    def unit(self) -> str:
        return self.members[0].unit


@dataclass(frozen=True, slots=True)
class VectorOf:
    """`width` neighbouring elements; one that was `loaded` may hold them in another form."""

    element: Scalar | Record
    width: int
    loaded: bool = False

    @property
    def bytes(self) -> int:
        return self.element.bytes * self.width

    @property
    def fields(self) -> int:
        return self.width

    @property
    def unit(self) -> str:
        return self.element.unit


class Raw(enum.Enum):
    """A byte of shared memory, and what a vector's load gives, whatever that is."""

    BYTE = 1
    LOADED = 4

    @property
    def bytes(self) -> int:
        return self.value

    @property
    def fields(self) -> int:
        return 1

    @property
    def unit(self) -> str:
        return "flops"


@dataclass(frozen=True, slots=True)
class PointerTo:
    """Where elements lie; nothing is written through one that is `constant`."""

    element: Scalar | Record | Raw
    constant: bool = False

    bytes = 8
    fields = 1
    unit = "int_ops"


Type = Scalar | IndexType | Record | VectorOf | Raw | PointerTo

INT, LONG = IndexType(32), IndexType(64)
#: The largest number that an index of 32 bits holds.
_MOST = 2**31 - 1
BOOL, FLOAT, WORD = Scalar("pred"), Scalar("f32"), Scalar("u32")
#: Scalars that are integers wide enough for indices.
INTEGERS = frozenset({INT, LONG, Scalar("s32"), Scalar("s64"), WORD})


@functools.cache
def stored(dtype: str) -> Scalar | Record:
    """The type of an HLO element in memory. Raises CodegenError for one without a C type."""
    c_type(dtype)
    return _record(dtype) or Scalar(dtype)


@functools.cache
def computed(dtype: str) -> Scalar | Record:
    """The type of an HLO element while it is computed with. Raises CodegenError for one without a
    C type."""
    kind = c_type(dtype)
    return _record(dtype) or (Scalar(dtype) if kind.compute == kind.storage else FLOAT)


def _record(dtype: str) -> Record | None:
    """A record, of what its members are computed with."""
    members = [computed(member) for member in members_of(dtype)]
    scalars = tuple(one for one in members if isinstance(one, Scalar))
    return Record(scalars) if scalars else None


def index_type(values: Iterable[int]) -> IndexType:
    """The narrowest type that holds these numbers."""
    return INT if all(abs(value) <= _MOST for value in values) else LONG
