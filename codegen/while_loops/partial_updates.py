"""Where carried values live: in registers, or in memory that iterations write parts of.

A carried array lives in memory if an iteration only replaces parts of it, as in the stacks of a
scan or the tables of dynamic programming. It is stored in the output that it becomes. All else is
in registers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.maps import position
from fusionstitch.codegen.while_loops.flat import Carried, Flat
from fusionstitch.codegen.while_loops.rows import Rows
from fusionstitch.codegen.while_loops.trips import Counter
from fusionstitch.hlo.graph import Op

#: Elements of one row that are kept in registers.
MOST_IN_REGISTERS = 256


@dataclass(frozen=True, eq=False)
class Update:
    """A part of an array in memory that an iteration replaces: by `value`, from `starts` on, where
    all `conditions` hold."""

    value: Op
    starts: tuple[Op, ...]
    conditions: tuple[Op, ...]


def updates(flat: Flat, carried: Carried) -> tuple[Update, ...] | None:
    """The parts of a carried array that an iteration replaces, in their order; None if it makes a
    new array."""
    found = list(_updates(flat.root(carried.next), flat.parameter(carried.inside), ()))
    if not found or None in found:
        return None
    return tuple(one for one in found if one is not None)


def _updates(op: Op, previous: Op, conditions: tuple[Op, ...]) -> Iterator[Update | None]:
    """None stands for what is no update."""
    if op is previous:
        return
    if op.opcode == "dynamic-update-slice":
        yield from _updates(op.operands[0], previous, conditions)
        yield Update(op.operands[1], op.operands[2:], conditions)
    elif op.opcode == "select" and op.operands[2] is previous:
        yield from _updates(op.operands[1], previous, (*conditions, op.operands[0]))
    else:
        yield None


def replacing(flat: Flat, carried: Carried) -> list[Op]:
    """The ops that replace parts of a carried array, the last one first."""
    inside, op = flat.parameter(carried.inside), flat.root(carried.next)
    chain = list[Op]()
    while op is not inside:
        chain.append(op)
        op = op.operands[1 if op.opcode == "select" else 0]
    return chain


def read_by_others(flat: Flat, carried: Carried) -> bool:
    """Whether an iteration reads an array of which it replaces parts, or what comes of that."""
    last = flat.root(carried.next)
    chain = {*replacing(flat, carried), flat.parameter(carried.inside)}
    readers = {u for op in chain - {last} for u in flat.graph.users[op.id]} - chain
    others = (op.operands[:1] if op.opcode == "select" else op.operands[1:] for op in chain)
    itself = any(o in chain for operands in others for o in operands)
    once = flat.graph.root.operands.count(last) == 1
    return bool(readers) or itself or not once or flat.graph.users[last.id] != (flat.graph.root,)


def is_whole(
    flat: Flat, carried: Carried, parts: tuple[Update, ...], count: Counter, step: str
) -> bool:
    """Whether the iterations replace every element, so that nothing of the first value is left.
    The counter's parameter is annotated with what it counts, in the variable `step`."""
    inside, [part, *more] = flat.parameter(carried.inside), parts
    if more or part.conditions:
        return False
    stepped = []
    for start, n, size in zip(part.starts, inside.dims, part.value.dims, strict=True):
        if n == size:
            continue
        at = position(start, (), n - size + 1)
        if {v.name for v in at.variables} != {step} or len(at.terms) != 1 or size != 1:
            return False
        stepped.append(
            abs(at.terms[0][1]) == 1 and at.lo == 0 and at.hi == n - 1 == count.trips - 1
        )
    return stepped in ([], [True]) and bool(stepped or count.trips)


def fits(rows: Rows, op: Op) -> bool:
    """Whether a thread can keep what it has of `op` in registers."""
    return math.prod(rows.own(op)) <= MOST_IN_REGISTERS
