"""Which outputs may be written over an input: every thread reads an element before it writes it."""

from __future__ import annotations

from collections.abc import Iterable

from codegen.nests import Place
from codegen.schedule import KernelPlan
from codegen.stages import Stage
from hlo.graph import ITEM_BYTES, Graph, Op


def in_place(graph: Graph, plan: KernelPlan) -> tuple[tuple[int, int], ...]:
    """All (output, input) pairs that may share memory; see `one_to_one` for using several.

    An input qualifies if the whole kernel reads it only in the loop that writes the output, only
    at the element being written, and never in a loop step after the write: all values of a step
    are computed before its first store.
    """
    readers: dict[int, list[tuple[Stage, bool]]] = {}
    home: dict[Stage, tuple[int, int]] = {}
    level: dict[Stage, int] = {}
    place: dict[Stage, Place] = {}
    for g, group in enumerate(plan.groups):
        for n, nest in enumerate(group.nests):
            for stage in nest.nest.stages:
                home[stage] = g, n
                level[stage], place[stage] = nest.nest.level[stage], nest.nest.place[stage]
                for op, index in stage.loads:
                    own = index == stage.dims
                    readers.setdefault(op.id, []).append((stage, own))
    by_op = {s.op.id: s for s in home if not s.optional}
    pairs: list[tuple[int, int]] = []
    for number, output in enumerate(graph.root.operands):
        writer = by_op[output.id]
        if place[writer] is not Place.SWEEP:
            continue
        for position, parameter in enumerate(graph.parameters):
            if not _same_layout(parameter, output):
                continue
            reads = readers.get(parameter.id, [])
            if reads and all(
                own
                and home[reader] == home[writer]
                and place[reader] is Place.SWEEP
                and level[reader] <= level[writer]
                and reader.op.dims == writer.op.dims
                for reader, own in reads
            ):
                pairs.append((number, position))
    return tuple(pairs)


def one_to_one(pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Of (output, input) pairs, the first ones in which no output and no input occurs twice."""
    outputs: set[int] = set()
    chosen: dict[int, int] = {}
    for output, operand in pairs:
        if output not in outputs and operand not in chosen:
            outputs.add(output)
            chosen[operand] = output
    return tuple((output, operand) for operand, output in chosen.items())


def _same_layout(a: Op, b: Op) -> bool:
    return a.dims == b.dims and ITEM_BYTES[a.dtype] == ITEM_BYTES[b.dtype]
