"""Cached values: expensive elementwise ops that several loops of a group would compute again.

Such an op becomes an optional stage of the group (an `S` schedule of the paper's templates): its
value stays in registers or shared memory. A reader that cannot access it there recomputes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusionstitch.codegen.loops.groups import Group, shared_bytes
from fusionstitch.codegen.loops.stages import Stage, expensive, new_stage, trace
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of


def cache_values(groups: list[Group], graph: Graph, device: Device) -> list[Group]:
    """`groups` with optional stages added wherever a value is worth keeping."""
    number = sum(len(g.stages) for g in groups)
    whole = {s.op.id: s for g in groups for s in g.stages if s.whole}
    result = []
    for group in groups:
        if len(group.stages) > 1 and not group.is_flat and not group.streamed:
            group, number = _cache_in(group, graph, dict(whole), number, device)
        result.append(group)
    return result


def _cache_in(
    group: Group, graph: Graph, whole: dict[int, Stage], number: int, device: Device
) -> tuple[Group, int]:
    inlined = {i for s in group.stages for i in s.inlined}
    inlined |= {s.op.id for s in group.stages if not s.whole}
    for op_id in sorted(inlined, reverse=True):  # the last values first: they stand on the others
        op = graph.ops[op_id]
        if not (expensive(op) and kind_of(op.opcode) is Kind.ELEMENTWISE):
            continue
        readers = [s for s in group.stages if op_id in s.inlined]
        if not _is_worth_keeping(op, readers, group):
            continue
        own = next((s for s in group.stages if s.op is op), None)
        stage = own or new_stage(op, number, optional=True)
        number += 1
        trial = {**whole, op_id: stage}
        retrace((stage, *readers), trial)
        stages = group.stages if own else [*group.stages, stage]
        bigger = Group.of(stages, device)
        if bigger.tiles == group.tiles and shared_bytes(bigger) <= device.shared_per_block:
            group, whole = bigger, trial
            continue
        retrace((*readers, own) if own else readers, whole)
    return group, number


def retrace(readers: Iterable[Stage], whole: Mapping[int, Stage]) -> None:
    """Has stages read the values of `whole` instead of computing them again, each but its own."""
    for reader in readers:
        trace(reader, {i: s for i, s in whole.items() if s is not reader})


def _is_worth_keeping(op: Op, readers: list[Stage], group: Group) -> bool:
    """Read by several loops, or by a dot that would compute each element many times."""
    if len(readers) > 1:
        return True
    return any(
        r.op.opcode == "dot" and r.op.shape.size * group.inner_size(r) > op.shape.size
        for r in readers
    )
