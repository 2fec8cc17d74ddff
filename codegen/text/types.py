"""How HLO element types look in CUDA-C: the type in memory and the type of arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import FLOATS8


@dataclass(frozen=True, slots=True)
class CType:
    """One element type. `storage` is the C type behind pointers, `compute` the C type of values.

    `fs_load(p[i])` turns storage into compute, `fs_store_as<storage>(v)` compute into storage;
    both are the identity where the two are the same. `bytes` counts one stored element.
    """

    storage: str
    compute: str
    bytes: int


C_TYPES: Mapping[str, CType] = {
    "pred": CType("bool", "bool", 1),
    "s8": CType("int8_t", "int8_t", 1),
    "u8": CType("uint8_t", "uint8_t", 1),
    "s16": CType("int16_t", "int16_t", 2),
    "u16": CType("uint16_t", "uint16_t", 2),
    "s32": CType("int32_t", "int32_t", 4),
    "u32": CType("uint32_t", "uint32_t", 4),
    "s64": CType("int64_t", "int64_t", 8),
    "u64": CType("uint64_t", "uint64_t", 8),
    "f16": CType("f16", "float", 2),
    "bf16": CType("bf16", "float", 2),
    "f32": CType("float", "float", 4),
    "f64": CType("double", "double", 8),
    **{dtype: CType(dtype, "float", 1) for dtype in sorted(FLOATS8)},
}


#: The element type of floats that are rounded for tensor cores; only kernels have it.
TF32 = "tf32"
_OF_KERNELS: Mapping[str, CType] = {TF32: CType("tf32", "float", 4)}


def record(dtypes: Sequence[str]) -> str:
    """The element type of several values that travel together; only kernels have such."""
    return f"record<{','.join(dtypes)}>"


def members_of(dtype: str) -> list[str]:
    """The types of a record's values; none where it is no record."""
    inside = dtype.removeprefix("record<").removesuffix(">")
    return inside.split(",") if record([inside]) == dtype else []


def c_type(dtype: str) -> CType:
    """The C types of an HLO element type. Raises CodegenError for one without a C type."""
    found = C_TYPES.get(dtype) or _OF_KERNELS.get(dtype) or _record_type(dtype)
    if found is None:
        known = ", ".join(C_TYPES)
        raise CodegenError(
            f"Element type {dtype} has no CUDA-C type: leave the op to XLA. Known are: {known}."
        )
    return found


@functools.cache
def _record_type(dtype: str) -> CType | None:
    members = members_of(dtype)
    if not members:
        return None
    size = record_bytes([compute_bytes(member) for member in members])
    name = f"fs_record<{', '.join(c_type(member).compute for member in members)}>"
    return CType(name, name, size)


def record_bytes(members: Sequence[int]) -> int:
    """Bytes of a record of members of so many each: the first, and after it one of the rest."""
    size = align = 0
    for own in reversed(members):
        start = -(-own // align) * align if align else own
        align = max(align, own)
        size = -(-(start + size) // align) * align
    return size


#: Bytes of the compute types that differ from their storage.
_COMPUTE_BYTES: Mapping[str, int] = {"float": 4, "double": 8}


def compute_bytes(dtype: str) -> int:
    """Bytes of one value of `dtype` while it is computed with: a bf16 takes a float."""
    kind = c_type(dtype)
    return _COMPUTE_BYTES.get(kind.compute, kind.bytes)
