"""Groups with loops that their data ends, as they are measured: ended by a count on both sides."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.whiles.trips import UNKNOWN_TRIPS
from fusionstitch.compiler.workpiece import Workpiece
from fusionstitch.costmodel.devices import Device
from fusionstitch.guard.groups import Group
from fusionstitch.guard.sides import taken_out
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.extract import instruction_of
from fusionstitch.hlo.fixed_turns import uncounted, with_fixed_turns
from fusionstitch.hlo.graph import Graph, Module, Op, inside
from fusionstitch.hlo.simplify import simplify_module
from fusionstitch.hlo.trips import counted
from fusionstitch.patterns.pattern import Pattern


@dataclass(frozen=True, eq=False)
class Ended:
    """The ops of a group as a module of their own, whose loops end by a count; the chosen
    `patterns` in it; and `waits_us`: what XLA takes beside that where the data ends the loops,
    because the host waits to hear whether there is another iteration."""

    module: Module
    patterns: tuple[Pattern, ...]
    waits_us: float


def is_ended_by_data(group: Group) -> bool:
    """Whether a loop among the ops of a group is not known to end by a count."""
    loops = [op for one in group.near.ops for op in (one, *inside(one)) if op.opcode == "while"]
    return not all(map(counted, loops))


def ended(work: Workpiece, group: Group, device: Device) -> Ended:
    """Raises VerifyError where the ops cannot be taken out, or a loop be ended by a count."""
    part = taken_out(work, group)
    waits = _waits(part.entry, 1)
    module = simplify_module(with_fixed_turns(part, UNKNOWN_TRIPS))
    if uncounted(module.entry):
        raise VerifyError("A loop cannot be ended by a count.")
    patterns = tuple(_moved(one.pattern, group, module.entry) for one in group.chosen)
    return Ended(module, patterns, waits * device.loop_wait_us)


def _waits(graph: Graph, times: int) -> int:
    """How often loops that the data ends ask, in a graph that runs so many times."""
    waits = 0
    for op in graph:
        if op.opcode != "while":
            waits += sum(_waits(called, times) for called in op.called)
            continue
        found = counted(op)
        turns = times * (found.trips if found else UNKNOWN_TRIPS)
        waits += (0 if found else turns) + sum(_waits(called, turns) for called in op.called)
    return waits


def _moved(pattern: Pattern, group: Group, entry: Graph) -> Pattern:
    """What a pattern is in the group's module: what leads from its inputs to its outputs."""
    graph = pattern.graph
    there = {instruction_of(op, entry.aliases): op for op in entry if op.origin is not None}
    border = zip(group.near.inputs, entry.parameters, strict=True)
    there |= {instruction_of(op, graph.aliases): parameter for op, parameter in border}
    try:
        given = {there[instruction_of(op, graph.aliases)].id for op in pattern.inputs}
        todo = [there[instruction_of(op, graph.aliases)] for op in pattern.outputs]
    except KeyError:
        raise VerifyError("A pattern is not in the module of its group.") from None
    found: dict[int, Op] = {}
    while todo:
        op = todo.pop()
        if op.id not in found and op.id not in given:
            found[op.id] = op
            todo += op.operands
    return Pattern(entry, sum(1 << ident for ident in found), pattern.rule)
