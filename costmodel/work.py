"""How much work an op or a fused set of ops is: bytes and operations, one rule per kind of op."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from fusionstitch.costmodel.prices import OpCosts
from fusionstitch.hlo.brief import brief
from fusionstitch.hlo.graph import INTEGERS, ITEM_BYTES, Op, Shape
from fusionstitch.hlo.semantics import Kind, kind_of

#: Types of which tensor cores multiply elements as they are.
HALVES = frozenset({"bf16", "f16"})


@dataclass(frozen=True)
class Work:
    """The work of one kernel.

    Bytes: `bytes_read` and `bytes_written` cross DRAM, `l2_bytes` are intermediates and re-reads
    that fit L2. Operations: `flops` (f16, bf16 and f32 arithmetic), `flops64` (f64), `int_ops`,
    `special` (special-function unit), `dot_flops` (dots on the FMA units), `tensor_flops` (dots on
    tensor cores). `blocks` run at the same time.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    l2_bytes: int = 0
    flops: int = 0
    flops64: int = 0
    special: int = 0
    int_ops: int = 0
    dot_flops: int = 0
    tensor_flops: int = 0
    blocks: int = 0

    def __repr__(self) -> str:
        known = ((field.name, getattr(self, field.name)) for field in fields(self))
        return brief(f"Work {', '.join(f'{name} {amount}' for name, amount in known if amount)}")

    def __add__(self, other: Work) -> Work:
        """Both in one launch, side by side: amounts and blocks add up."""
        return Work(
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.l2_bytes + other.l2_bytes,
            self.flops + other.flops,
            self.flops64 + other.flops64,
            self.special + other.special,
            self.int_ops + other.int_ops,
            self.dot_flops + other.dot_flops,
            self.tensor_flops + other.tensor_flops,
            self.blocks + other.blocks,
        )

    @property
    def bytes(self) -> int:
        """DRAM traffic."""
        return self.bytes_read + self.bytes_written


NOTHING = Work()


def _arithmetic(op: Op, costs: OpCosts) -> Work:
    dtype = op.operands[0].dtype if op.operands else op.dtype
    one, size = costs.price(op.opcode, dtype), op.shape.size
    return Work(
        flops=one.flops * size,
        flops64=one.flops64 * size,
        special=one.special * size,
        int_ops=int(one.int_ops * size),
    )


def _movement(op: Op, _: OpCosts) -> Work:
    """An index computation per element, where the element order changes."""
    return NOTHING if op.opcode in _PLAIN_INDEX else Work(int_ops=op.shape.size)


def _reduction(op: Op, _: OpCosts) -> Work:
    size = max(o.shape.size for o in op.operands)
    if op.operands[0].dtype == "f64":
        return Work(flops64=size)
    return Work(int_ops=size) if op.operands[0].dtype in INTEGERS else Work(flops=size)


def _window(op: Op, _: OpCosts) -> Work:
    """Every element of every window; running reductions go in two levels of blocks."""
    result = op.shape.elements[0] if op.shape.is_tuple else op.shape
    steps = math.prod(op.attrs["size"]) if op.opcode == "reduce-window" else LONGEST_WALK
    steps = min(steps, LONGEST_WALK) if op.attrs["reducer"] else steps
    size = result.size * steps
    if result.dtype == "f64":
        return Work(flops64=size, int_ops=size)
    return Work(flops=size, int_ops=size)


def _dot(op: Op, _: OpCosts) -> Work:
    flops = dot_flops(op)
    if op.dtype == "f64":
        return Work(flops64=flops)
    if all(x.dtype in HALVES for x in op.operands):
        return Work(tensor_flops=flops)
    return Work(dot_flops=flops)


def _none(op: Op, _: OpCosts) -> Work:
    return NOTHING


#: Steps an element of a window that covers all before it takes at most.
LONGEST_WALK = 64

#: Arithmetic of one op, by kind.
RULES: Mapping[Kind, Callable[[Op, OpCosts], Work]] = {
    Kind.SOURCE: _none,
    Kind.STRUCTURE: _none,
    Kind.ELEMENTWISE: _arithmetic,
    Kind.MOVEMENT: _movement,
    Kind.UPDATE: _movement,
    Kind.REDUCTION: _reduction,
    Kind.WINDOW: _window,
    Kind.DOT: _dot,
    Kind.FACTOR: _none,
    Kind.CONVOLUTION: _none,
    Kind.SORT: _none,
    Kind.PARTITION: _none,
}

#: Movement whose index is the loop's own or a dropped dim of it.
_PLAIN_INDEX = frozenset({"broadcast", "reshape", "bitcast"})

#: Opcodes whose first operand is read only where the result takes from it,
READS_PART = frozenset({"slice", "dynamic-slice", "gather"})
#: and those among them whose indices the data decides: only the picked elements are computed.
PICKS = frozenset({"dynamic-slice", "gather"})
#: DRAM is read in pieces of so many bytes, and caches hold lines of so many.
SECTOR_BYTES, LINE_BYTES = 32, 128


def dot_flops(dot: Op) -> int:
    """FLOPs of a dot, all batch entries: 2 * result elements * contracted elements."""
    lhs = dot.operands[0]
    return 2 * dot.shape.size * math.prod(lhs.dims[d] for d in dot.attrs["lhs_contract"])


def dot_extents(dot: Op) -> tuple[int, int, int, int]:
    """Batch entries of a dot; of each one the rows, the columns and the contracted elements."""
    lhs, rhs = dot.operands
    batch = math.prod(lhs.dims[d] for d in dot.attrs["lhs_batch"])
    depth = math.prod(lhs.dims[d] for d in dot.attrs["lhs_contract"])
    shared = max(1, batch * depth)
    return batch, lhs.shape.size // shared, rhs.shape.size // shared, depth


def touched_bytes(op: Op, operand: Op) -> int:
    """Bytes of `operand` that `op` reads."""
    whole = operand.shape.bytes
    if op.opcode in READS_PART and op.operands[0] is operand:
        picked = Shape(operand.dtype, op.dims).bytes
        return min(whole, _in_sectors(picked, op))
    if op.opcode == "dynamic-update-slice" and op.operands[0] is operand:
        return max(0, whole - op.operands[1].shape.bytes)
    return whole


def _in_sectors(picked: int, op: Op) -> int:
    """`picked` bytes with each run of neighbours brought up to whole sectors. Of elements that lie
    less than a sector apart, what lies between is read, too."""
    x = op.operands[0]
    sizes = op.attrs["slice_sizes"] if op.opcode == "gather" else op.dims
    strides = op.attrs["stride"] if op.opcode == "slice" else (1,) * len(sizes)
    run = ITEM_BYTES[x.dtype]
    for size, n, stride in zip(reversed(sizes), reversed(x.dims), reversed(strides), strict=True):
        if stride > 1:
            return picked // max(1, run) * min(stride * run, _whole_sectors(run))
        run *= size
        if size < n:
            break
    return picked // max(1, run) * _whole_sectors(run)


def _whole_sectors(run: int) -> int:
    return -(-run // SECTOR_BYTES) * SECTOR_BYTES


def computed_elements(ops: Sequence[Op], outputs: Iterable[Op]) -> dict[Op, int]:
    """How many elements of each of `ops` (topological) a kernel computes that writes `outputs`:
    all, unless only what slices and `PICKS` take from it is needed. Slices take different ones."""
    if not any(op.opcode in READS_PART for op in ops):
        return {op: op.shape.size for op in ops}
    inside, whole = set(ops), set(outputs)
    needed: dict[Op, int] = dict.fromkeys(ops, 0)
    sliced = dict.fromkeys(ops, 0)
    for op in reversed(ops):
        size = op.shape.size
        if op in whole:
            needed[op] = size
        count = needed[op] = min(max(needed[op], sliced[op]), size)
        for operand in dict.fromkeys(op.operands):
            if operand not in inside:
                continue
            if op.opcode == "slice":
                sliced[operand] += count
                continue
            read = operand.shape.size if count == size else _elements_for(op, operand, count)
            if op.opcode in PICKS and operand is op.operands[0]:
                read = count
            needed[operand] = max(needed[operand], read)
    return needed


def _elements_for(op: Op, operand: Op, count: int) -> int:
    """Elements of `operand` that `count` elements of `op` need."""
    if kind_of(op.opcode) in (Kind.REDUCTION, Kind.DOT):
        return operand.shape.size * count // op.shape.size
    return operand.shape.size if kind_of(op.opcode) is Kind.WINDOW else count


def arithmetic(op: Op, costs: OpCosts) -> Work:
    """The operations of one op, no bytes."""
    return RULES[kind_of(op.opcode)](op, costs)


def partial(work: Work, count: int, size: int) -> Work:
    """The arithmetic of `count` of `size` elements."""
    if count == size:
        return work
    return Work(
        flops=work.flops * count // size,
        flops64=work.flops64 * count // size,
        special=work.special * count // size,
        int_ops=work.int_ops * count // size,
        dot_flops=work.dot_flops * count // size,
        tensor_flops=work.tensor_flops * count // size,
    )


def needed_bytes(op: Op, operand: Op, count: int) -> int:
    """Bytes of `operand` that `count` elements of `op` read."""
    touched = touched_bytes(op, operand)
    if count == op.shape.size:
        return touched
    if kind_of(op.opcode) in (Kind.REDUCTION, Kind.DOT):
        return touched * count // op.shape.size
    return min(touched, count * SECTOR_BYTES)


def op_bytes(op: Op) -> int:
    """Bytes that one op as a kernel of its own moves: each distinct operand in, the result out."""
    return op.shape.bytes + sum(
        touched_bytes(op, operand) for operand in dict.fromkeys(op.operands)
    )


def op_work(op: Op, costs: OpCosts) -> Work:
    """One op as a kernel of its own: each distinct operand in, the result out."""
    return fused_work([op], [op], costs)


def fused_work(ops: Sequence[Op], outputs: Iterable[Op], costs: OpCosts) -> Work:
    """`ops` as one kernel that keeps every intermediate on chip: distinct inputs in, `outputs` out.

    An input read only in parts (slices) counts what is touched.
    """
    outputs = list(outputs)
    counts = computed_elements(ops, outputs)
    read: dict[Op, int] = {}
    total = NOTHING
    for op in ops:
        total += partial(arithmetic(op, costs), counts[op], op.shape.size)
        for operand in dict.fromkeys(op.operands):
            if operand not in counts:
                touched = read.get(operand, 0) + needed_bytes(op, operand, counts[op])
                read[operand] = min(touched, operand.shape.bytes)
    written = sum(op.shape.bytes for op in outputs)
    return replace(total, bytes_read=sum(read.values()), bytes_written=written)
