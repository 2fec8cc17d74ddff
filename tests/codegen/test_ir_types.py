"""Types of the kernel IR: what they take, and how C spells them (`codegen/ir/types.py`)."""

from __future__ import annotations

import pytest

from fusionstitch.codegen.ir.spelling import type_text
from fusionstitch.codegen.ir.types import (
    BOOL,
    FLOAT,
    INT,
    LONG,
    PointerTo,
    Raw,
    Record,
    Scalar,
    Type,
    VectorOf,
    computed,
    stored,
)
from fusionstitch.codegen.text.types import C_TYPES, c_type, compute_bytes, record
from fusionstitch.hlo.errors import CodegenError

BF16 = Scalar("bf16")
TYPES: dict[str, tuple[Type, int]] = {
    "int": (INT, 4),
    "long long": (LONG, 8),
    "bool": (BOOL, 1),
    "double": (Scalar("f64"), 8),
    "unsigned char": (Raw.BYTE, 1),
    "fs_vec<bf16, 8>": (VectorOf(BF16, 8), 16),
    "fs_loaded<float, 4>": (VectorOf(FLOAT, 4, loaded=True), 16),
    "fs_record<double, bool>": (Record((Scalar("f64"), BOOL)), 16),
    "float*": (PointerTo(FLOAT), 8),
    "const bf16*": (PointerTo(BF16, constant=True), 8),
}


@pytest.mark.parametrize("spelled", TYPES)
def test_types_have_a_text_and_a_size(spelled: str) -> None:
    kind, size = TYPES[spelled]
    assert type_text(kind) == spelled
    assert kind.bytes == size


@pytest.mark.parametrize("dtype", [*C_TYPES, record(["f32", "s32"]), record(["bf16", "f64"])])
def test_elements_lie_in_memory_and_are_computed_with_as_c_types(dtype: str) -> None:
    assert type_text(stored(dtype)) == c_type(dtype).storage
    assert type_text(computed(dtype)) == c_type(dtype).compute
    assert stored(dtype).bytes == c_type(dtype).bytes
    assert computed(dtype).bytes == compute_bytes(dtype)


def test_arithmetic_counts_by_the_type() -> None:
    units = {one: Scalar(one).unit for one in ("f64", "f32", "bf16", "f8e5m2", "s32", "pred")}
    assert units == {
        "f64": "flops64",
        "f32": "flops",
        "bf16": "flops",
        "f8e5m2": "flops",
        "s32": "int_ops",
        "pred": "int_ops",
    }
    assert (INT.unit, Record((FLOAT, Scalar("s32"))).unit) == ("int_ops", "flops")
    assert (Record((FLOAT, FLOAT)).fields, VectorOf(FLOAT, 4).fields, FLOAT.fields) == (2, 4, 1)


def test_an_element_without_a_type_is_refused() -> None:
    for requested in (stored, computed):
        with pytest.raises(CodegenError, match="c64 has no CUDA-C type"):
            requested("c64")
