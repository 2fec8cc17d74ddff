"""Constants: LiteralProto to numpy arrays and back."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from hlo.graph import Shape

#: HLO type name -> numpy dtype, for every type whose elements numpy can hold one by one.
NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(np.bool_),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e4m3b11fnuz": np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    "f8e3m4": np.dtype(ml_dtypes.float8_e3m4),
    "f8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    **{f"s{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}
#: Names of all real float types, 8-bit ones included.
FLOAT_TYPES = frozenset(name for name in NUMPY_DTYPES if name[0] == "f" or name == "bf16")
HLO_DTYPES: dict[np.dtype[Any], str] = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


def shape_of(value: np.ndarray) -> Shape:
    """The HLO array type of a numpy array."""
    return Shape(HLO_DTYPES[value.dtype], value.shape)


def to_numpy(literal: Any, shape: Shape) -> np.ndarray | None:
    """The array a LiteralProto holds, read-only; None for types numpy cannot hold (s4, tuples).

    Raises ValueError when the literal holds another number of elements than `shape` says.
    """
    dtype = NUMPY_DTYPES.get(shape.dtype)
    if dtype is None:
        return None
    field = "preds" if shape.dtype == "pred" else f"{shape.dtype}s"
    data = getattr(literal, field)
    if isinstance(data, bytes):
        flat = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
    elif shape.dtype in ("c64", "c128"):
        flat = np.array(data, f"f{dtype.itemsize // 2}").view(dtype)
    else:
        flat = np.array(data, dtype)
    if flat.size != math.prod(shape.dims):
        raise ValueError(f"holds {flat.size} elements where {shape} was declared")
    # the elements come in memory order, so a layout other than row-major permutes them
    major_to_minor = tuple(reversed(literal.shape.layout.minor_to_major))
    if major_to_minor and major_to_minor != tuple(range(shape.rank)):
        stored = flat.reshape([shape.dims[d] for d in major_to_minor])
        flat = stored.transpose(np.argsort(major_to_minor))
    value = flat.reshape(shape.dims).copy(order="C")
    value.flags.writeable = False
    return value


def fill_literal(literal: Any, value: np.ndarray, shape_proto: Any) -> None:
    """Writes `value` into a LiteralProto whose (row-major) ShapeProto is `shape_proto`."""
    literal.shape.CopyFrom(shape_proto)
    name = HLO_DTYPES[value.dtype]
    field = "preds" if name == "pred" else f"{name}s"
    flat = np.ascontiguousarray(value).reshape(-1)
    if isinstance(getattr(literal, field), bytes):
        setattr(literal, field, flat.tobytes())
    elif name in ("c64", "c128"):
        getattr(literal, field).extend(flat.view(f"f{flat.dtype.itemsize // 2}").tolist())
    else:
        getattr(literal, field).extend(flat.tolist())
