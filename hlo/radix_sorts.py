"""Selections and sorts that XLA's GPU compiler hands to its libraries: custom calls.

    top-k kernel    x[..., n]                ->    (the k largest of a row, their numbers)
    CUB             keys[..., n], values     ->    (both in the order of the keys, scratch memory)

The first is a `topk`. The second, a `radix-sort`, is stable. CUB orders integers by value and
floats by their bits, but for -0, which is 0 to it. XLA sorts floats as JAX does by integers that it
makes of them, and moves the floats as values; with the numbers of the elements they are packed into
one word:

    keys   = flip(select(x != x, NaN, select(x == 0, 0, x)))        flip: as integers, in order
    values = x, or bits(x) << 32 | number
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fusionstitch.hlo.graph import FLOATS, Op, Shape
from fusionstitch.hlo.indexing import order_of_rows
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.orders import CANONICAL, Order, folded, is_all

#: Parts of the targets, in lower case; CUB's was renamed in 2026.
_TOP_K, _CUB = "gpu$topk", ("cub$deviceradixsort", "cub_sort")
_DESCENDING = '"descending":true'


@dataclass(frozen=True)
class Sorted:
    """What a `radix-sort` does to rows: it sorts the arrays `operands`, of which `order` names one.
    The values are one of them, or `packed`: the last two of them in a word each, the numbers in so
    many low bits."""

    operands: tuple[Op, ...]
    order: Order
    packed: int = 0


def is_target(target: str) -> bool:
    """Whether a custom call with this target is one of these."""
    return any(part in target.lower() for part in (_TOP_K, *_CUB))


def library_sort(proto: Any, op: Op) -> tuple[str, dict[str, Any]] | None:
    """The opcode of such a custom call and its attributes; None for any other, and where operands
    and results are not those of the routine."""
    target = proto.custom_call_target.lower()
    given = [x.shape for x in op.operands]
    if not is_target(target) or not op.shape.is_tuple:
        return None
    if not 1 <= len(given) <= 2 or given[0].rank < 1:
        return None
    results, dimension = op.shape.elements, given[0].rank - 1
    if _TOP_K in target:
        x, k = given[0], results[0].dims[-1]
        shape = (*x.dims[:-1], k)
        if results != (Shape(x.dtype, shape), Shape("s32", shape)):
            return None
        return "topk", {"k": k, "largest": True, "dimension": dimension}
    if list(results[:-1]) != given:
        return None
    config = bytes(proto.backend_config).decode(errors="replace").replace(" ", "")
    return "radix-sort", {"dimension": dimension, "descending": _DESCENDING in config}


def sorted_by(op: Op) -> Sorted:
    """What a `radix-sort` sorts: floats, where it sorts integers made of them."""
    keys, descending = op.operands[0], op.attrs["descending"]
    source = _floats_of(keys)
    values = op.operands[1] if len(op.operands) == 2 else None
    if source is not None and values is not None:
        order = Order(1, *_canonical(source.dtype), descending)
        if values is source:
            return Sorted((keys, source), order)
        if not descending and (numbers := _packed_with(values, source)) is not None:
            return Sorted((keys, source, numbers), order, _width(numbers))
    return Sorted(op.operands, Order(0, *_by_value(keys.dtype), descending))


def sort_rows(op: Op, keys: np.ndarray, *values: np.ndarray) -> tuple[np.ndarray, ...]:
    """The reference: a `radix-sort` of operands' values."""
    order = order_of_rows(np.where(keys == 0, 0, keys), op.attrs["descending"])
    found = [np.take_along_axis(x, order, -1) for x in (keys, *values)]
    return *found, np.zeros(op.shape.elements[-1].dims, np.uint8)


# ---- scalars that an order is of -----------------------------------------------------------------


def _by_value(dtype: str) -> tuple[Op, Op]:
    """An element and its key as CUB sees it."""
    x = Op("parameter", Shape(dtype), attrs={"index": 0})
    return x, _zero_is_zero(x) if dtype in FLOATS else x


def _canonical(dtype: str) -> tuple[Op, Op]:
    """An element and its key as JAX compares floats."""
    x = Op("parameter", Shape(dtype), attrs={"index": 0})
    return x, _selected("NE", x, x, _constant(np.nan, dtype), _zero_is_zero(x))


def _zero_is_zero(x: Op) -> Op:
    zero = _constant(0, x.dtype)
    return _selected("EQ", x, zero, zero, x)


def _selected(direction: str, left: Op, right: Op, then: Op, otherwise: Op) -> Op:
    attrs = {"direction": direction, "total_order": False}
    condition = Op("compare", Shape("pred"), (left, right), attrs)
    return Op("select", then.shape, (condition, then, otherwise))


def _constant(value: float, dtype: str) -> Op:
    return Op("constant", Shape(dtype), attrs={"value": np.asarray(value, NUMPY_DTYPES[dtype])})


# ---- what XLA makes of floats --------------------------------------------------------------------


def _floats_of(keys: Op) -> Op | None:
    """The floats that integers are made of in their order, -0 as 0 and NaN as one number; None for
    any other keys."""
    if keys.opcode != "select":
        return None
    negative, inverted, flipped = keys.operands
    if inverted.opcode != "not" or inverted.operands[0].opcode != "bitcast-convert":
        return None
    [bits] = inverted.operands
    [value] = bits.operands
    if value.dtype not in FLOATS or value.opcode != "select":
        return None
    below = negative.opcode == "compare" and negative.attrs["direction"] == "LT"
    if not below or negative.operands[0] is not value or not is_all(negative.operands[1], 0):
        return None
    if flipped.opcode != "xor" or bits not in flipped.operands:
        return None
    if not is_all(flipped.operands[flipped.operands[0] is bits], 1 << _width(bits) - 1):
        return None
    x = value
    while x.opcode == "select" and folded(Order(0, x, value, False)) != CANONICAL:
        x = x.operands[2]
    return x if folded(Order(0, x, value, False)) == CANONICAL else None


def _packed_with(words: Op, source: Op) -> Op | None:
    """The numbers in the low bits of words that have the bits of `source` above; None for any other
    words."""
    if words.opcode != "or":
        return None
    shifted, low = words.operands
    if shifted.opcode != "shift-left" or low.opcode != "convert":
        return None
    high, by = shifted.operands
    [numbers] = low.operands
    if numbers.dtype not in ("u16", "u32") or not is_all(by, _width(numbers)):
        return None
    if high.opcode != "convert" or high.operands[0].opcode != "bitcast-convert":
        return None
    return numbers if high.operands[0].operands[0] is source else None


def _width(x: Op) -> int:
    """Bits of an element."""
    return 8 * NUMPY_DTYPES[x.dtype].itemsize
