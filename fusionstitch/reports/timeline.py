"""What runs when, by the model: the kernels of a call under XLA and stitched, and our passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.trips import counted
from fusionstitch.reports import units
from fusionstitch.reports.lines import source_lines
from fusionstitch.reports.units import Unit

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.plan.plan import Plan


@dataclass(frozen=True, eq=False)
class Span:
    """A kernel, or a loop or branch with what runs in it `times` times; `us` is all of that.

    `kernel` names a kernel of ours and `scope` what its values cross; both are empty for XLA's.
    """

    name: str
    us: float
    ops: int
    source: tuple[str, ...] = ()
    kernel: str = ""
    scope: str = ""
    times: int = 1
    inside: tuple[Span, ...] = ()


def under_xla(stitched: Stitched) -> list[Span]:
    """The program left to XLA."""
    if not stitched.plans:
        return []
    whole = {
        op.origin: dict(one.chosen.facts.facts)["turns"]
        for one in stitched.stitches
        for op in one.chosen.pattern.ops
        if op.opcode == "while"
    }
    return list(_xla(stitched.plans[-1].program, stitched, whole))


def ours(stitched: Stitched) -> list[Span]:
    """The program with its plan carried out."""
    if not stitched.plans:
        return []
    plans = {plan.program: plan for plan in stitched.plans}
    return list(_ours(stitched.plans[-1], plans, stitched))


def kernels(spans: Sequence[Span]) -> Iterator[Span]:
    """The kernels among spans, those in loops once."""
    for span in spans:
        if span.inside:
            yield from kernels(span.inside)
        else:
            yield span


def _xla(graph: Graph, stitched: Stitched, whole: Mapping[int | None, Any]) -> Iterator[Span]:
    """`whole` says how often loops turn that became kernels: what the host adds is in their price,
    as it is in the plan's."""
    for unit in units.under_xla(graph, stitched):
        if unit.kind == units.CONTROL:
            [op] = units.members(graph, unit)
            inside = [s for called in op.called for s in _xla(called, stitched, whole)]
            if op.origin in whole:
                turns, _, known = whole[op.origin]
                device = stitched.device
                beside = device.loop_turn_us + (0.0 if known else device.loop_wait_us)
                yield _control(op, [*inside, Span("the host turns the loop", beside, 0)], turns)
            else:
                yield _control(op, inside)
        elif unit.is_kernel:
            yield _kernel(graph, unit)


def _ours(plan: Plan, plans: Mapping[Graph, Plan], stitched: Stitched) -> Iterator[Span]:
    for unit in units.stitched(plan, stitched):
        if unit.kind == units.CONTROL:
            [op] = units.members(plan.graph, unit)
            bodies = [plans[called] for called in op.called if called in plans]
            yield _control(op, [s for body in bodies for s in _ours(body, plans, stitched)])
        elif unit.is_kernel:
            yield _kernel(plan.graph, unit)


def _kernel(graph: Graph, unit: Unit) -> Span:
    ops = list(units.members(graph, unit))
    source, us = tuple(source_lines(ops)), unit.us or 0.0
    if unit.stitch is None:
        return Span(title(graph, unit), us, len(ops), source)
    name, scope = unit.stitch.kernel.name, unit.stitch.chosen.facts.scope
    return Span(title(graph, unit), us, len(ops), source, name, scope)


def title(graph: Graph, unit: Unit) -> str:
    """What a unit is called: a kernel of ours by its name, one of XLA's by what it ends with."""
    if unit.stitch is not None:
        return unit.stitch.kernel.name
    last = graph.ops[unit.bits.bit_length() - 1]
    what = last.name or last.opcode
    return f"{unit.hero} {what}" if unit.kind == units.XLA else what


def _control(op: Op, inside: Sequence[Span], turns: int | None = None) -> Span:
    """A loop or a branch with what runs in it."""
    times = turns or (trips(op) if op.opcode == "while" else None) or 1
    us = times * sum(span.us for span in inside)
    name = op.name or op.opcode
    return Span(name, us, 1, tuple(source_lines([op])), times=times, inside=tuple(inside))


def trips(loop: Op) -> int | None:
    """How often a loop turns, where the program says so."""
    found = counted(loop)
    return None if found is None else found.trips
