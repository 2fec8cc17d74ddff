"""What holds for a region between passes: the invariants of a graph, and what kernels rely on.

Every pass may count on it and must leave it so. Regions have opcodes that modules do not:

    record   values of the same dims that travel together; dtype record<...> of theirs
    member   one of the values of a record: index
    windows  a view of an array that holds its windows: index i of them and j inside is element
             i * stride, and along the dims `along` j * dilation further; dims are i, then j
    bins     what of values [R, U, W] belongs to each of `size` numbers, joined (rewrite/bins.py)
    sort-rows  each row of [R, N] in ascending order: all of it, or its `first` elements; of rows
             that are `merged`, the elements rise and then fall, or fall and then rise
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fusionstitch.codegen.rewrite.complex_pairs import in_pairs
from fusionstitch.codegen.rewrite.monoids import Monoid
from fusionstitch.codegen.text.expressions import FUNCTORS
from fusionstitch.codegen.text.types import members_of, record
from fusionstitch.hlo.attributes import REDUCERS
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.shapes import SHAPE_RULES, require
from fusionstitch.hlo.verify import verify


def check_region(graph: Graph, before: Graph) -> None:
    """Raises VerifyError unless `graph` is a region that takes and gives what the region `before`
    it does."""
    verify(graph, _RULES, sound=before)
    if graph.root is not graph.ops[-1] or graph.root.opcode != "tuple":
        raise VerifyError(f"{graph.name}: its root {graph.root!r} is no tuple at its end.")
    _require_equal("parameters", graph.parameters, before.parameters)
    _require_equal("outputs", graph.root.operands, before.root.operands)
    _check_functors(graph)


def check_ops(graph: Graph) -> None:
    """Raises VerifyError for ops of a region that do not fit their operands."""
    verify(graph, _RULES)


def _require_equal(what: str, now: tuple[Op, ...], before: tuple[Op, ...]) -> None:
    types, expected = ([in_pairs(op.shape) for op in ops] for ops in (now, before))
    if types != expected:
        found, given = (", ".join(map(str, shapes)) for shapes in (types, expected))
        raise VerifyError(f"Its {what} are {found}; they were {given}.")


def _check_functors(graph: Graph) -> None:
    """Function objects have a definition, and one each."""
    known: dict[str, str] = {}
    for op in graph.ops:
        reducer = op.attrs.get("reducer") if op.opcode == "reduce" else None
        if isinstance(reducer, Monoid):
            _, found, definition = reducer.source.partition(f"struct {reducer.functor} ")
            require(op, bool(found and reducer.identity), "a definition of what it reduces by")
            same = known.setdefault(reducer.functor, definition) == definition
            require(op, same, f"one definition of {reducer.functor}")


def _record(op: Op) -> Shape:
    dims = op.operands[0].dims
    require(op, all(o.dims == dims for o in op.operands), "values of one extent each")
    return Shape(record([o.dtype for o in op.operands]), dims)


def _member(op: Op) -> Shape:
    [whole] = op.operands
    types, index = members_of(whole.dtype), op.attrs["index"]
    require(op, 0 <= index < len(types), "an index inside the record")
    return Shape(types[index], whole.dims)


def _windows(op: Op) -> Shape:
    [x] = op.operands
    rank, along = x.shape.rank, op.attrs["along"]
    require(op, op.shape.rank == rank + len(along), "the dims of windows and those inside")
    last = [(n - 1) * k for n, k in zip(op.dims[:rank], op.attrs["stride"], strict=True)]
    for d, n, k in zip(along, op.dims[rank:], op.attrs["dilation"], strict=True):
        last[d] += (n - 1) * k
    inside = all(at < extent for at, extent in zip(last, x.dims, strict=True))
    require(op, inside or not op.shape.size, "windows inside of the array")
    return Shape(x.dtype, op.dims)


def _reduce(op: Op) -> Shape:
    reducer = op.attrs["reducer"]
    known = isinstance(reducer, Monoid) or reducer in REDUCERS or (reducer is None and op.called)
    require(op, bool(known), "a reducer")
    if isinstance(reducer, Monoid) and reducer.in_runs:
        require(op, members_of(op.dtype)[:1] == ["pred"], "records that say whether they are empty")
    return SHAPE_RULES["reduce"](op)


def _bins(op: Op) -> Shape:
    keys, values, _ = op.operands
    rows, _, width = values.dims
    require(op, keys.shape == Shape("s32", values.dims[:2]), "a number for each update")
    require(op, op.attrs["reducer"] in FUNCTORS, "a reducer")
    return Shape(values.dtype, (rows, op.attrs["size"], width))


def _sort_rows(op: Op) -> Shape:
    [x] = op.operands
    require(op, x.shape.rank == 2 and x.dtype in ("u32", "u64"), "rows of unsigned integers")
    rows, elements = x.dims
    first = op.attrs.get("first", elements)
    require(op, 0 < first <= elements, "elements that there are")
    require(op, "merged" not in op.attrs or elements & (elements - 1) == 0, "a power of two")
    return Shape(x.dtype, (rows, first))


_RULES: Mapping[str, Callable[[Op], Shape]] = {
    **SHAPE_RULES,
    "record": _record,
    "member": _member,
    "windows": _windows,
    "reduce": _reduce,
    "bins": _bins,
    "sort-rows": _sort_rows,
}
