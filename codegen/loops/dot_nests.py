"""Dots in nests of register tiles: which loops a dot may share with what reads or feeds it.

In such a nest a team of lanes holds several rows at once, all their elements along the sweep in
registers. A dot over rows and columns is computed into these registers (scores of an attention); a
dot that sums along the columns adds up a few results per row (its weighted values). So a dot, a
softmax and a dot need one loop and no memory between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.text.types import c_type
from fusionstitch.hlo.graph import Op

#: Elements of a row that a team can hold: 32 lanes with 16 registers each.
REGISTER_ROW = 512
#: Shortest row that is worth a team of its own.
SHORT_ROW = 4
#: Elements summed into one element of a held row.
REGISTER_DEPTH = 256
#: Rows per multiprocessor from which on a chain of dots fills the device row by row.
MANY_ROWS = 64
#: Results per row that a dot along the columns may add up, and on tensor cores, to which rows of at
#: most so many elements go.
REGISTER_RESULTS, TENSOR_RESULTS, TENSOR_ROW = 16, 64, 128
#: Results per row where the columns are walked block by block.
STREAMED_RESULTS = 128

#: The rows and the inner axes of a nest, in memory order.
Shape = tuple[tuple[int, ...], tuple[int, ...]]


def shape_of_reader(group: Group, stage: Stage) -> Shape | None:
    """The loop of a reduction that reads the dot `stage` along a row, if the dot can be in it."""
    if stage.op.opcode != "dot" or group.inner_size(stage) > REGISTER_DEPTH:
        return None
    own = sorted(group.in_block(stage))
    elements = {stage}  # and what is computed from them one by one
    for other in group.stages:
        if not elements & {producer for producer, _ in other.reads}:
            continue
        if not other.is_reduction:
            elements |= {other} if sorted(group.in_block(other)) == own else set()
            continue
        rows_in_all = stage.op.shape.size // max(1, group.inner_size(other))
        if other.op.opcode == "dot" and rows_in_all < MANY_ROWS * group.device.sm_count:
            continue  # more threads can work on the two dots apart
        inner = tuple(group.axes.inner_leaves(other))
        rows = tuple(x for x in group.in_block(other) if x in own and x not in inner)
        fits = SHORT_ROW <= group.axes.size(inner) <= REGISTER_ROW
        if fits and sorted(rows + inner) == own and gives_elements(group, rows, inner, stage):
            return rows, inner
    return None


def gives_elements(group: Group, rows: Sequence[int], inner: Sequence[int], stage: Stage) -> bool:
    """True if a dot's results are the elements of the rows, so that a team can hold them."""
    own, summed = set(group.in_block(stage)), set(group.axes.inner_leaves(stage))
    fits = 1 < group.axes.size(inner) <= REGISTER_ROW or group.streamed
    return stage.op.opcode == "dot" and fits and own == {*rows, *inner} and not summed & own


def sums_columns(group: Group, rows: Sequence[int], inner: Sequence[int], stage: Stage) -> bool:
    """True if a dot sums along the rows to a few results each, which a thread can add up."""
    own, summed = set(group.in_block(stage)), set(group.axes.inner_leaves(stage))
    if stage.op.opcode != "dot" or (group.axes.size(inner) > REGISTER_ROW and not group.streamed):
        return False
    free = own - set(rows)
    floats = all(c_type(o.dtype).compute == "float" for o in (stage.op, *stage.op.operands))
    short = group.axes.size(inner) <= TENSOR_ROW
    most = TENSOR_RESULTS if floats and short else REGISTER_RESULTS
    most = STREAMED_RESULTS if group.streamed else most
    few = 1 < group.axes.size(sorted(free)) <= most
    return summed == set(inner) and set(rows) <= own and not free & set(inner) and few


def sums_of_dots(dots: Sequence[Stage], readers: Sequence[Stage]) -> list[tuple[list[Stage], Op]]:
    """`dots` by what they add up to: a dot alone, or several whose results only meet in one sum, as
    the gradients of a weight that is used again and again do. With the op that is their sum.

    `readers` are the stages that compute with the dots' results, element by element.
    """
    users: dict[Op, int] = {}
    adds: list[Op] = []
    todo, known = [s.op for s in readers], set[Op]()
    while todo:
        op = todo.pop()
        if op in known or op.opcode in ("parameter", "dot"):
            continue
        known.add(op)
        todo.extend(op.operands)
        for operand in op.operands:
            users[operand] = users.get(operand, 0) + 1
        if op.opcode == "add" and op.dtype == "f32":
            adds.append(op)
    sums: dict[Op, list[Stage]] = {dot.op: [dot] for dot in dots}
    read = {s.op for s in readers}
    for op in sorted(adds, key=lambda op: op.id):
        parts = [o for o in op.operands if o in sums and users[o] == 1 and o not in read]
        if len(set(parts)) == 2:
            sums[op] = sums.pop(parts[0]) + sums.pop(parts[1])
    return [(stages, op) for op, stages in sums.items()]
