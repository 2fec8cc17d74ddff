"""What masks leave out of a streamed nest: blocks of columns that add nothing to any sum.

Where positions decide alone what a block of rows sees, that lies in a range of blocks of columns
which is known before the loop. The loop begins with those, and ends behind them:

    for (int turn = 0; turn < 32; ++turn) {
      if (turn == seen && __syncthreads_and(settled)) break;
      const int block = (first + turn) % 32;

What is behind them is nil if each row has met a value far above the mask's constant by then
(`settled`). That has the data a say in: a row that sees nothing takes its block along all columns.
Inside of the range each warp goes on to the next columns where its own rows see nothing of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from fusionstitch.codegen.dots.masks import Mask, bounded, find_masks, nil_terms
from fusionstitch.codegen.dots.online import VANISHING, Running
from fusionstitch.codegen.index_maps.index import Index, Var, constant, render, variable
from fusionstitch.codegen.ir.expressions import (
    Expr,
    Integer,
    Name,
    Number,
    all_of,
    apply,
    infix,
    least,
    number,
)
from fusionstitch.codegen.ir.intrinsics import ALL_LANES, ALL_THREADS
from fusionstitch.codegen.ir.statements import Assign, Leave, Let, Skip
from fusionstitch.codegen.ir.types import BOOL, INT
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.sweeps import Key
from fusionstitch.codegen.lower.tile_rows import TileRows
from fusionstitch.codegen.text.expressions import literal

#: Constants of masks, and values of the rows that they have to be far below.
Conditions = Mapping[tuple[float, Key], None]


@dataclass(frozen=True)
class Range:
    """The blocks of columns that the rows of a block may see: so many, from `first` on (None: the
    first of all)."""

    first: Index | None
    stop: Expr


class LeftOut:
    """What one pass leaves out where masks make it nil: nothing where there are no `margins`, of
    which one is negative then for all that a warp has of the columns."""

    def __init__(self, rows: TileRows, swept: Sequence[Stage], running: Running, known: bool):
        self.rows = rows
        rows.digits.bind_column(rows.column_index())
        masks = _masks(rows, swept[0], running)
        nil = {mask: _nil(rows, swept, mask, running) for mask in masks} if known else {}
        whole = _with_all(rows, swept[0], running)
        agree = len(whole) == len(masks)
        pairs = zip(whole, masks, strict=True) if agree else ()
        self.margins = [one.margin for one, mask in pairs if nil.get(mask) is not None]
        self.conditions: Conditions = {
            one: None for found in nil.values() if found is not None for one in found
        }
        self.range = _range(rows, self.margins) if self._of_rows() else None
        self.settled = ""

    def _of_rows(self) -> bool:
        """Whether values of the rows alone, the same for all columns, decide what is nil."""
        rows = self.rows
        own = {v for i in (rows.column_block, rows.step, rows.pair) for v in i.variables}
        own |= rows.member.variables
        return not any(own & i.variables for _, (_, at) in self.conditions for i in at)

    @contextmanager
    def blocks(self) -> Iterator[None]:
        """The loop over the blocks of columns."""
        rows, writer, range_ = self.rows, self.rows.writer, self.range
        if range_ is None:
            with rows.loop(rows.column_block, 0):
                yield
            return
        [block] = rows.column_block.variables
        turn = rows.column_block
        writer.note("// the columns that the block's rows may see")
        stop = range_.stop
        if range_.first is not None:
            first = variable(writer.name("first"), block.extent)
            lowest = least(INT, Integer(range_.first), 0)
            writer.let(INT, render(first), infix("-", Integer(range_.first), lowest))
            writer.declare(render(first))
            turn, stop = (
                variable(writer.name("turn"), block.extent),
                infix("-", stop, Integer(first)),
            )
        seen = writer.name("seen")
        writer.let(INT, seen, stop)
        with rows.loop(turn, 0):
            self._leave(turn, seen)
            if range_.first is not None:
                writer.let(INT, block.name, Integer((first + turn) % block.extent))
                writer.declare(block.name)
            yield

    def _leave(self, turn: Index, seen: str) -> None:
        """Ends the loop behind what the rows may see."""
        self.settled = self._settled(Number("true")) if self.conditions else ""
        vote = apply(ALL_THREADS, Name(self.settled)) if self.settled else None
        end = all_of([infix("==", Integer(turn), Name(seen)), vote])
        assert end is not None
        self.rows.writer.add(Leave(end, likely=infix(">=", Integer(turn), Name(seen))))

    def skip(self) -> None:
        """Goes on to the next columns where masks make these nil for all rows of the warp."""
        rows, writer = self.rows, self.rows.writer
        if not self.margins or not rows.column_block.variables:  # a single block has no loop
            return
        writer.note("// nothing to add where a mask leaves them all out")
        outside = _outside(bounded(one, _of_warps_lanes(rows)) for one in self.margins)
        name = writer.name("left_out")
        if not self.settled and self.conditions:
            name = self._settled(outside, name)
        else:
            left = all_of([outside, Name(self.settled) if self.settled else None])
            assert left is not None
            writer.let(BOOL, name, left)
        vote = apply(ALL_LANES, Number("0xffffffffu"), Name(name))
        writer.add(Skip(vote, likely=self._likely()))

    def _likely(self) -> Expr:
        """Where that is likely: rows of which no columns were seen yet are not settled."""
        bounds = (bounded(one, _of_warps_lanes(self.rows)) for one in self.margins)
        blocks = self.rows.column_block.variables
        late = [
            i for i in bounds if not self.conditions or all(_along(i, b)[0] < 0 for b in blocks)
        ]
        return _outside(late or [constant(0)])

    def _settled(self, start: Expr, hint: str = "settled") -> str:
        """Declares whether `start` holds, and all rows have met values that constants of masks are
        far below."""
        rows, writer = self.rows, self.rows.writer
        name = writer.name(hint)
        writer.add(Let(BOOL, name, start, changes=True))
        for nil, (op, at) in self.conditions:
            used = {v for i in at for v in i.variables}
            loops = [i for i in (rows.step, rows.pair) if used & i.variables]
            with ExitStack() as opened:
                opened.enter_context(rows.rows())
                for index in loops:
                    opened.enter_context(rows.loop(index))
                difference = infix("-", Number(literal(nil, "f32")), rows.values.value(op, at))
                far = infix("<=", difference, Number(literal(VANISHING, "f32")))
                writer.add(Assign(Name(name), infix("&&", Name(name), far)))
        return name


# ---- what is nil ---------------------------------------------------------------------------------


def _masks(rows: TileRows, stage: Stage, running: Running) -> tuple[Mask, ...]:
    """The masks over what a stage sums up."""
    if rows.nest.role[stage] is Role.DOT:
        rows.bind_results(stage)
    return find_masks(stage.op, *rows.digits.indices(stage), running.whole)


def _with_all(rows: TileRows, stage: Stage, running: Running) -> tuple[Mask, ...]:
    """The same with the rows and columns that the warp was given: those beyond the last stand for
    nothing."""
    (row,), (column,) = rows.nest.rows, rows.nest.inner
    known = dict(rows.digits.of)
    rows.digits.of |= {row: rows.row_index(), column: rows.column_index()}
    found = _masks(rows, stage, running)
    rows.digits.of |= known
    return found


def _nil(rows: TileRows, swept: Sequence[Stage], mask: Mask, running: Running) -> Conditions | None:
    """When all that is swept is nil where a mask does not hold; None if it never is."""
    conditions: dict[tuple[float, Key], None] = {}
    for stage in swept:
        if not stage.is_reduction:
            return None
        if rows.nest.role[stage] is Role.DOT:
            rows.bind_results(stage)
        nil = nil_terms(stage.op, *rows.digits.indices(stage), mask, running)
        if nil is None:
            return None
        conditions |= dict.fromkeys(nil)
    return conditions


def _outside(margins: Iterable[Index]) -> Expr:
    """Where one of some margins is negative."""
    first, *others = map(Integer, margins)
    lowest: Expr = first
    for other in others:
        lowest = least(INT, lowest, other)
    return infix("<", lowest, 0)


# ---- where a block of rows sees something --------------------------------------------------------


def _of_warps_lanes(rows: TileRows) -> frozenset[str]:
    """The variables of what a warp has of a block of columns."""
    own = (rows.step, rows.pair, rows.row, rows.member, rows.four)
    return frozenset(v.name for i in own for v in i.variables)


def _range(rows: TileRows, margins: Sequence[Index]) -> Range | None:
    """The blocks of columns that masks leave to the rows of a block; None for all of them."""
    if not rows.column_block.terms:
        return None
    [block] = rows.column_block.variables
    inside = {*_of_warps_lanes(rows), *(v.name for v in rows.unit.variables)}
    firsts: list[Index] = []
    stops: list[Index] = []
    for margin in margins:
        step, rest = _along(bounded(margin, inside), block)
        if {v.name for v in rest.variables} - {rows.access.tile}:
            continue  # threads of a block may differ in it
        if step < 0:
            stops.append(rest // -step + 1)
        elif step > 0:
            firsts.append((rest * -1 + (step - 1)) // step)
    firsts = [one for one in firsts if one.hi > 0]
    stops = [one for one in stops if one.lo < block.extent]
    if not (firsts or stops):
        return None
    return Range(firsts[0] if firsts else None, _least(stops, block.extent))


def _least(stops: Sequence[Index], most: int) -> Expr:
    """The least of some integers and of `most`."""
    if len(stops) == 1 and stops[0].hi <= most:
        return Integer(stops[0])
    found: Expr = number(most)
    for one in stops:
        found = least(INT, found, Integer(one))
    return found


def _along(index: Index, along: Var) -> tuple[int, Index]:
    """How an index changes with a variable, 0 where not at all or not evenly, and what is left."""
    step, rest = 0, constant(index.const)
    for term, coefficient in index.terms:
        part = Index(((term, coefficient),))
        if term == along:
            step = coefficient
        elif along in part.variables:
            return 0, index
        else:
            rest += part
    return step, rest
