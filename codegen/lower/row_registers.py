"""Inputs held in registers from row to row: loaded once, or ahead of the row that needs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from fusionstitch.codegen.index_maps.index import (
    Index,
    constant,
    renamed,
    render,
    substituted,
    variable,
)
from fusionstitch.codegen.ir.expressions import (
    Element,
    Expr,
    Integer,
    Name,
    Number,
    all_of,
    infix,
    pointer_at,
)
from fusionstitch.codegen.ir.intrinsics import ANNOUNCE
from fusionstitch.codegen.ir.statements import Array, Assign, Call, If, Let, unrolled
from fusionstitch.codegen.ir.types import VectorOf, stored
from fusionstitch.codegen.lower.rows import RowLoop
from fusionstitch.codegen.lower.sweeps import Loaded, Sweeps
from fusionstitch.hlo.graph import ITEM_BYTES

#: Bytes of a line of memory.
LINE_BYTES = 128


def hold_inputs(sweeps: Sweeps, row: Index, loop: RowLoop) -> None:
    """Names the arrays of the inputs that stay in registers, and loads the first row's."""
    sweeps.name_unit()
    for input_ in sweeps.walk.row_inputs:
        name = sweeps.access.memory.inputs[input_.op.id]
        array = sweeps.writer.name(f"{name}_{'columns' if input_.steady else 'row'}")
        ahead = sweeps.writer.name(f"{name}_next") if input_.ahead else ""
        base = renamed(input_.base, sweeps.names)
        sweeps.row_inputs.append(Loaded(input_, name, base, array, ahead))
    first = constant(0)
    if loop.first is not None and loop.first != Number("0"):
        first = variable(sweeps.writer.name("first_row"), sweeps.plan.rows)
        sweeps.writer.let(sweeps.int, render(first), loop.first)
        sweeps.writer.declare(render(first))
    early = [one for one in sweeps.row_inputs if one.ahead or one.input.steady]
    arrays = {one: one.ahead or one.array for one in early}
    for one, array in arrays.items():
        _declare_vectors(sweeps, one, array)
    _load_inputs(sweeps, arrays, row, first)


def next_row(sweeps: Sweeps, row: Index) -> None:
    """Takes over the inputs that were fetched ahead, loads the others, fetches the next row."""
    ahead = {one: one.ahead for one in sweeps.row_inputs if one.ahead}
    now = {one: one.array for one in sweeps.row_inputs if not one.ahead and not one.input.steady}
    for one in (*ahead, *now):
        _declare_vectors(sweeps, one, one.array)
    if now:
        _load_inputs(sweeps, now, row, row)
    if ahead:
        with sweeps.writer.nested(unrolled("i", sweeps.walk.vectors)):
            for one in ahead:
                into, of = Name(one.array), Name(one.ahead)
                sweeps.writer.add(Assign(Element(into, Name("i")), Element(of, Name("i"))))
    announced, stride = sweeps.walk.announced, sweeps.walk.stride
    if not (ahead or announced):
        return
    with _row_ahead(sweeps, row, stride) as following:
        if announced and now:
            with sweeps.writer.nested(If(_line_starts(sweeps, now)), pinned=True):
                _announce(sweeps, tuple(now), row, following)
        if announced and ahead and 2 * stride < sweeps.plan.rows:
            condition = _line_starts(sweeps, ahead)
            with _row_ahead(sweeps, following, stride, condition) as later:
                _announce(sweeps, tuple(ahead), row, later)
        if ahead:
            _load_inputs(sweeps, ahead, row, following)


@contextmanager
def _row_ahead(
    sweeps: Sweeps, row: Index, distance: int, condition: Expr | None = None
) -> Iterator[Index]:
    """The row that comes `distance` rows later, if there is one and where `condition` holds."""
    following = variable(sweeps.writer.name("next_row"), sweeps.plan.rows)
    name, limit = render(following), sweeps.plan.rows
    given = Let(sweeps.int, name, infix("+", Integer(row), distance))
    there = all_of([infix("<", Name(name), limit), condition])
    assert there is not None
    with sweeps.writer.nested(If(there, given), pinned=True):
        sweeps.writer.declare(name)
        yield following


def _line_starts(sweeps: Sweeps, inputs: Iterable[Loaded]) -> Expr:
    """Whether the vectors of a thread are the first ones in their lines of memory."""
    widest = max(ITEM_BYTES[one.input.op.dtype] for one in inputs)
    vectors = max(1, LINE_BYTES // (sweeps.width * widest))
    return infix("==", infix("%", Name(sweeps.lane), vectors), 0)


def _announce(sweeps: Sweeps, inputs: Sequence[Loaded], row: Index, at: Index) -> None:
    """Brings row `at` to L2; inputs are known by their bases in `row`."""

    def announce(_step: Expr | None) -> None:
        for one in inputs:
            base = substituted(one.base, dict.fromkeys(row.variables, at))
            sweeps.writer.add(Call(ANNOUNCE, (), (pointer_at(Name(one.name), base),)))

    sweeps.run(announce)


def _declare_vectors(sweeps: Sweeps, one: Loaded, array: str) -> None:
    kind = VectorOf(stored(one.input.op.dtype), sweeps.width, loaded=True)
    sweeps.writer.add(Array(kind, array, sweeps.walk.vectors))


def _load_inputs(sweeps: Sweeps, arrays: Mapping[Loaded, str], row: Index, at: Index) -> None:
    """Fills arrays with the vectors of row `at`; inputs are known by their bases in `row`."""

    def load(step: Expr | None) -> None:
        assert step is not None
        for one, array in arrays.items():
            base = substituted(one.base, dict.fromkeys(row.variables, at))
            vector = sweeps.access.elements.vector_load(one.input.op, one.name, base, sweeps.width)
            sweeps.writer.add(Assign(Element(Name(array), step), vector))

    sweeps.run(load)
