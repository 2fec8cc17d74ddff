"""Constants: LiteralProto to numpy arrays and back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from fusionstitch.hlo.graph import Shape

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


#: Bytes up to which a constant is read, and may become text of a kernel. A larger one is treated
#: like any other array, and its elements are not examined, unless all of them are equal.
MAX_READ = 512


def to_numpy(literal: Any, shape: Shape) -> np.ndarray | None:
    """The array a LiteralProto holds, read-only; None for types numpy cannot hold (s4, tuples) and
    for more than MAX_READ bytes, unless all elements are equal: then it is a view of one of them.

    Raises ValueError when the literal holds another number of elements than `shape` says.
    """
    dtype = NUMPY_DTYPES.get(shape.dtype)
    if dtype is None or literal.detached:
        return None
    data = getattr(literal, _field(shape))
    parts = _parts(data, dtype)
    if len(data) != shape.size * parts:
        raise ValueError(f"holds {len(data) / parts:g} elements where {shape} was declared")
    if shape.bytes > MAX_READ:
        if not _is_splat(literal, data, shape, parts):
            return None
        return np.broadcast_to(_array(data[:parts], dtype).reshape(()), shape.dims)
    flat = _array(data, dtype)
    # the elements come in memory order, so a layout other than row-major permutes them
    major_to_minor = tuple(reversed(literal.shape.layout.minor_to_major))
    if major_to_minor and major_to_minor != tuple(range(shape.rank)):
        stored = flat.reshape([shape.dims[d] for d in major_to_minor])
        flat = stored.transpose(np.argsort(major_to_minor))
    value = flat.reshape(shape.dims).copy(order="C")
    value.flags.writeable = False
    return value


def elements_of(literal: Any, shape: Shape, count: int) -> np.ndarray | None:
    """The first elements of a literal of integers in row-major order, in 64 bits; None of one that
    lies in memory in another order."""
    order = list(literal.shape.layout.minor_to_major)
    if order and order != list(range(shape.rank))[::-1]:
        return None
    dtype = NUMPY_DTYPES[shape.dtype]
    data = getattr(literal, _field(shape))
    return _array(data[: count * _parts(data, dtype)], dtype).astype(np.int64)


def only_element(value: np.ndarray) -> Any | None:
    """The one that all elements of an array are, bit by bit, as a scalar; None if they differ."""
    if not value.size:
        return None
    first = value[(0,) * value.ndim]
    same = not any(value.strides) or value.tobytes() == first.tobytes() * value.size
    return first if same else None


def content(value: np.ndarray) -> bytes:
    """What distinguishes an array from others of its type and shape that are not read (see
    `to_numpy`)."""
    whole = any(value.strides) or not value.size
    return value.tobytes() if whole else value[(0,) * value.ndim].tobytes()


def _field(shape: Shape) -> str:
    return "preds" if shape.dtype == "pred" else f"{shape.dtype}s"


def _parts(data: Any, dtype: np.dtype[Any]) -> int:
    """Entries of a literal's field that make one element."""
    return dtype.itemsize if isinstance(data, bytes) else 2 if dtype.kind == "c" else 1


def _array(data: Any, dtype: np.dtype[Any]) -> np.ndarray:
    if isinstance(data, bytes):
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
    if dtype.kind == "c":
        return np.array(data, f"f{dtype.itemsize // 2}").view(dtype)
    return np.array(data, dtype)


def _is_splat(literal: Any, data: Any, shape: Shape, parts: int) -> bool:
    """Whether all elements of a literal are equal, bit by bit. Comparing two of them nearly always
    decides. Otherwise its bytes are compared, since an array of decoded elements would take far
    more memory.
    """
    middle = shape.size // 2 * parts
    if data[:parts] != data[middle : middle + parts]:
        return False
    raw = data
    if not isinstance(data, bytes):
        alone = type(literal)()
        getattr(alone, _field(shape)).MergeFrom(data)
        raw = alone.SerializeToString()
    width = len(raw) // shape.size
    elements = np.frombuffer(raw, np.uint8)[-shape.size * width :].reshape(shape.size, width)
    return len(raw) - elements.size <= _HEADER and bool((elements == elements[0]).all())


#: What stands before the entries of a field in a message: its number and their length.
_HEADER = 12


def modular(value: int, dtype: str) -> int:
    """An integer in a type that it may not fit into: sums in that type stay right."""
    kind = NUMPY_DTYPES[dtype]
    bits = 8 * kind.itemsize
    value %= 1 << bits
    return value - (1 << bits) if kind.kind == "i" and value >= 1 << (bits - 1) else value


def fill_literal(literal: Any, value: np.ndarray, shape_proto: Any) -> None:
    """Writes `value` into a LiteralProto whose (row-major) ShapeProto is `shape_proto`."""
    literal.shape.CopyFrom(shape_proto)
    name = HLO_DTYPES[value.dtype]
    field = _field(shape_of(value))
    flat = np.ascontiguousarray(value).reshape(-1)
    if isinstance(getattr(literal, field), bytes):
        setattr(literal, field, flat.tobytes())
    elif name in ("c64", "c128"):
        getattr(literal, field).extend(flat.view(f"f{flat.dtype.itemsize // 2}").tolist())
    else:
        getattr(literal, field).extend(flat.tolist())
