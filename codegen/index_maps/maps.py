"""Index maps: where each op reads its operands, given the index of the result element.

Fusion of data movement rests on this one table. The tracer walks it to find which axes follow
which, and the emitter walks it to print the addresses. So a transpose or a slice inside a kernel is
free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.index_maps.index import Index, constant, delinearize, fetched, linearize
from fusionstitch.costmodel.work import PICKS
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import INTEGERS, Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.semantics import Kind, kind_of

Indices = tuple[Index, ...]


@dataclass(frozen=True)
class Guard:
    """The condition lower <= index < upper and, with a stride, index % stride == 0."""

    index: Index
    lower: int
    upper: int
    stride: int = 1

    @property
    def always(self) -> bool:
        return self.lower <= self.index.lo and self.index.hi < self.upper and self.stride == 1

    @property
    def never(self) -> bool:
        return self.index.hi < self.lower or self.upper <= self.index.lo

    @property
    def share(self) -> float:
        """Of all values between the ends of the index, those for which it holds."""
        first, last = max(self.lower, self.index.lo), min(self.upper - 1, self.index.hi)
        return max(0, last - first + 1) / (self.index.hi - self.index.lo + 1) / self.stride


@dataclass(frozen=True)
class Read:
    """Operand number `operand` is read at `index` if all `guards` hold."""

    operand: int
    index: Indices
    guards: tuple[Guard, ...] = ()

    @property
    def share(self) -> float:
        """How many of the elements are read so, about."""
        return math.prod(guard.share for guard in self.guards)


def reads(op: Op, index: Indices) -> list[Read]:
    """What result element `index` of a movement or elementwise op reads.

    Several guarded reads are alternatives in order; the last one needs no guard.
    """
    rule = _MAPS.get(op.opcode)
    if rule is not None:
        return rule(op, index)
    if kind_of(op.opcode) is not Kind.ELEMENTWISE:
        raise CodegenError(f"{op.opcode} cannot be computed inside a kernel: leave it to XLA.")
    for operand in op.operands:
        if operand.dims not in ((), op.dims):
            raise CodegenError(
                f"{op.opcode} from {operand.shape} to {op.shape} regroups bytes: leave it to XLA."
            )
    return [Read(i, index if operand.shape.rank else ()) for i, operand in enumerate(op.operands)]


def is_branching(op: Op) -> bool:
    """True if the reads of `op` are alternatives rather than arguments."""
    return op.opcode in ("pad", "concatenate", "dynamic-update-slice")


def arguments(op: Op, index: Indices) -> list[tuple[Op, Indices]]:
    """Every value that result element `index` depends on: what it reads, and the integers that
    say where."""
    found: list[tuple[Op, Indices]] = []
    for read in reads(op, index):
        fetches = [fetched for i in read.index for fetched in i.fetched]
        fetches += [fetched for guard in read.guards for fetched in guard.index.fetched]
        if fetches:
            found += [(fetched.op, fetched.at) for fetched in dict.fromkeys(fetches)]
        found.append((op.operands[read.operand], read.index))
    return found


def _broadcast(op: Op, index: Indices) -> list[Read]:
    return [Read(0, tuple(index[d] for d in op.attrs["dimensions"]))]


def _transpose(op: Op, index: Indices) -> list[Read]:
    source: list[Index] = [Index()] * len(index)
    for result_dim, operand_dim in enumerate(op.attrs["dimensions"]):
        source[operand_dim] = index[result_dim]
    return [Read(0, tuple(source))]


def _reshape(op: Op, index: Indices) -> list[Read]:
    return [Read(0, delinearize(linearize(index, op.dims), op.operands[0].dims))]


def _slice(op: Op, index: Indices) -> list[Read]:
    starts, strides = op.attrs["start"], op.attrs["stride"]
    return [Read(0, tuple(i * k + s for i, s, k in zip(index, starts, strides, strict=True)))]


def _reverse(op: Op, index: Indices) -> list[Read]:
    flipped = op.attrs["dimensions"]
    return [
        Read(
            0,
            tuple(
                i * -1 + (dim - 1) if d in flipped else i
                for d, (i, dim) in enumerate(zip(index, op.dims, strict=True))
            ),
        )
    ]


def _pad(op: Op, index: Indices) -> list[Read]:
    low, interior = op.attrs["low"], op.attrs["interior"]
    source: list[Index] = []
    guards: list[Guard] = []
    for d, (i, dim) in enumerate(zip(index, op.operands[0].dims, strict=True)):
        if low[d] == interior[d] == 0 <= i.lo and i.hi < dim:  # not padded here
            source.append(i if dim > 1 else Index())
            continue
        shifted = i - low[d]
        stride = interior[d] + 1
        guard = Guard(shifted, 0, (dim - 1) * stride + 1, stride)
        if guard.never:
            return [Read(1, ())]
        if not guard.always:
            guards.append(guard)
        source.append(shifted // stride if dim > 1 else Index())
    if not guards:
        return [Read(0, tuple(source))]
    return [Read(0, tuple(source), tuple(guards)), Read(1, ())]


def _concatenate(op: Op, index: Indices) -> list[Read]:
    axis = op.attrs["dimension"]
    found: list[Read] = []
    start = 0
    along = index[axis]
    for number, operand in enumerate(op.operands):
        extent = operand.dims[axis]
        first, start = start, start + extent
        if along.hi < first or start <= along.lo:
            continue
        inner = along - first if extent > 1 else Index()
        source = (*index[:axis], inner, *index[axis + 1 :])
        if along.hi < start:  # earlier parts took what lies below
            found.append(Read(number, source))
            break
        found.append(Read(number, source, (within(along, along.lo, start),)))
    return found


def within(index: Index, lower: int, upper: int) -> Guard:
    """lower <= index < upper, without the terms that cannot decide it: 32 i + j < 128 is i < 4 if
    j < 32. A bound that always holds decides nothing."""
    bounds = [lower] if index.lo < lower else []
    bounds += [upper] if index.hi >= upper else []
    units = {abs(c) for _, c in index.terms if not any(bound % c for bound in bounds)}
    for unit in sorted(units, reverse=True):
        low = Index(tuple((t, c) for t, c in index.terms if c % unit), index.const % unit)
        if low.lo >= 0 and low.hi < unit:
            high = tuple((t, c // unit) for t, c in index.terms if c % unit == 0)
            index, upper = Index(high, index.const // unit), -(-upper // unit)
            lower //= unit
            break
    return Guard(index, lower, upper)


def _windows(op: Op, index: Indices) -> list[Read]:
    """Dims of the operand, stepped over, and after them those of a window."""
    rank = op.operands[0].shape.rank
    source = [i * k for i, k in zip(index[:rank], op.attrs["stride"], strict=True)]
    for d, i, k in zip(op.attrs["along"], index[rank:], op.attrs["dilation"], strict=True):
        source[d] = source[d] + i * k
    return [Read(0, tuple(source))]


# ---- indices that the data decides ---------------------------------------------------------------


def _gather(op: Op, index: Indices) -> list[Read]:
    attrs, x = op.attrs, op.operands[0]
    offset_dims, vector_dim = attrs["offset_dims"], attrs["index_vector_dim"]
    batch = [i for d, i in enumerate(index) if d not in offset_dims]
    offsets = iter([index[d] for d in offset_dims])
    source: list[Index] = []
    for d, (n, size) in enumerate(zip(x.dims, attrs["slice_sizes"], strict=True)):
        start = Index()
        if d in attrs["start_index_map"]:
            at = list(batch)
            if vector_dim < op.operands[1].shape.rank:
                at.insert(vector_dim, constant(attrs["start_index_map"].index(d)))
            start = position(op.operands[1], tuple(at), n - size + 1)
        elif d in attrs["operand_batching_dims"]:
            which = attrs["operand_batching_dims"].index(d)
            along = attrs["start_indices_batching_dims"][which]
            start = batch[along - (along > vector_dim)]
        dropped = d in attrs["collapsed_slice_dims"] or d in attrs["operand_batching_dims"]
        source.append(start if dropped else start + next(offsets))
    return [Read(0, tuple(source))]


def _dynamic_slice(op: Op, index: Indices) -> list[Read]:
    x, *starts = op.operands
    extents = [n - size + 1 for n, size in zip(x.dims, op.dims, strict=True)]
    moved = [position(s, (), extent) for s, extent in zip(starts, extents, strict=True)]
    return [Read(0, tuple(i + start for i, start in zip(index, moved, strict=True)))]


def _dynamic_update_slice(op: Op, index: Indices) -> list[Read]:
    _, update, *starts = op.operands
    source: list[Index] = []
    guards: list[Guard] = []
    for i, start, n, size in zip(index, starts, op.dims, update.dims, strict=True):
        shifted = i - position(start, (), n - size + 1)
        guard = Guard(shifted, 0, size)
        if guard.never:
            return [Read(0, index)]
        if not guard.always:
            guards.append(guard)
        source.append(shifted if size > 1 else Index())
    inside = Read(1, tuple(source), tuple(guards))
    return [inside, Read(0, index)] if guards else [inside]


def position(op: Op, at: Indices, extent: int) -> Index:
    """Element `at` of an integer op, moved into [0, extent) as XLA does with starts of slices."""
    found = known(op, at)
    if found is not None and not found.terms:
        return constant(min(max(found.const, 0), extent - 1))
    if found is not None and found.lo >= 0 and found.hi < extent:
        return found
    while kind_of(op.opcode) is Kind.MOVEMENT and op.opcode not in PICKS:
        [read, *others] = reads(op, at)
        if others:
            break
        op, at = op.operands[read.operand], read.index
    return fetched(op, at, extent)


#: Ops looked through to find out that an integer is known.
_DEEPEST = 12


def known(op: Op, index: Indices, depth: int = _DEEPEST) -> Index | None:
    """The integer that element `index` of `op` holds, where no array decides it."""
    found = _integer(op, index, depth - 1) if depth else None
    if found is None or op.dtype not in INTEGERS:
        return None
    limits = np.iinfo(NUMPY_DTYPES[op.dtype])
    return found if limits.min <= found.lo and found.hi <= limits.max else None


def _integer(op: Op, index: Indices, depth: int) -> Index | None:
    if op.opcode == "iota":
        return index[op.attrs["dimension"]]
    if op.opcode == "parameter":  # what counts the iterations of a loop says what it holds
        return annotations_of(op).counts
    if op.opcode == "constant":
        if any(i.terms for i in index):
            return None
        return constant(int(op.attrs["value"][tuple(i.const for i in index)]))
    if op.opcode == "convert":
        return known(op.operands[0], index, depth)
    if op.opcode in ("add", "subtract"):
        left, right = (known(o, index, depth) for o in op.operands)
        if left is None or right is None:
            return None
        return left + right if op.opcode == "add" else left - right
    if op.opcode == "clamp":
        low, x, high = (known(o, index if o.shape.rank else (), depth) for o in op.operands)
        if low is None or x is None or high is None:
            return None
        return x if low.hi <= x.lo and x.hi <= high.lo else None
    if op.opcode == "select":  # negative numbers count from the end: known ones are decided here
        which = op.operands[0]
        negative = _is_negative(which, index if which.shape.rank else (), depth)
        return None if negative is None else known(op.operands[1 if negative else 2], index, depth)
    if kind_of(op.opcode) is Kind.MOVEMENT:
        [first, *others] = reads(op, index)
        return None if others else known(op.operands[first.operand], first.index, depth)
    return None


def _is_negative(which: Op, index: Indices, depth: int) -> bool | None:
    """What a comparison `x < 0` says of a known x."""
    if which.opcode != "compare" or which.attrs["direction"] != "LT":
        return None
    x, zero = (known(o, index, depth) for o in which.operands)
    if x is None or zero != Index() or x.lo < 0 <= x.hi:
        return None
    return x.hi < 0


_MAPS: Mapping[str, Callable[[Op, Indices], list[Read]]] = {
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "slice": _slice,
    "reverse": _reverse,
    "pad": _pad,
    "concatenate": _concatenate,
    "windows": _windows,
    "gather": _gather,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "iota": lambda op, index: [],
    "constant": lambda op, index: [],
}


def in_range(op: Op, index: Indices) -> bool:
    """True if an index is known to lie inside a value, whatever the conditions around it say."""
    return all(
        i.lo >= 0 and i.hi < dim and i.is_certain for i, dim in zip(index, op.dims, strict=True)
    )
