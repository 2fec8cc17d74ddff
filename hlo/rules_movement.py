"""Rules of ops that only move elements."""

from __future__ import annotations

from typing import Any

from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.rewrite import Make, RuleBook, splat

MOVEMENT = RuleBook()
rule = MOVEMENT.rule


def _identity(rank: int) -> tuple[int, ...]:
    return tuple(range(rank))


def _without_ones(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in dims if n != 1)


@rule("reshape", "bitcast", "copy", "slice", "dynamic-slice")
def same_shape(op: Op) -> Op | None:
    """move(x: T): T -> x, for moves that keep the order of elements"""
    x = op.operands[0]
    return x if x.shape == op.shape else None


@rule("transpose", "broadcast")
def same_elements(op: Op) -> Op | None:
    """transpose(x, dims (0, 1, ...)) -> x; the same for a broadcast to x's own shape"""
    x = op.operands[0]
    unmoved = op.attrs["dimensions"] == _identity(op.shape.rank)
    return x if unmoved and x.shape == op.shape else None


@rule("reverse")
def reverse_of_ones(op: Op) -> Op | None:
    """reverse(x) over dimensions of size 1 -> x"""
    return op.operands[0] if all(op.dims[d] == 1 for d in op.attrs["dimensions"]) else None


@rule("pad")
def pad_by_nothing(op: Op) -> Op | None:
    """pad(x) by no element anywhere -> x"""
    edges = (*op.attrs["low"], *op.attrs["high"], *op.attrs["interior"])
    return None if any(edges) else op.operands[0]


@rule("concatenate")
def concatenate_one(op: Op) -> Op | None:
    """concatenate(x) -> x"""
    return op.operands[0] if len(op.operands) == 1 else None


@rule("dynamic-update-slice")
def update_all(op: Op) -> Op | None:
    """dynamic-update-slice(x: T, update: T) -> update"""
    update = op.operands[1]
    return update if update.shape == op.shape else None


@rule("bitcast")
def bitcast_to_reshape(op: Op) -> Make:
    """bitcast(x) -> reshape(x), both being row-major"""
    return Make("reshape", op.operands)


@rule("reshape")
def reshape_of_reshape(op: Op) -> Make | None:
    """reshape(reshape(x)) -> reshape(x)"""
    x = op.operands[0]
    return Make("reshape", x.operands) if x.opcode == "reshape" else None


@rule("transpose")
def transpose_of_transpose(op: Op) -> Make | None:
    """transpose(transpose(x, p), q) -> transpose(x, p after q)"""
    inner = op.operands[0]
    if inner.opcode != "transpose":
        return None
    dims = tuple(inner.attrs["dimensions"][d] for d in op.attrs["dimensions"])
    return Make("transpose", inner.operands, {"dimensions": dims})


@rule("transpose")
def transpose_of_ones(op: Op) -> Make | None:
    """transpose(x) that moves only dimensions of size 1 -> reshape(x)"""
    dims = [d for d in op.attrs["dimensions"] if op.operands[0].dims[d] != 1]
    return Make("reshape", op.operands) if dims == sorted(dims) else None


@rule("broadcast")
def broadcast_of_broadcast(op: Op) -> Make | None:
    """broadcast(broadcast(x, p), q) -> broadcast(x, q after p)"""
    inner = op.operands[0]
    if inner.opcode != "broadcast":
        return None
    dims = tuple(op.attrs["dimensions"][d] for d in inner.attrs["dimensions"])
    return Make("broadcast", inner.operands, {"dimensions": dims})


@rule("broadcast")
def broadcast_to_ones(op: Op) -> Make | None:
    """broadcast(x) that only adds dimensions of size 1 -> reshape(x)"""
    dims, x = op.attrs["dimensions"], op.operands[0]
    keeps_order = list(dims) == sorted(dims)
    return Make("reshape", (x,)) if keeps_order and x.shape.size == op.shape.size else None


@rule("broadcast")
def broadcast_of_added_ones(op: Op) -> Make | None:
    """broadcast(reshape(x)) where the reshape only adds dimensions of size 1 -> broadcast(x)"""
    inner = op.operands[0]
    if inner.opcode != "reshape":
        return None
    x = inner.operands[0]
    found = _match_ones(x.dims, inner.dims)
    if found is None:
        return None
    return Make("broadcast", (x,), {"dimensions": tuple(op.attrs["dimensions"][d] for d in found)})


@rule("reshape")
def reshape_of_broadcast(op: Op) -> Make | None:
    """reshape(broadcast(x)) -> broadcast(x), for a scalar x or a reshape that only moves ones"""
    inner = op.operands[0]
    if inner.opcode != "broadcast":
        return None
    [x] = inner.operands
    if x.shape.rank == 0:
        return Make("broadcast", (x,), {"dimensions": ()})
    if _without_ones(inner.dims) != _without_ones(op.dims):
        return None
    # the n-th dimension that is not of size 1 before is the n-th such one after
    targets = [d for d, n in enumerate(op.dims) if n != 1]
    sized = [d for d, n in enumerate(inner.dims) if n != 1]
    moved = dict(zip(sized, targets, strict=True))
    dims = inner.attrs["dimensions"]
    if not all(d in moved for d in dims):
        return None
    return Make("broadcast", (x,), {"dimensions": tuple(moved[d] for d in dims)})


@rule("transpose")
def transpose_of_broadcast(op: Op) -> Make | None:
    """transpose(broadcast(x)) -> broadcast(x), if x's dimensions keep their order"""
    inner = op.operands[0]
    if inner.opcode != "broadcast":
        return None
    dims = tuple(op.attrs["dimensions"].index(d) for d in inner.attrs["dimensions"])
    keeps_order = list(dims) == sorted(dims)
    return Make("broadcast", inner.operands, {"dimensions": dims}) if keeps_order else None


@rule("slice", "dynamic-slice", "reverse")
def cut_of_splat(op: Op) -> Make | None:
    """slice(broadcast(c)) -> broadcast(c), for a scalar constant c"""
    inner = op.operands[0]
    if inner.opcode != "broadcast" or splat(inner) is None or inner.operands[0].shape.rank:
        return None
    # starts that are computed would be dependences that the proto keeps
    if any(splat(start) is None for start in op.operands[1:]):
        return None
    return Make("broadcast", inner.operands, {"dimensions": ()})


@rule("slice")
def slice_of_slice(op: Op) -> Make | None:
    """slice(slice(x)) -> slice(x)"""
    inner = op.operands[0]
    if inner.opcode != "slice":
        return None
    first, second = inner.attrs, op.attrs
    start, limit, stride = [], [], []
    for d in range(op.shape.rank):
        start.append(first["start"][d] + second["start"][d] * first["stride"][d])
        stride.append(first["stride"][d] * second["stride"][d])
        last = start[-1] + max(op.dims[d] - 1, 0) * stride[-1]
        limit.append(last + 1 if op.dims[d] else start[-1])
    if any(s > n for s, n in zip(limit, inner.operands[0].dims, strict=True)):
        return None  # an empty slice after the end
    bounds = {"start": tuple(start), "limit": tuple(limit), "stride": tuple(stride)}
    return Make("slice", inner.operands, bounds)


@rule("slice")
def slice_of_concatenate(op: Op) -> Op | None:
    """slice(concatenate(x, y)) that cuts out all of x -> x"""
    inner = op.operands[0]
    if inner.opcode != "concatenate":
        return None
    axis, begin = inner.attrs["dimension"], 0
    for part in inner.operands:
        if part.shape == op.shape and op.attrs["start"][axis] == begin:
            contiguous = op.attrs["limit"][axis] == begin + part.dims[axis]
            return part if contiguous and part.dims[axis] else None
        begin += part.dims[axis]
    return None


@rule("dynamic-slice")
def slice_at_constants(op: Op) -> Make | None:
    """dynamic-slice(x, constants) -> slice(x)"""
    x, *starts = op.operands
    begins: list[Any] = [splat(start) for start in starts]
    if any(begin is None for begin in begins):
        return None
    bounds = zip(begins, x.dims, op.dims, strict=True)
    start = tuple(min(max(int(begin), 0), n - size) for begin, n, size in bounds)
    limit = tuple(s + size for s, size in zip(start, op.dims, strict=True))
    stride = (1,) * op.shape.rank
    return Make("slice", (x,), {"start": start, "limit": limit, "stride": stride})


def _match_ones(before: tuple[int, ...], after: tuple[int, ...]) -> list[int] | None:
    """For each dimension before the reshape its number after it, if the reshape only adds
    dimensions of size 1."""
    found: list[int] = []
    d = 0
    for n in before:
        while d < len(after) and after[d] != n:
            if after[d] != 1:
                return None
            d += 1
        if d == len(after):
            return None
        found.append(d)
        d += 1
    return found if all(n == 1 for n in after[d:]) else None
