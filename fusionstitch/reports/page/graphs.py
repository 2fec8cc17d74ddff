"""The program's graphs as the page draws them: units of ops in layers, ops in layers inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusionstitch.hlo import foreign
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.reports import counting, timeline, units
from fusionstitch.reports.looped import loops_of
from fusionstitch.reports.page.layers import layers
from fusionstitch.reports.page.places import Places
from fusionstitch.reports.units import Unit

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.plan.plan import Plan

#: Characters of a name, of a type and of a scope.
NAME, TYPE, SCOPE = 60, 48, 160
Drawing = dict[str, Any]


def drawings(stitched: Stitched, places: Places, kernels: Mapping[str, int]) -> list[Drawing]:
    """All graphs that run, the entry first, each with those that its ops run. `kernels` numbers
    the kernels by name."""
    if not stitched.plans:
        return []
    plans = {plan.program: plan for plan in stitched.plans}
    repeats = counting.repeats(stitched.plans[-1].program)
    numbers = {graph: number for number, graph in enumerate(repeats)}
    found = []
    for graph, runs in repeats.items():
        plan = plans.get(graph)
        one = _Drawn(plan.graph if plan else graph, places, numbers, kernels)
        own = _units(graph, plan, stitched)
        found.append({"name": foreign.line(graph.name, NAME), "runs": runs, **one.drawn(own)})
    return found


def _units(graph: Graph, plan: Plan | None, stitched: Stitched) -> list[Unit]:
    """A graph without a plan runs inside a kernel, as part of a whole loop."""
    if plan is not None:
        return units.stitched(plan, stitched)
    return units.under_xla(graph, stitched)


class _Drawn:
    """One graph on its way to the page."""

    def __init__(
        self,
        graph: Graph,
        places: Places,
        numbers: Mapping[Graph, int],
        kernels: Mapping[str, int],
    ):
        self.graph, self.places, self.numbers, self.kernels = graph, places, numbers, kernels
        self.scopes: dict[str, int] = {}

    def drawn(self, own: Sequence[Unit]) -> Drawing:
        members = self.members(own)
        home = {i: number for number, ops in enumerate(members) for i in ops}
        reads = units.dependences(self.graph, own)
        # what the program is given is read everywhere: such edges are drawn on demand alone
        given = {number for number, one in enumerate(own) if one.kind == units.INPUT}
        return {
            "units": [self.unit(one, ops) for one, ops in zip(own, members, strict=True)],
            "layers": layers([sorted(each - given) for each in reads]).to_dict(),
            "given": [[i, n] for n, each in enumerate(reads) for i in sorted(each & given)],
            "ops": [self.op(op, home.get(op.id, -1)) for op in self.graph],
            "scopes": list(self.scopes),
        }

    def members(self, own: Sequence[Unit]) -> list[list[int]]:
        """The ops of each unit; those that everybody computes for himself are with who is first."""
        members = [list(ids(unit.bits)) for unit in own]
        home = {i: number for number, ops in enumerate(members) for i in ops}
        for op in reversed(self.graph.ops):
            if op.id not in home:
                found = [home[user.id] for user in self.graph.users[op.id] if user.id in home]
                if found:
                    home[op.id] = min(found)
                    members[home[op.id]].append(op.id)
        return [sorted(ops) for ops in members]

    def unit(self, one: Unit, ops: Sequence[int]) -> Drawing:
        inside = {i: number for number, i in enumerate(ops)}
        reads = [
            sorted({inside[o.id] for o in self.graph.ops[i].operands if o.id in inside})
            for i in ops
        ]
        found: Drawing = {
            "kind": one.kind,
            "title": self.title(one, ops),
            "us": one.us,
            "ops": ops,
            "layers": layers(reads).to_dict(),
        }
        if one.stitch is not None:
            chosen = one.stitch.chosen
            found |= {
                "scope": chosen.facts.scope,
                "xla_us": chosen.spared_us,
                "kernel": self.kernels[one.stitch.kernel.name],
            }
            if (made := loops_of(one.stitch.kernel)) is not None:
                found["form"] = made.form
        bodies = [
            self.numbers[called]
            for i in ops
            for called in self.graph.ops[i].called
            if called in self.numbers
        ]
        if bodies:
            found["bodies"] = bodies
        loops = [self.graph.ops[i] for i in ops if self.graph.ops[i].opcode == "while"]
        if loops:
            found["times"] = [timeline.trips(op) for op in loops]
        return found

    def title(self, one: Unit, ops: Sequence[int]) -> str:
        if one.kind == units.INPUT:
            return "parameters"
        if one.kind == units.PLAIN and self.graph.root.id in ops:
            return "results"
        return foreign.line(timeline.title(self.graph, one), NAME)

    def op(self, op: Op, unit: int) -> list[Any]:
        """Name, opcode, type, unit, operands, places, scope."""
        scope = foreign.line(op.source.op_name, SCOPE)
        return [
            foreign.line(op.name, NAME) or f"%{op.id}",
            op.opcode,
            foreign.line(str(op.shape), TYPE),
            unit,
            [operand.id for operand in op.operands],
            list(self.places.of(self.graph, op)),
            self.scopes.setdefault(scope, len(self.scopes)),
        ]
