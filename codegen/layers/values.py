"""What a region of layers is made of: which values lanes hold of each row, and what sums up rows.

    h[R, 64] = tanh(x[R, 9] w + b)     d[R, 64] = ...     dw[9, 64] = x^T d     db[64] = sum(d)

Every value either has the rows or sums them up. One with the rows is held by the lanes of its row,
or computed where it is read. A product with what has no rows gives a row from a row; sums along the
rows are added up from row to row. Index maps say which dims the rows are: those of the product that
is looked at first, and, wherever its rows are read or were made, the same place in the same order.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fusionstitch.codegen.index_maps.index import Index, Var, delinearize, linearize
from fusionstitch.codegen.index_maps.maps import Indices, is_branching
from fusionstitch.codegen.ir.types import FLOAT, computed
from fusionstitch.codegen.layers.columns import Columns
from fusionstitch.codegen.loops.stages import body_reads, closure, new_stage
from fusionstitch.codegen.rewrite.monoids import Monoid
from fusionstitch.codegen.text.types import C_TYPES
from fusionstitch.costmodel.work import HALVES
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of

#: Elements of a row that lanes hold, and summed elements of a product.
MOST_COLUMNS = 128
#: Operations from which a value that is read again is held; if registers do not suffice, those from
#: which it is then.
WORTH_HOLDING = (4, 24, 64)
#: Values that are computed where they are read, at most, since they have other rows.
MOST_INLINED = 64
#: Elements of a row that a reduction of a part of it visits for each result: written out.
MOST_WRITTEN_OUT = 16


class Role(enum.Enum):
    """What a value is to the rows."""

    PRODUCT = "a row times a matrix"
    FOLD = "all elements of a row joined"
    ELEMENTS = "computed element by element"
    SUM = "products of two rows, summed over all rows"
    TOTAL = "elements, summed over all rows"
    LATE = "computed from sums over all rows"


#: Roles of what has no rows any more.
ENDS = (Role.SUM, Role.TOTAL, Role.LATE)


@dataclass(eq=False)
class Value:
    """An op of a region with a loop of its own.

    `dims` and `inner` are its index variables; `rows` those that are the rows, `columns` the other
    ones, of the result. `reads` are the values that it reads and `loads` the inputs, at which
    index. One that is `scattered` is read at columns of other lanes. `stepwise`: its reads differ
    from step to step.
    """

    op: Op
    dims: Indices
    inner: Indices
    reads: list[tuple[Value, Indices]] = field(default_factory=list)
    loads: list[tuple[Op, Indices]] = field(default_factory=list)
    branches: bool = False
    is_output: bool = False
    rows: tuple[int, ...] = ()
    role: Role = Role.ELEMENTS
    scattered: bool = False
    stepwise: bool = False

    @property
    def all(self) -> Indices:
        """All of its index variables."""
        return (*self.dims, *self.inner)

    @property
    def extents(self) -> tuple[int, ...]:
        """How many values each of these has."""
        return tuple(i.hi + 1 for i in self.all)

    @property
    def free(self) -> list[int]:
        """The dims of the result that are not the rows."""
        return [d for d in range(len(self.dims)) if d not in self.rows]

    @property
    def along(self) -> list[int]:
        """The index variables that are not the rows, of what it sums up or is computed at."""
        if self.role in (Role.PRODUCT, Role.FOLD):
            return list(range(len(self.dims), len(self.all)))
        if self.role is Role.ELEMENTS:
            return self.free
        return [d for d in range(len(self.all)) if d not in self.rows]

    def size(self, positions: Sequence[int]) -> int:
        """How many values some index variables have together."""
        extents = self.extents
        return math.prod(extents[d] for d in positions)

    @property
    def visited(self) -> int:
        """Elements that one of the result is made of."""
        return self.size(range(len(self.dims), len(self.all)))

    def place(self, *known: tuple[Sequence[int], Index]) -> tuple[Indices, Indices]:
        """`dims` and `inner` where the index variables at some positions count up to what is given,
        and the others are as they are."""
        found, extents = list(self.all), self.extents
        for positions, at in known:
            digits = delinearize(at, [extents[d] for d in positions])
            for d, digit in zip(positions, digits, strict=True):
                found[d] = digit
        return tuple(found[: len(self.dims)]), tuple(found[len(self.dims) :])


@dataclass(frozen=True, eq=False)
class Layers:
    """A region of layers: how many rows there are, and its values in their order. `wide`: whether
    lanes have lots of four columns. Of values that are read again, those are held that take `worth`
    operations."""

    graph: Graph
    rows: int
    values: tuple[Value, ...]
    wide: bool
    worth: int

    def columns(self, extent: int) -> Columns:
        """How lanes hold so many elements of a row."""
        return Columns.of(extent, self.wide)

    @property
    def sparing(self) -> bool:
        """Whether registers are scarce."""
        return self.worth > WORTH_HOLDING[0]

    def of(self, value: Value) -> Columns:
        """How lanes hold a value."""
        return self.columns(value.size(value.free))

    def with_role(self, *roles: Role) -> list[Value]:
        """The values of some roles, in their order."""
        return [value for value in self.values if value.role in roles]


def find_layers(graph: Graph, worth: int = WORTH_HOLDING[0]) -> Layers:
    """The layers that a region is, of which values that take so many operations are held. Raises
    CodegenError for one that is something else."""
    inlined: set[int] = set()
    while True:
        try:
            return _found(graph, inlined, worth)
        except _Apart as error:
            more = {op.id for op in error.ops if _computes(op)} - inlined
            if not more or len(inlined) >= MOST_INLINED:
                raise
            inlined |= more


class _Apart(CodegenError):
    """Values that do not have the same rows: the first that is computed element by element is
    computed where it is read instead."""

    def __init__(self, why: str, *ops: Op):
        super().__init__(why)
        self.ops = [op for op in ops if _computes(op)][:1]


def _found(graph: Graph, inlined: Container[int], worth: int) -> Layers:
    """The layers of a region some of whose ops are computed wherever they are read. Raises
    CodegenError."""
    values = _values(graph, inlined, worth)
    products = [v for v in values if v.op.opcode == "dot"]
    refused: CodegenError | None = None
    for seed in sorted(products, key=lambda v: -v.op.shape.size):
        for rows in _sides(seed):
            try:
                return _with_rows(graph, values, seed, rows, worth)
            except CodegenError as error:
                refused = refused or error
    raise refused or CodegenError(f"{graph.name} multiplies no rows by a matrix.")


def side_of_rows(value: Value) -> int:
    """Which operand of a product has the rows."""
    rows = {v for d in value.rows for v in value.all[d].variables}
    for number, (_, index) in enumerate(body_reads(value.op, value.dims, value.inner)):
        if any(rows & i.variables for i in index):
            return number
    raise CodegenError(f"{value.op.name} multiplies no rows.")


# ---- which ops are values ------------------------------------------------------------------------


def _values(graph: Graph, inlined: Container[int], worth: int) -> list[Value]:
    """The values of a region in their order, traced."""
    uses = _uses(graph)
    outputs = {o.id for o in graph.root.operands}
    held: dict[int, Value] = {}
    values: list[Value] = []
    costs: dict[int, float] = {}
    for op in graph.ops[:-1]:
        if op.opcode == "parameter":
            continue
        costs[op.id] = _cost(op, costs)
        kept = op.id in outputs or _always(op)
        if kept or (uses[op.id] > 1 and costs[op.id] >= worth and _computes(op)):
            if op.id in inlined and op.id not in outputs:
                continue
            stage = new_stage(op, len(values))
            made = Value(op, stage.dims, stage.inner, is_output=op.id in outputs)
            values.append(made)
            if op.id not in inlined:
                held[op.id] = made
                costs[op.id] = 0
    for value in values:
        leaves, passed = closure(value.op, value.dims, value.inner, held)
        value.reads = [(held[leaf.id], at) for leaf, at in leaves if leaf.id in held]
        value.loads = [(leaf, at) for leaf, at in leaves if leaf.id not in held]
        value.branches = any(is_branching(op) for op, _ in passed) or is_branching(value.op)
    return values


def _always(op: Op) -> bool:
    return kind_of(op.opcode) is Kind.DOT or op.opcode == "reduce"


def _computes(op: Op) -> bool:
    return kind_of(op.opcode) is Kind.ELEMENTWISE


def _cost(op: Op, costs: dict[int, float]) -> float:
    """Operations to compute an element again, from what is held."""
    own = 0.0
    if _computes(op):
        spec = spec_of(op.opcode)
        own = spec.flops + spec.special
    return own + sum(costs.get(o.id, 0) for o in dict.fromkeys(op.operands))


def _uses(graph: Graph) -> dict[int, int]:
    """How often each value is computed from, whatever moves it on the way."""
    uses = dict.fromkeys(range(len(graph.ops)), 0)
    for op in reversed(graph.ops):
        moves = kind_of(op.opcode) is Kind.MOVEMENT or op.opcode == "convert"
        for operand in dict.fromkeys(op.operands):
            uses[operand.id] += uses[op.id] if moves else 1
    return uses


# ---- which dims are the rows ---------------------------------------------------------------------


def _sides(dot: Value) -> Iterator[tuple[int, ...]]:
    """What may be the rows of a product: the dims of either operand, the more the first."""
    batch = len(dot.op.attrs["lhs_batch"])
    left = dot.op.operands[0].shape.rank - len(dot.inner)
    sides = tuple(range(batch, left)), tuple(range(left, len(dot.dims)))
    if not batch:
        yield from sorted(sides, key=lambda side: -math.prod(dot.op.dims[d] for d in side))


def _with_rows(
    graph: Graph, values: Sequence[Value], seed: Value, rows: tuple[int, ...], worth: int
) -> Layers:
    """The layers with these rows. Raises CodegenError if the values do not agree on them."""
    found = _connected(values, seed, rows)
    count = seed.size(rows)
    for other in values:
        sides = () if other in found or other.op.opcode != "dot" else _sides(other)
        for side in sides:
            if other not in found and other.size(side) == count:
                found |= _connected(values, other, side)
    for value in values:
        value.rows = found.get(value, ())
        value.scattered = value.stepwise = False
        value.role = _role(value)
    wide = any(o.dtype in HALVES for v in values if v.op.opcode == "dot" for o in v.op.operands)
    layers = Layers(graph, count, tuple(_in_order(values)), wide, worth)
    for value in values:
        _find_columns(layers, value)
    return layers


def _connected(
    values: Sequence[Value], seed: Value, rows: tuple[int, ...]
) -> dict[Value, tuple[int, ...]]:
    """What the rows are of a value and of all that reads them or is read at them. Raises
    CodegenError."""
    readers: dict[Value, list[tuple[Value, Indices]]] = {}
    for value in values:
        for read, at in value.reads:
            readers.setdefault(read, []).append((value, at))
    found, todo = {seed: rows}, [seed]
    while todo:
        value = todo.pop()
        links = [(read, _rows_read(value, found[value], read, at)) for read, at in value.reads]
        if not _sums(value, found[value]):
            links += [
                (reader, _rows_of_reader(value, found[value], reader, at))
                for reader, at in readers.get(value, ())
            ]
        for other, place in links:
            if not place or found.get(other, place) != place:
                why = f"{value.op.name} and {other.op.name} have other rows."
                raise _Apart(why, other.op, value.op)
            if other not in found:
                found[other] = place
                todo.append(other)
    return found


def _rows_read(
    value: Value, rows: tuple[int, ...], read: Value, at: Indices
) -> tuple[int, ...] | None:
    """The dims of what a value reads that are its rows; None if they are not the very same."""
    own = _variables(value.all[d] for d in rows)
    place = tuple(d for d, index in enumerate(at) if index.variables & own)
    same = _count(at, read.extents, place) == _count(value.all, value.extents, rows)
    return place if same else None


def _rows_of_reader(
    value: Value, rows: tuple[int, ...], reader: Value, at: Indices
) -> tuple[int, ...] | None:
    """The index variables of what reads a value that are its rows, likewise."""
    read = _variables(at[d] for d in rows)
    place = tuple(d for d, index in enumerate(reader.all) if index.variables & read)
    mixed = len({d < len(reader.dims) for d in place}) != 1
    same = _count(at, value.extents, rows) == _count(reader.all, reader.extents, place)
    return place if same and not mixed else None


def _variables(indices: Iterable[Index]) -> set[Var]:
    return {v for index in indices for v in index.variables}


def _count(indices: Indices, extents: Sequence[int], positions: Sequence[int]) -> Index:
    return linearize([indices[d] for d in positions], [extents[d] for d in positions])


# ---- what they are -------------------------------------------------------------------------------


def _sums(value: Value, rows: Sequence[int]) -> bool:
    return bool(rows) and rows[0] >= len(value.dims)


def _role(value: Value) -> Role:
    """What a value is to its rows. Raises CodegenError for what lanes cannot have."""
    op, rows = value.op, value.rows
    if isinstance(op.attrs.get("reducer"), Monoid) or op.shape.is_tuple:
        raise CodegenError(f"{op.name} keeps more than one number of each element.")
    if not rows:
        late = kind_of(op.opcode) in (Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.SOURCE)
        if late and value.is_output and all(read.role in ENDS for read, _ in value.reads):
            return Role.LATE
        raise _Apart(f"{op.name} does not have the rows of the other values.", op)
    if any(read.role in ENDS for read, _ in value.reads):
        raise CodegenError(f"{op.name} waits for a sum over all rows.")
    if _sums(value, rows):
        return _role_of_sum(value)
    if value.size(value.free) > MOST_COLUMNS:
        raise CodegenError(f"Rows of {op.name} are too long for the registers of a warp.")
    if op.opcode == "dot" and _is_product(value):
        if value.visited > MOST_COLUMNS:
            raise CodegenError(f"{op.name} sums up more elements than a warp has registers for.")
        return Role.PRODUCT
    if op.opcode == "reduce" and not value.free:
        return Role.FOLD
    if value.inner and value.visited > MOST_WRITTEN_OUT:
        raise CodegenError(f"{op.name} sums up a part of each row.")
    return Role.ELEMENTS


def _role_of_sum(value: Value) -> Role:
    op, beside = value.op, value.visited // value.size(value.rows)
    if computed(op.dtype) != FLOAT:
        raise CodegenError(f"{op.name} sums up {op.dtype} over all rows.")
    if op.opcode == "dot":
        sides = _sides_of_sum(value)
        if beside > 1 or op.attrs["lhs_batch"] or not _multiplies_floats(op):
            raise CodegenError(f"{op.name} sums over more than the rows.")
        if any(value.size(side) > MOST_COLUMNS for side in sides):
            raise CodegenError(f"{op.name} has too many sums over all rows for registers.")
        return Role.SUM
    if beside > 1 and op.shape.size > 1:
        raise CodegenError(f"{op.name} sums over the rows and a part of each.")
    if value.size(value.free) * beside > MOST_COLUMNS:
        raise CodegenError(f"Rows that {op.name} sums up are too long for the registers of a warp.")
    return Role.TOTAL


def _is_product(value: Value) -> bool:
    """Whether one operand of a dot has the rows, and the other does not."""
    own = _variables(value.all[d] for d in value.rows)
    reads = body_reads(value.op, value.dims, value.inner)
    sides = [any(own & i.variables for i in at) for _, at in reads]
    return sides.count(True) == 1 and _multiplies_floats(value.op)


def _multiplies_floats(op: Op) -> bool:
    kinds = [C_TYPES.get(x.dtype) for x in (op, *op.operands)]
    floats = all(kind is not None and kind.compute == "float" for kind in kinds)
    return floats and op.attrs.get("precision") != "highest"


def _sides_of_sum(value: Value) -> tuple[Sequence[int], Sequence[int]]:
    """The dims of a sum of products that come from one operand, and from the other."""
    left = value.op.operands[0].shape.rank - len(value.inner)
    return range(left), range(left, len(value.dims))


def _in_order(values: Sequence[Value]) -> list[Value]:
    """The values in an order in which few are held at a time: after each other what is added up or
    stored, that for which the fewest elements are still to compute the first."""
    found: dict[Value, None] = {}
    late = [value for value in values if value.role is Role.LATE]
    wanted = [value for value in values if value.role in ENDS or value.is_output]
    wanted = [value for value in wanted if value.role is not Role.LATE]
    while wanted:
        missing = [_missing(value, found) for value in wanted]
        costs = [sum(v.size(v.free) for v in each if v.role not in ENDS) for each in missing]
        number = costs.index(min(costs))
        found |= dict.fromkeys(missing[number])
        wanted.pop(number)
    return [*found, *late]


def _missing(value: Value, known: Container[Value]) -> list[Value]:
    """A value and all that it is computed from, in order, but for what is known."""
    found: dict[Value, None] = {}
    todo = [(value, False)]
    while todo:
        one, ready = todo.pop()
        if one in known or one in found:
            continue
        if ready:
            found[one] = None
            continue
        todo.append((one, True))
        todo += [(read, False) for read, _ in reversed(one.reads)]
    return list(found)


def columns_of(value: Value) -> list[Sequence[int]]:
    """The index variables that run along the rows that a value reads: of a sum of products, those
    of either operand."""
    return list(_sides_of_sum(value)) if value.role is Role.SUM else [value.along]


def _find_columns(layers: Layers, value: Value) -> None:
    """Finds out which values are read by lanes that do not have them."""
    for read, at in value.reads:
        if read.role in ENDS or read.size(read.free) == 1:
            continue
        column = _count(at, read.extents, read.free)
        for own in columns_of(value):
            ahead = column - _count(value.all, value.extents, own)
            here, there = layers.columns(value.size(own)), layers.of(read)
            if not ahead.terms and ahead.const % there.unit == 0 and here.lot == there.lot:
                value.stepwise |= ahead.const != 0 or there.steps < here.steps
                break
        else:
            read.scattered = True
