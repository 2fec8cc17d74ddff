"""Which outputs may be written over an input: every thread reads an element before it writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.schedule import KernelPlan, NestPlan
from fusionstitch.hlo.graph import Graph, Op

_Layout = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class _Site:
    """Where a stage is computed, and as which of its nest."""

    phase: int
    nest: NestPlan
    level: int
    role: Role
    number: int


def in_place(graph: Graph, plan: KernelPlan) -> tuple[tuple[int, int], ...]:
    """All (output, input) pairs that may share memory; see `one_to_one` for using several."""
    return tuple(pair for pair, _ in pairs(graph, plan))


def read_by_owners(graph: Graph, found: Iterable[tuple[tuple[int, int], bool]]) -> frozenset[int]:
    """The ids of the parameters that may be overwritten where they are read, of the `pairs`: of
    each element only by the thread that reads it, and no other may."""
    return frozenset(graph.parameters[i].id for (_, i), near in found if near)


def pairs(graph: Graph, plan: KernelPlan) -> Iterator[tuple[tuple[int, int], bool]]:
    """The pairs, and whether the input is read in the loops that write the output."""
    sites = {
        stage: _Site(phase, nest, nest.nest.level[stage], nest.nest.role[stage], number)
        for phase, groups in enumerate(plan.phases)
        for group in groups
        for nest in group.nests
        for number, stage in enumerate(nest.nest.stages)
    }
    readers: dict[int, list[tuple[Stage, Indices]]] = {}
    for stage in sites:
        for op, index in stage.loads:
            readers.setdefault(op.id, []).append((stage, index))
    writers = {s.op.id: s for s in sites if not s.optional}
    # of the pieces of an output, the one that is written first
    for stage in sorted(sites, key=lambda stage: -sites[stage].phase):
        writers |= {cut.output.id: stage for cut in stage.cuts}
    # by layout: what is read for the last time in a phase; by nest: what is read there at all
    ended: dict[_Layout, dict[int, list[int]]] = {}
    near: dict[NestPlan, list[int]] = {}
    for position, parameter in enumerate(graph.parameters):
        reads = [sites[reader] for reader, _ in readers.get(parameter.id, ())]
        if reads:
            last = max(site.phase for site in reads)
            ended.setdefault(_layout(parameter), {}).setdefault(last, []).append(position)
            for nest in dict.fromkeys(site.nest for site in reads if site.phase == last):
                near.setdefault(nest, []).append(position)
    for number, output in enumerate(graph.root.operands):
        writer = writers[output.id]
        phases = ended.get(_layout(output), {})
        early = (p for phase in phases if phase < sites[writer].phase for p in phases[phase])
        found = dict.fromkeys(early, False)
        for position in near.get(sites[writer].nest, ()):
            parameter = graph.parameters[position]
            if _layout(parameter) == _layout(output) and all(
                _is_over(reader, index, output, writer, sites)
                for reader, index in readers[parameter.id]
            ):
                found[position] = True
        yield from (((number, position), found[position]) for position in sorted(found))


def _is_over(
    reader: Stage, index: Indices, output: Op, writer: Stage, sites: Mapping[Stage, _Site]
) -> bool:
    """Whether `reader` has read an element before `writer` overwrites it with one of `output`.

    Either a grid barrier lies between the two, or both visit the element in one loop, the reader in
    no later step. All values of a step are computed before its first store, except those per row of
    a register tile, which are computed and stored one by one. One thread of a team stores values
    per row, while others may not have read yet: theirs must not matter. A sliced output never
    overwrites an input, because its elements move.
    """
    read, write = sites[reader], sites[writer]
    if read.phase < write.phase:
        return True
    together = read.nest is write.nest and read.role is write.role and read.level <= write.level
    if not together or index != reader.dims or reader.op.dims != writer.op.dims:
        return False
    if output is not writer.op:
        return False
    if read.role in (Role.SWEEP, Role.RESULT):
        return True
    others = any(
        producer is reader for stage in read.nest.nest.stages for producer, _ in stage.reads
    )
    one_by_one = read.nest.tile is not None and read.level == write.level
    in_order = not one_by_one or read.number <= write.number
    return read.role is Role.ROW and in_order and (read.nest.teams.threads == 1 or not others)


def one_to_one(pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Of (output, input) pairs, the first ones in which no output and no input occurs twice."""
    outputs: set[int] = set()
    chosen: dict[int, int] = {}
    for output, operand in pairs:
        if output not in outputs and operand not in chosen:
            outputs.add(output)
            chosen[operand] = output
    return tuple((output, operand) for operand, output in chosen.items())


def _layout(op: Op) -> _Layout:
    return op.dims, op.dtype  # XLA gives one buffer to equal shapes only
