"""The floors of a program: of all of it, of its kernels, and of what lies between the ops that
libraries keep, with what XLA and we take there by the model."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusionstitch.costmodel.floor import Floor, floor_of, program_floor
from fusionstitch.costmodel.least_work import iterations, live
from fusionstitch.hlo import schema
from fusionstitch.hlo.brief import brief, count
from fusionstitch.hlo.components import components
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.patterns.fusible import fusible_ops
from fusionstitch.patterns.pattern import Pattern, free_bits
from fusionstitch.plan.plan import Rejected
from fusionstitch.reports import counting, units
from fusionstitch.reports.answers import ALONE, promise
from fusionstitch.reports.units import Unit

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.plan.plan import Plan

#: Kinds of ops that a part is named after, the first that there is.
NAMING = (Kind.DOT, Kind.REDUCTION, Kind.WINDOW, Kind.UPDATE, Kind.ELEMENTWISE, Kind.MOVEMENT)


@dataclass(frozen=True, eq=False)
class Part:
    """Ops of a graph that kernels share, or a loop that is no kernel. Times are modelled, of one of
    `runs` in a call.

    Attributes:
        graph: whose ops they are
        ops: the ops
        runs: how often a call runs them
        floor: what they cannot go below
        xla_us: what XLA takes
        ours_us: what the plan takes, XLA's kernels for what it leaves included
        kernels: ours among them, by name
        longest: the ops of the kernel that takes longest in the plan, first what says best what it
            does
        reason: why the plan leaves that kernel to XLA; empty for one of ours
    """

    graph: Graph
    ops: tuple[Op, ...]
    runs: int
    floor: Floor
    xla_us: float
    ours_us: float
    kernels: tuple[str, ...]
    longest: tuple[Op, ...]
    reason: str

    @property
    def lost_us(self) -> float:
        """What a call of ours takes above the floor."""
        return self.runs * (self.ours_us - self.floor.us)

    @property
    def lost_xla_us(self) -> float:
        """What a call takes above the floor under XLA."""
        return self.runs * (self.xla_us - self.floor.us)

    def __repr__(self) -> str:
        return brief(
            f"Part: {count(self.ops, 'op')} of {self.graph.name}, floor {self.floor.us:.2f} us, "
            f"{self.xla_us:.2f} us under XLA, {self.ours_us:.2f} us stitched"
        )


@dataclass(frozen=True)
class Floors:
    """The floors of a program.

    Attributes:
        whole: of all its ops
        priced: of those that the model has a time for, which modelled times are compared with
    """

    whole: Floor
    priced: Floor

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "total": self.whole.us,
            "priced": self.priced.us,
            "bound_by": self.whole.bound_by,
            "units": dict(self.whole.units),
            "at_least": self.whole.at_least,
        }

    def over(
        self, measured: tuple[float | None, float | None], modelled: tuple[float, float]
    ) -> dict[str, Any]:
        """How many times the floor XLA and we take, by what was measured if both were."""
        is_measured = None not in measured
        floor, times = (self.whole, measured) if is_measured else (self.priced, modelled)
        xla, ours = map(floor.over, times)
        return {"xla": xla, "fusionstitch": ours, "measured": is_measured}


def floors(stitched: Stitched, module: bytes) -> Floors:
    """Those of a stitched program; `module` is what was lowered, for one that was not planned."""
    if not stitched.plans:
        graph = counting.entry(module)
        whole = program_floor(graph, stitched.device, donated(module))
        return Floors(whole, whole)
    graph, device = stitched.plans[-1].program, stitched.device
    given = donated(stitched.given or module)
    unpriced = 0
    for unit in units.under_xla(graph, stitched):
        unpriced |= unit.bits if unit.kind == units.OTHER and unit.us is None else 0
    bits = sum(1 << op.id for op in live(graph)) & ~unpriced
    return Floors(program_floor(graph, device, given), floor_of(graph, bits, device, donated=given))


def donated(module: bytes) -> frozenset[int]:
    """The numbers of the parameters of an HloModuleProto that its results may overwrite."""
    proto = schema.HloModule.FromString(module)
    return frozenset(entry.parameter_number for entry in proto.input_output_alias.entries)


def pattern_floor(pattern: Pattern, stitched: Stitched) -> Floor:
    """That of the kernel of a pattern, in one of its runs."""
    bits = sum(1 << op.id for op in pattern.ops)
    inner = pattern.graph is not stitched.plans[-1].graph
    return floor_of(pattern.graph, bits, stitched.device, inner=inner)


def parts(stitched: Stitched) -> list[Part]:
    """The parts of a program, those that take most above their floors first; what libraries do, and
    what the model has no time for, is in none."""
    repeats = counting.runs_of(stitched.plans)
    found: list[Part] = []
    for plan in stitched.plans:
        if plan.program in _straight(stitched.plans[-1].program):
            found += _Parts(plan, stitched, repeats.get(plan.program, 0)).all()
    return sorted(found, key=lambda part: -max(part.lost_us, part.lost_xla_us))


def _straight(graph: Graph) -> set[Graph]:
    """A graph and those of its branches: what runs outside of loops."""
    found = {graph}
    for op in graph:
        if op.opcode in ("conditional", "call", "async-start"):
            for called in op.called:
                found |= _straight(called)
    return found


class _Parts:
    """The parts of one graph."""

    def __init__(self, plan: Plan, stitched: Stitched, runs: int):
        self.plan, self.stitched, self.runs = plan, stitched, runs
        self.graph, self.device = plan.program, stitched.device
        self.by_name = {op.name: op.id for op in self.graph}
        #: candidates that were turned down, by the names of their ops
        self.rejected: dict[str, list[Rejected]] = {}
        for one in plan.rejected:
            for i in ids(one.bits):
                self.rejected.setdefault(plan.graph.ops[i].name, []).append(one)

    def all(self) -> Iterator[Part]:
        xla = [(unit, unit.bits) for unit in units.under_xla(self.graph, self.stitched)]
        ours = [
            (unit, self.bits(units.members(self.plan.graph, unit)))
            for unit in units.stitched(self.plan, self.stitched)
        ]
        whole_loops = self.loops()
        for bits in self.groups([bits for _, bits in (*xla, *ours)]):
            theirs = [one for one in xla if one[0].us is not None and one[1] & bits]
            own = [one for one in ours if one[0].us is not None and one[1] & bits]
            if theirs and bits & ~whole_loops:
                yield self.part(bits, theirs, own)
        for op in self.graph:
            if op.opcode == "while":
                yield self.loop(op, [unit for unit, bits in ours if bits >> op.id & 1])

    def bits(self, ops: Iterable[Op]) -> int:
        """Ops of the planned graph, among which may be copies, as those of the program."""
        found = 0
        for op in ops:
            found |= 1 << self.by_name.get(op.name, op.id)
        return found

    def loops(self) -> int:
        return sum(1 << op.id for op in self.graph if op.opcode == "while")

    def groups(self, kernels: Iterable[int]) -> Iterator[int]:
        """Components, those joined that a kernel of XLA's or ours spans, with the whole kernel."""
        fusible = fusible_ops(self.graph, self.device).bits
        sets = list(components(self.graph, fusible, free_bits(self.graph)))
        for kernel in kernels:
            joined = [bits for bits in sets if bits & kernel]
            if not joined or kernel & self.loops():
                continue
            rest = [bits for bits in sets if not bits & kernel]
            sets = [*rest, functools.reduce(int.__or__, joined, kernel)]
        return iter(sets)

    def part(self, bits: int, xla: list[tuple[Unit, int]], ours: list[tuple[Unit, int]]) -> Part:
        inner = self.plan is not self.stitched.plans[-1]
        longest, own = max(ours or xla, key=lambda one: one[0].us or 0.0)
        kernels = [unit.stitch.kernel.name for unit, _ in ours if unit.stitch is not None]
        return Part(
            self.graph,
            self.members(bits),
            self.runs,
            floor_of(self.graph, bits, self.device, inner=inner),
            sum(unit.us or 0.0 for unit, _ in xla),
            sum(unit.us or 0.0 for unit, _ in ours),
            tuple(dict.fromkeys(kernels)),
            self.naming(own),
            self.reason(own) if longest.stitch is None else "",
        )

    def members(self, bits: int) -> tuple[Op, ...]:
        return tuple(self.graph.ops[i] for i in ids(bits))

    def naming(self, bits: int) -> tuple[Op, ...]:
        """The ops of a kernel, first what says best what it does."""
        ops = self.members(bits)
        kinds = [kind for kind in NAMING if any(kind_of(op.opcode) is kind for op in ops)]
        named = [op for op in ops if kinds and kind_of(op.opcode) is kinds[0]]
        largest = max(named, key=lambda op: (op.shape.bytes, bool(op.source.file)), default=ops[0])
        return (largest, *(op for op in ops if op is not largest))

    def reason(self, bits: int) -> str:
        """What is said of the most promising candidate with any of these ops."""
        given = {op.name for op in self.members(bits)}
        for fallback in self.stitched.fallbacks:
            if not fallback.ops or given & set(fallback.ops):
                return fallback.reason
        turned_down = [one for name in sorted(given) for one in self.rejected.get(name, ())]
        if not turned_down:
            return ALONE
        return max(turned_down, key=lambda one: _weight(one, len(given))).reason

    def loop(self, loop: Op, units_of: list[Unit]) -> Part:
        """A loop: as XLA runs it, and as the plan does."""
        inner = self.plan is not self.stitched.plans[-1]
        bits = 1 << loop.id
        for user in self.graph.users[loop.id]:
            bits |= (user.opcode == "get-tuple-element") << user.id
        xla_us, ours_us = _loop_us(loop, self.stitched)
        kernels: tuple[str, ...] = ()
        for unit in units_of:
            if unit.stitch is not None:
                kernels = (unit.stitch.kernel.name,)
                xla_us, ours_us = unit.stitch.chosen.xla_us, unit.us or 0.0
        return Part(
            self.graph,
            (loop,),
            self.runs,
            floor_of(self.graph, bits, self.device, inner=inner),
            xla_us,
            ours_us,
            kernels,
            (loop,),
            "" if kernels else self.reason(1 << loop.id),
        )


#: What is said of a loop says more than what is said of an op, and that more than what is said of a
#: pattern.
_TELLING = {"loop": 2, "op": 1}


def _weight(one: Rejected, size: int) -> tuple[int, float, int]:
    """How much a reason tells; of patterns that of the most promising one tells most."""
    return _TELLING.get(one.rule, 0), promise(one), min(len(one.ops), size)


def _loop_us(loop: Op, stitched: Stitched) -> tuple[float, float]:
    """(under XLA, as planned) of a loop whose iterations are launched one by one."""
    device = stitched.device
    plans = {plan.program: plan for plan in stitched.plans}
    trips = iterations(loop)
    xla = ours = device.loop_turn_us + (device.loop_wait_us if trips is None else 0.0)
    for graph in loop.called:
        plan = plans.get(graph)
        if plan is not None:
            xla, ours = xla + plan.xla_us, ours + plan.modelled_us
        stitched_loops = {op for one in (plan.chosen if plan else ()) for op in one.pattern.ops}
        for op in graph:
            if op.opcode == "while" and op not in stitched_loops:
                inner = _loop_us(op, stitched)
                xla, ours = xla + inner[0], ours + inner[1]
    times = 1 if trips is None else trips
    return times * xla, times * ours
