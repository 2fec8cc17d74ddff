"""Index maps: where each op reads its operands, given the index of the result element.

The one table behind fusion of data movement: the tracer walks it to find which axes follow which,
the emitter walks it to print the addresses, so that a transpose or a slice inside a kernel is free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from codegen.index import Index, delinearize, linearize
from hlo.errors import CodegenError
from hlo.graph import Op
from hlo.semantics import Kind, kind_of

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


@dataclass(frozen=True)
class Read:
    """Operand number `operand` is read at `index` if all `guards` hold."""

    operand: int
    index: Indices
    guards: tuple[Guard, ...] = ()


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
    return op.opcode in ("pad", "concatenate")


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
    for number, operand in enumerate(op.operands):
        extent = operand.dims[axis]
        here = index[axis] - start
        guard = Guard(here, 0, extent)
        start += extent
        if guard.never:
            continue
        place = here if extent > 1 else Index()
        source = (*index[:axis], place, *index[axis + 1 :])
        last = here.hi < extent  # earlier pieces took what lies below
        found.append(Read(number, source, () if last else (guard,)))
        if last:
            break
    return found


_MAPS: Mapping[str, Callable[[Op, Indices], list[Read]]] = {
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "slice": _slice,
    "reverse": _reverse,
    "pad": _pad,
    "concatenate": _concatenate,
    "iota": lambda op, index: [],
    "constant": lambda op, index: [],
}
