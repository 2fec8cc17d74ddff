"""Finds the layers that a region is: which ops are values of rows, and which dims the rows are.

The rows are those of a product. Wherever its rows are read or were made, they must be the same
place in the same order: index maps say so. What is computed element by element and has other rows,
as random numbers do that come from halves of an array of counters, is computed where it is read.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from fusionstitch.codegen.index_maps.index import Index, Var, linearize
from fusionstitch.codegen.index_maps.maps import Indices, is_branching
from fusionstitch.codegen.ir.types import FLOAT, computed
from fusionstitch.codegen.layers.values import (
    ENDS,
    MOST_COLUMNS,
    MOST_DEPTH,
    WORTH_HOLDING,
    Layers,
    Role,
    Value,
    columns_of,
    sides_of_sum,
)
from fusionstitch.codegen.loops.stages import body_reads, closure, new_stage
from fusionstitch.codegen.rewrite.monoids import Monoid
from fusionstitch.codegen.text.types import C_TYPES
from fusionstitch.costmodel.work import HALVES
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of

#: Values that are computed where they are read, at most, since they have other rows.
MOST_INLINED = 64
#: Elements of a row that a reduction of a part of it visits for each result: written out.
MOST_WRITTEN_OUT = 16


def find_layers(graph: Graph, worth: int = WORTH_HOLDING[0]) -> Layers:
    """The layers that a region is, of which values that take so many operations are held. Raises
    CodegenError for one that is something else."""
    inlined: set[int] = set()
    while True:
        try:
            return _found(graph, inlined, worth)
        except _Apart as apart:
            more = {op.id for op in apart.ops} - inlined
            if not more or len(inlined) >= MOST_INLINED:
                raise CodegenError(str(apart)) from None
            inlined |= more


class _Apart(Exception):
    """Values that do not have the same rows: the first that is computed element by element may be
    computed where it is read instead."""

    def __init__(self, why: str, *ops: Op):
        super().__init__(why)
        self.ops = [op for op in ops if _computes(op)][:1]


def _found(graph: Graph, inlined: Container[int], worth: int) -> Layers:
    """The layers of a region some of whose ops are computed wherever they are read. Raises
    CodegenError, and _Apart where others had better be, too."""
    values = _values(graph, inlined, worth)
    products = [v for v in values if v.op.opcode == "dot"]
    refused: CodegenError | _Apart | None = None
    for seed in sorted(products, key=lambda v: -v.op.shape.size):
        for rows in _sides(seed):
            try:
                return _with_rows(graph, values, seed, rows, worth)
            except (CodegenError, _Apart) as error:
                refused = refused or error
    raise refused or CodegenError(f"{graph.name} multiplies no rows by a matrix.")


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
    """What may be the rows of a product: the dims of either operand, the more the first. Dims of
    one element say nothing."""
    if not dot.op.attrs["lhs_batch"]:
        sides = [tuple(d for d in side if dot.op.dims[d] > 1) for side in sides_of_sum(dot)]
        yield from sorted(sides, key=lambda side: -dot.size(side))


def _with_rows(
    graph: Graph, values: Sequence[Value], seed: Value, rows: tuple[int, ...], worth: int
) -> Layers:
    """The layers with these rows. Raises CodegenError if the values do not agree on them."""
    found = _connected(values, seed, rows)
    count = seed.size(rows)
    for other in values:
        sides = list(_sides(other)) if other.op.opcode == "dot" else []
        if _always(other.op):  # it may sum up rows of inputs alone
            sides.append(tuple(range(len(other.dims), len(other.all))))
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
    """What the rows are of a value and of all that reads them or is read at them. Raises _Apart."""
    readers: dict[Value, list[tuple[Value, Indices]]] = {}
    for value in values:
        for read, at in value.reads:
            readers.setdefault(read, []).append((value, at))
    found, todo, count = {seed: rows}, [seed], seed.size(rows)
    while todo:
        value = todo.pop()
        links = [(read, _rows_read(value, found[value], read, at)) for read, at in value.reads]
        if not _sums(value, found[value]):
            links += [
                (reader, _rows_of_reader(value, found[value], reader, at))
                for reader, at in readers.get(value, ())
            ]
        for other, place in links:
            if not place or other.size(place) != count or found.get(other, place) != place:
                why = f"{value.op.name} and {other.op.name} have other rows."
                raise _Apart(why, other.op, value.op)
            if other not in found:
                found[other] = place
                todo.append(other)
    return found


def _rows_read(
    value: Value, rows: tuple[int, ...], read: Value, at: Indices
) -> tuple[int, ...] | None:
    """The dims of what a value reads that are its rows; None if they are not the very same. A row
    may pick its columns by data of its own."""
    own = _variables(value.all[d] for d in rows)
    picked = [{v for one in index.fetched for v in one.variables} for index in at]
    place = tuple(d for d, index in enumerate(at) if (index.variables - picked[d]) & own)
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
        if value.visited > MOST_DEPTH:
            raise CodegenError(f"{op.name} sums up more elements than a matrix should have.")
        return Role.PRODUCT
    if op.opcode == "reduce" and value.size(value.free) == 1:
        return Role.FOLD
    if value.inner and value.visited > MOST_WRITTEN_OUT:
        raise CodegenError(f"{op.name} sums up a part of each row.")
    return Role.ELEMENTS


def _role_of_sum(value: Value) -> Role:
    op, beside = value.op, value.visited // value.size(value.rows)
    if computed(op.dtype) != FLOAT:
        raise CodegenError(f"{op.name} sums up {op.dtype} over all rows.")
    if op.opcode == "dot":
        sides = sides_of_sum(value)
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
    """Whether one operand of a dot has the rows, and the other does not: the same matrix for all
    columns."""
    own = _variables(value.all[d] for d in value.rows)
    reads = body_reads(value.op, value.dims, value.inner)
    sides = [any(own & i.variables for i in at) for _, at in reads]
    alone = value.size(range(len(value.op.attrs["lhs_batch"]))) == 1
    return alone and sides.count(True) == 1 and _multiplies_floats(value.op)


def _multiplies_floats(op: Op) -> bool:
    kinds = [C_TYPES.get(x.dtype) for x in (op, *op.operands)]
    floats = all(kind is not None and kind.compute == "float" for kind in kinds)
    return floats and op.attrs.get("precision") != "highest"


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


def _find_columns(layers: Layers, value: Value) -> None:
    """Finds out which values are read by lanes that do not have them."""
    for read, at in value.reads:
        if read.role in ENDS or read.size(read.free) == 1:
            continue
        column = _count(at, read.extents, read.free)
        for own in columns_of(value):
            ahead = column - _count(value.all, value.extents, own)
            here, there = layers.columns(value.size(own)), layers.of(read)
            alike = here.lot == there.lot and here.extent > 1  # all lanes have a single column
            if alike and not ahead.terms and ahead.const % there.unit == 0:
                value.stepwise |= ahead.const != 0 or there.steps < here.steps
                break
        else:
            read.scattered = True
