"""Replaces queries of all rows in the body of a loop by an iteration count, in a module's proto. A
separate loop before it counts in how many iterations the answer is yes.

The two loops may round differently if they are compiled apart. So the loop counts as well. If it
gets another number, the answers were wrong, and the original loop runs once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusionstitch.hlo.copying import copied, sort_computations
from fusionstitch.hlo.edit import Editor, put
from fusionstitch.hlo.graph import Graph, Module, Op, Shape
from fusionstitch.hlo.loop_editor import Element, LoopEditor, edit_loops
from fusionstitch.hlo.marks import ORIGINAL
from fusionstitch.hlo.row_counts import COUNT, largest, needed, operand_in_body, spread

#: The count of a row whose mask never falls.
ALWAYS = int(np.iinfo(np.int32).max)


@dataclass(frozen=True, eq=False)
class RowQuery:
    """A query in the body of a loop: whether any row has its mask set. A mask that was cleared is
    never set again, and a row that stops keeps its mask.

    Attributes:
        queries: the ids of the instructions that make the query
        mask: the element of what the loop carries that is the mask
        ends: the id of the condition's instruction that tests whether any row goes on
        going: the element that is the mask of those that do; None: the operand of `ends`
    """

    graph: Graph
    loop: Op
    queries: frozenset[int]
    mask: int
    ends: int
    going: int | None


def count_queries(module: Module, found: Sequence[RowQuery]) -> bool:
    """Edits the module's proto, which is to be read again where this is true."""
    changed = edit_loops(module, found, _count_queries)
    if changed:
        sort_computations(module.proto)
    return changed


def _count_queries(loop: LoopEditor, found: RowQuery) -> None:
    outer, inner, source = loop.outer, loop.inner, loop.instruction
    around = outer.computation
    readers = [one for one in around.instructions if source.id in one.operand_ids]
    used = {around.root_id, *(i for one in around.instructions for i in one.operand_ids)}
    used_indices = {one.tuple_index for one in readers if one.id in used}
    again = _copied(loop)[0]
    left = _most(loop, found)
    scalar = Shape(COUNT, ())
    inside = loop.read(loop.carried, scalar, source)
    zero, one = inner.zero(COUNT, source), inner.constant(COUNT, 1, source)
    less = inner.add("subtract", scalar, [inside.id, one.id], source)
    after = inner.add("maximum", scalar, [less.id, zero.id], source)
    query = inner.add("compare", Shape("pred", ()), [inside.id, zero.id], source)
    query.comparison_direction = "GT"
    rows = _Rows(loop, found, found.ends, loop.carried + 1)
    count = rows.count()
    inner.replace(found.queries, query)
    loop.widen([Element(scalar, left.id, after.id), count])
    wrong = outer.add("compare", Shape("pred", ()), [rows.most().id, left.id], source)
    wrong.comparison_direction = "NE"
    _run(again, loop, found, wrong, used_indices)
    for reader in readers:
        put(reader.operand_ids, [again.instruction.id])


def _copied(loop: LoopEditor) -> tuple[LoopEditor, Mapping[int, int], Mapping[int, int]]:
    """A copy of a loop, and the ids of its body and condition by those that they are copies of."""
    condition, body = (copied(loop.outer, one) for one in loop.computations)
    made = loop.outer.bring(loop.instruction, loop.instruction.operand_ids)
    put(made.called_computation_ids, [body[0].id, condition[0].id])
    made.backend_config = b""  # it may hold the number of iterations
    return LoopEditor(loop.outer, made), body[1], condition[1]


def _run(
    again: LoopEditor, loop: LoopEditor, found: RowQuery, wrong: Any, used_indices: Collection[int]
) -> None:
    """The original loop. It runs from the begin if the answers were `wrong`; else it has no
    iterations, and returns the results there are, those of `used_indices`. It is left to XLA, since
    it hardly ever runs."""
    outer, source = loop.outer, loop.instruction
    firsts = [again.begin(index).id for index in range(again.carried)]
    for index in sorted(used_indices):
        shape = found.loop.shape.elements[index]
        chosen = spread(outer, wrong, Shape("pred", shape.dims)) if shape.dims else wrong
        operands = [chosen.id, firsts[index], loop.result(index, shape).id]
        firsts[index] = outer.add("select", shape, operands, source).id
    again.given = outer.bring(again.given, firsts)
    condition, flag = again.condition, Shape("pred", ())
    runs = condition.add("get-tuple-element", flag, [again.parameters[1].id], source)
    runs.tuple_index = again.carried
    more = condition.by_id[condition.computation.root_id]
    condition.computation.root_id = condition.add("and", flag, [more.id, runs.id], source).id
    inside = again.read(again.carried, flag, source)
    again.widen([Element(flag, wrong.id, inside.id)])
    again.instruction.metadata.op_name += f"/{ORIGINAL}"
    again.close()


def _most(loop: LoopEditor, found: RowQuery) -> Any:
    """The most iterations in which any row has the mask, counted by a copy of the loop that runs
    until no row that goes on has it."""
    counting, inside, ids = _copied(loop)
    rows = _Rows(counting, found, ids[found.ends], counting.carried)
    count = rows.count()
    # as long as the copy runs the answer is yes, and its rows are those of the loop
    queries = {inside[ident] for ident in found.queries}
    counting.inner.replace(queries, counting.inner.constant("pred", 1, loop.instruction))
    rows.end()
    counting.widen([count])
    rows.forget()
    counting.close()
    return rows.most()


class _Rows:
    """The rows of a loop, or of a copy of it, whose condition's instruction `ends` tests whether
    any goes on; the loop carries their counts as element `counted`."""

    def __init__(self, loop: LoopEditor, found: RowQuery, ends: int, counted: int):
        self.loop, self.found, self.ends, self.counted = loop, found, ends, counted
        self.shape: Shape = found.loop.shape.elements[found.mask]
        self.counts = Shape(COUNT, self.shape.dims)

    def count(self) -> Element:
        """For each row the iterations in which it has the mask."""
        inner, outer, source = self.loop.inner, self.loop.outer, self.loop.instruction
        mask = self.loop.read(self.found.mask, self.shape, source)
        has = inner.add("and", self.shape, [mask.id, self.going().id], source)
        one = inner.add("convert", self.counts, [has.id], source)
        before = self.loop.read(self.counted, self.counts, source)
        after = inner.add("add", self.counts, [before.id, one.id], source)
        zeros = spread(outer, outer.zero(COUNT, source), self.counts)
        return Element(self.counts, zeros.id, after.id)

    def most(self) -> Any:
        """The most iterations of any row, around the loop."""
        outer, source = self.loop.outer, self.loop.instruction
        always = spread(outer, outer.constant(COUNT, ALWAYS, source), self.counts)
        count = self.loop.result(self.counted, self.counts)
        mask = self.loop.result(self.found.mask, self.shape)
        # a row that still has the mask stopped with it, so its answer stays yes to the end
        iterations = outer.add("select", self.counts, [mask.id, always.id, count.id], source)
        return largest(outer, iterations, self.counts)

    def going(self) -> Any:
        """The mask of the rows that go on, in the body."""
        if self.found.going is not None:
            return self.loop.read(self.found.going, self.shape, self.loop.instruction)
        return operand_in_body(self.loop, self.ends)

    def end(self) -> None:
        """Has the loop end where no row goes on that has the mask."""
        ends = self.loop.condition.by_id[self.ends]
        going, *rest = ends.operand_ids
        if self.found.going is not None:
            going = self.element(self.found.going).id
        operands = [self.element(self.found.mask).id, going]
        both = self.loop.condition.add("and", self.shape, operands, self.loop.instruction)
        put(ends.operand_ids, [both.id, *rest])

    def forget(self) -> None:
        """Makes elements invariant that neither the count nor the end of the loop needs."""
        root = self.loop.root
        needed = {self.found.mask, self.counted}
        new = needed | set(_elements(self.loop.condition, self.loop.condition.computation.root_id))
        while new:
            needed |= new
            made = [root.operand_ids[index] for index in sorted(new)]
            new = set(_elements(self.loop.inner, *made)) - needed
        for index in sorted(set(range(self.counted)) - needed):
            shape = self.found.loop.shape.elements[index]
            root.operand_ids[index] = self.loop.read(index, shape, self.loop.instruction).id

    def element(self, index: int) -> Any:
        """A mask that the loop carries, as the condition has it."""
        operands = [self.loop.parameters[1].id]
        made = self.loop.condition.add(
            "get-tuple-element", self.shape, operands, self.loop.instruction
        )
        made.tuple_index = index
        return made


def _elements(editor: Editor, *used_indices: int) -> Iterator[int]:
    """The elements of what a loop carries that instructions are made of."""
    for one in needed(editor, *used_indices):
        read = one.opcode == "get-tuple-element" and editor.by_id[one.operand_ids[0]]
        if read and read.opcode == "parameter":
            yield one.tuple_index
