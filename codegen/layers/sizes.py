"""How many warps a block of layers has, and what lies where in its shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.dots.streams import item_bytes
from fusionstitch.codegen.dots.tile import TENSOR_GROUPS, TENSOR_ROWS
from fusionstitch.codegen.index_maps.index import variable
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.index_maps.vectors import ACCESS_BYTES
from fusionstitch.codegen.layers.columns import LANE_ROWS, PAIR, WARP_ROWS, Columns
from fusionstitch.codegen.layers.values import Layers, Role, Value, columns_of, side_of_rows
from fusionstitch.codegen.loops.stages import body_reads
from fusionstitch.codegen.text.types import TF32, compute_bytes
from fusionstitch.costmodel.devices import WARP, Device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Op

#: Words after which banks of shared memory repeat.
BANKS = 32
#: Elements between rows that are summed over, so that lanes read them from different banks.
BESIDE_ROW = 4
#: The most neighbours that a lane reads of a row that is summed over.
MOST_ACROSS = 4


@dataclass(frozen=True)
class Matrix:
    """What a product multiplies rows with, in shared memory: elements of a type, those that are
    summed over together, `stride` apart for each of `columns` results."""

    element: str
    inner: Columns
    outer: Columns
    stride: int
    offset: int

    @property
    def size(self) -> int:
        """Its elements, with those between."""
        return self.outer.padded * self.stride

    @property
    def words(self) -> int:
        """Words of an access."""
        return self.inner.lot * item_bytes(self.element) // 4


@dataclass(frozen=True)
class Outer:
    """A sum of products over rows, by the warps of a block: each has `high` by `wide` tiles of 16
    by 8 `across` sums; `down` warps are below each other, `beside` side by side. The rows of both
    operands lie in shared memory, `strides` apart."""

    element: str
    sides: tuple[Columns, Columns]
    extents: tuple[int, int]
    down: int
    beside: int
    high: int
    wide: int
    across: int
    strides: tuple[int, int]
    offsets: tuple[int, int]

    @property
    def words(self) -> int:
        """Words of an access to the right operand."""
        return self.across * item_bytes(self.element) // 4

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles of all warps, down and across."""
        left, right = self.sides
        return -(-left.padded // TENSOR_ROWS), right.tiles // self.across

    @property
    def empty(self) -> bool:
        """Whether half of the last tile down is beyond all columns of the left operand."""
        return bool(self.sides[0].padded % TENSOR_ROWS)

    @property
    def tile(self) -> int:
        """Sums of a lane in one tile."""
        return 2 * PAIR * self.across

    @property
    def depth(self) -> int:
        """Rows of one instruction."""
        return 32 // item_bytes(self.element)

    @property
    def held(self) -> int:
        """Sums of a lane."""
        return self.high * self.wide * self.tile


@dataclass(frozen=True, eq=False)
class Shape:
    """A block of layers: `warps` of 16 rows each; matrices, sums over rows and rows that other
    lanes read, by value, in so many bytes of shared memory. `totals` is where sums of lanes meet;
    `places` are those of each value's sums among all, `sums`. Each multiprocessor has `per_sm`
    blocks."""

    layers: Layers
    warps: int
    per_sm: int
    grid: int
    matrices: Mapping[Value, Matrix]
    outers: Mapping[Value, Outer]
    rows: Mapping[Value, tuple[int, int]]
    totals: int
    places: Mapping[Value, int]
    sums: int
    shared: int

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.warps * WARP

    @property
    def block_rows(self) -> int:
        """Rows of a block at a time."""
        return self.warps * WARP_ROWS

    @property
    def tiles(self) -> int:
        """So many rows are in all."""
        return -(-self.layers.rows // self.block_rows)


def element_of(value: Value) -> str:
    """The type in which tensor cores read the operands of a dot."""
    kinds = {o.dtype for o in value.op.operands}
    if annotations_of(value.op).tf32:
        return TF32
    return kinds.pop() if len(kinds) == 1 and kinds <= {"bf16", "f16"} else "f32"


def shaped(layers: Layers, device: Device, warps: int, per_sm: int) -> Shape:
    """Blocks of so many warps, of which so many are on a multiprocessor. Raises CodegenError where
    their shared memory does not suffice."""
    memory = _Memory()
    known: dict[object, Matrix] = {}
    matrices: dict[Value, Matrix] = {}
    for value in layers.with_role(Role.PRODUCT):
        key = element_of(value), *matrix_of(value)
        if key not in known:
            known[key] = _matrix(layers, value, memory)
        matrices[value] = known[key]
    rows: dict[Value, tuple[int, int]] = {}
    for value in layers.values:
        if value.scattered:
            stride = layers.of(value).padded + 1
            rows[value] = (
                memory.take(warps * WARP_ROWS * stride, compute_bytes(value.op.dtype)),
                stride,
            )
    # what follows is used one after the other
    begin, most = memory.end, memory.end
    outers: dict[Value, Outer] = {}
    for value in layers.with_role(Role.SUM):
        outers[value] = _outer(layers, value, warps, memory)
        most, memory.end = max(most, memory.end), begin
    for value in layers.with_role(Role.TOTAL):
        groups, size = warps * TENSOR_GROUPS, value.op.shape.size
        memory.take(
            groups * (layers.of(value).padded if size > 1 else 1), compute_bytes(value.op.dtype)
        )
        most, memory.end = max(most, memory.end), begin
    places, sums = {}, 0
    for value in layers.with_role(Role.SUM, Role.TOTAL):
        places[value] = sums
        sums += value.op.shape.size
    if (
        most > device.shared_per_block
        or per_sm * (most + device.reserved_shared) > device.shared_per_sm
    ):
        raise CodegenError(f"{layers.graph.name} needs {most} bytes of shared memory per block.")
    tiles = -(-layers.rows // (warps * WARP_ROWS))
    grid = min(tiles, per_sm * device.sm_count)
    return Shape(layers, warps, per_sm, grid, matrices, outers, rows, begin, places, sums, most)


def spread_over(layers: Layers, value: Value) -> int:
    """How many totals a lane has of so many groups of lanes that each would have otherwise: where
    registers are scarce, each group has a part of them."""
    own = layers.of(value).held // LANE_ROWS
    return TENSOR_GROUPS if layers.sparing and own >= TENSOR_GROUPS else 1


def totals_of(layers: Layers, value: Value) -> int:
    """How many totals of its lanes a warp has after all rows: of each of its groups of lanes a row,
    or a part of one, or one in all."""
    if value.op.shape.size == 1:
        return 1
    return TENSOR_GROUPS // spread_over(layers, value) * layers.of(value).padded


class _Memory:
    """Shared memory that is handed out from the begin on."""

    def __init__(self) -> None:
        self.end = 0

    def take(self, size: int, item: int) -> int:
        """Where so many elements of `item` bytes begin."""
        begin = self.end
        self.end += -(-size * item // ACCESS_BYTES) * ACCESS_BYTES
        return begin


def matrix_of(value: Value) -> tuple[Op, Indices]:
    """What a product multiplies rows with, at a column and a summed element: equal for products
    that have it in common."""
    columns, depth = value.size(value.free), value.size(value.along)
    at = (value.free, variable("column", columns)), (value.along, variable("depth", depth))
    return body_reads(value.op, *value.place(*at))[1 - side_of_rows(value)]


def _matrix(layers: Layers, value: Value, memory: _Memory) -> Matrix:
    """The matrix of a product. Four lanes read neighbouring lots of a column, and the next four
    those of the next one, from the banks after theirs."""
    element, inner = element_of(value), layers.columns(value.size(value.along))
    item = item_bytes(element)
    stride = inner.padded + (inner.unit - inner.padded) % (BANKS * 4 // item)
    outer = layers.of(value)
    return Matrix(element, inner, outer, stride, memory.take(outer.padded * stride, item))


def _outer(layers: Layers, value: Value, warps: int, memory: _Memory) -> Outer:
    """The sum of products over rows, shared by the warps of a block: as many as there are tiles of
    16 sums are below each other, the others side by side, with wide accesses if all have some."""
    element, sides = element_of(value), columns_of(value)
    item = item_bytes(element)
    high, wide = (value.size(side) for side in sides)
    left, right = (layers.columns(size) for size in (high, wide))
    down = min(warps, 1 << (-(-high // TENSOR_ROWS) - 1).bit_length())
    beside, across = warps // down, MOST_ACROSS
    while across * item > 4 and (right.tiles % across or right.tiles // across < beside):
        across //= 2
    whole = -(-left.padded // TENSOR_ROWS) * TENSOR_ROWS
    strides = whole + BESIDE_ROW, right.padded + BESIDE_ROW
    first, second = (memory.take(warps * WARP_ROWS * stride, item) for stride in strides)
    return Outer(
        element,
        (left, right),
        (high, wide),
        down,
        beside,
        -(-whole // (TENSOR_ROWS * down)),
        -(-right.tiles // (across * beside)),
        across,
        strides,
        (first, second),
    )
