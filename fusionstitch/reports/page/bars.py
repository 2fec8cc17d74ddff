"""Where the time of a call goes: kernels and components as bars, and what is left to win there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusionstitch.costmodel.floor import LAUNCH, floor_of
from fusionstitch.costmodel.xla_truth import MODELLED, SCALED
from fusionstitch.hlo import cards
from fusionstitch.hlo.brief import count
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.reports import bars, counting, timeline, units
from fusionstitch.reports.bars import Bar
from fusionstitch.reports.floors import Part, parts
from fusionstitch.reports.gaps import LEAST_US
from fusionstitch.reports.lines import source_lines
from fusionstitch.reports.page.rejections import graph_numbers

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.plan.plan import Plan
    from fusionstitch.reports.figures import Figures
    from fusionstitch.reports.units import Unit

#: Rows of a chart.
MOST = 40
#: Kernels of XLA's whose floors are worked out: those that take longest.
MOST_OF_XLA = 200
#: What libraries keep is one component of this name.
KEPT = "kept by XLA's libraries"


@dataclass(frozen=True)
class Row:
    """A bar with what else is said of it.

    Attributes:
        bar: its times
        what: what it holds, such as "12 ops", with how often a call runs it
        kernels: ours that compute it, by name
        scope: that of a kernel of ours
        reason: why it is left to XLA; empty for one of ours
        source: the user's lines
        address: where the page's graph shows it; empty if nowhere
    """

    bar: Bar
    what: str
    kernels: tuple[str, ...] = ()
    scope: str = ""
    reason: str = ""
    source: tuple[str, ...] = ()
    address: str = ""


@dataclass(frozen=True)
class Chart:
    """Rows on one scale, those with most left to win first; `more` are not drawn, and have
    `more_us` left to win together. `whole_us` is the scale's end, where longer bars are cut off."""

    rows: Sequence[Row]
    whole_us: float
    more: int = 0
    more_us: float = 0.0

    def share(self, us: float) -> float:
        """The length of a bar, in percent."""
        return min(100.0, 100 * us / self.whole_us) if self.whole_us else 0.0

    @property
    def times(self) -> str:
        """Where all times are from; empty where they differ."""
        found = {row.bar.times for row in self.rows}
        return found.pop() if len(found) == 1 else ""


@dataclass(frozen=True)
class Where:
    """The part "Where the time goes" of a page: the whole program, what each unit takes alone (name
    and microseconds), both charts, and the microseconds left to win by what binds components."""

    program: Bar | None
    units: Sequence[tuple[str, float]]
    kernels: Chart
    components: Chart
    binds: Sequence[tuple[str, float]]

    @property
    def left(self) -> Sequence[Row]:
        """The components that have something left to win."""
        rows = self.components.rows
        return [row for row in rows if row.bar.left_us > LEAST_US and row.bar.name != KEPT]


def where(
    report: Figures, stitched: Stitched | None = None, own: Sequence[Mapping[str, Any]] = ()
) -> Where:
    """That of a report; `own` are the kernels as the page has them. Without the program, which a
    copy of a report has not, there is the whole alone."""
    program = bars.of_program(report)
    alone = _units(report.floor_us)
    if stitched is None or not stitched.plans:
        return Where(program, alone, _chart([]), _chart([]), ())
    rows = _Rows(stitched)
    components = list(rows.components())
    binds: dict[str, float] = {}
    for row in components:
        binds[row.bar.bound_by] = binds.get(row.bar.bound_by, 0.0) + row.bar.left_us
    return Where(
        program,
        alone,
        _chart([*rows.ours(own), *rows.of_xla()]),
        _chart([*components, *rows.kept()]),
        sorted(((unit, us) for unit, us in binds.items() if us > LEAST_US), key=lambda x: -x[1]),
    )


def _units(floor: Mapping[str, Any] | None) -> Sequence[tuple[str, float]]:
    """What the launch and each unit take alone, those that take longest first."""
    if not floor or not floor["total"]:
        return ()
    found = {LAUNCH: floor["total"] - max(floor["units"].values(), default=0.0), **floor["units"]}
    return sorted(((name, us) for name, us in found.items() if us > LEAST_US), key=lambda x: -x[1])


def _chart(rows: Iterable[Row]) -> Chart:
    found = sorted(rows, key=lambda row: row.bar.rank)
    left = sum(row.bar.left_us for row in found[MOST:])
    whole = cards.scale(row.bar.drawn for row in found)
    return Chart(found[:MOST], whole, len(found[MOST:]), left)


def _holds(part: Part) -> str:
    """What a component holds: its ops, or the iterations of a loop."""
    op = part.longest[0]
    if part.ops != (op,) or op.opcode != "while":
        return count(part.ops, "op")
    trips = timeline.trips(op)
    return (
        "a loop that its data ends" if trips is None else f"a loop of {count(trips, 'iteration')}"
    )


def _what(holds: str, runs: int) -> str:
    return holds if runs == 1 else f"{holds}, {count(runs, 'run')}"


class _Rows:
    """The rows of a program's charts."""

    def __init__(self, stitched: Stitched):
        self.stitched = stitched
        self.parts = parts(stitched)
        self.runs = counting.runs_of(stitched.plans)
        self.numbers = graph_numbers(stitched)
        self.plans = {plan.program: plan for plan in stitched.plans}
        self.times = MODELLED if stitched.truth is None else SCALED

    def ours(self, own: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
        """Our kernels, each with all its uses."""
        first = {one.kernel.name: one for one in reversed(self.stitched.stitches)}
        for one in own:
            xla, ours, times = one["compared_us"]
            known = (one["bound_by"], one["at_least"], times)
            pattern = first[one["name"]].chosen.pattern
            home = next(p.program for p in self.stitched.plans if p.graph is pattern.graph)
            yield Row(
                Bar(one["name"], xla, ours, one["floor_us"], *known),
                _what(count(one["ops"], "op"), one["runs"]),
                (one["name"],),
                one["scope"],
                source=tuple(one["source"]),
                address=self.address(home, f"unit/{pattern.ops[-1].id}"),
            )

    def of_xla(self) -> Iterator[Row]:
        """The kernels that the plan leaves to XLA."""
        found = list(self.left())
        found.sort(key=lambda one: -self.runs.get(one[0].program, 0) * (one[1].us or 0.0))
        return (self.left_to_xla(plan, unit) for plan, unit in found[:MOST_OF_XLA])

    def left(self) -> Iterator[tuple[Plan, Unit]]:
        for plan in self.stitched.plans:
            for unit in units.stitched(plan, self.stitched):
                if unit.stitch is None and unit.us:
                    yield plan, unit

    def left_to_xla(self, plan: Plan, unit: Unit) -> Row:
        ops, runs = list(units.members(plan.graph, unit)), self.runs.get(plan.program, 0)
        inner = plan is not self.stitched.plans[-1]
        floor = floor_of(plan.graph, unit.bits, self.stitched.device, inner=inner)
        us = runs * (unit.us or 0.0)
        known = (floor.bound_by, floor.at_least, self.times)
        return Row(
            Bar(timeline.title(plan.graph, unit), us, us, runs * floor.us, *known),
            _what(count(ops, "op"), runs),
            reason="left to XLA",
            source=tuple(source_lines(ops)),
            address=self.address(plan.program, f"unit/{ops[-1].id}"),
        )

    def components(self) -> Iterator[Row]:
        """The parts of the program, by the op that says best what their longest kernels do."""
        for part in self.parts:
            op, floor, runs = part.longest[0], part.floor, part.runs
            bar = Bar(
                op.name or op.opcode,
                runs * part.xla_us,
                runs * part.ours_us,
                runs * floor.us,
                floor.bound_by,
                floor.at_least,
                self.times,
            )
            yield Row(
                bar,
                _what(_holds(part), runs),
                part.kernels,
                reason=part.reason,
                source=tuple(source_lines(part.longest)),
                address=self.op_address(part.graph, op),
            )

    def kept(self) -> Iterator[Row]:
        """What is in no component, such as large products, as one row."""
        inside: dict[Graph, set[str]] = {self.stitched.plans[-1].program: set()}
        for part in self.parts:
            inside.setdefault(part.graph, set()).update(op.name for op in part.ops)
        rows = [
            self.left_to_xla(plan, unit)
            for plan, unit in self.left()
            if plan.program in inside
            and inside[plan.program].isdisjoint(o.name for o in units.members(plan.graph, unit))
        ]
        if not rows:
            return
        longest = max(rows, key=lambda row: row.bar.ours_us).bar
        us, floor = (sum(getattr(row.bar, key) for row in rows) for key in ("ours_us", "floor_us"))
        bar = Bar(KEPT, us, us, floor, longest.bound_by, longest.at_least, longest.times)
        yield Row(bar, count(rows, "kernel"), reason="Libraries keep it.")

    def op_address(self, graph: Graph, op: Op) -> str:
        """An op in the graph that is drawn, which may hold copies and then has other numbers."""
        drawn = self.plans[graph].graph if graph in self.plans else graph
        same = (one.id for one in drawn if one is op or one.name == op.name)
        at = next(same, None)
        return "" if at is None else self.address(graph, f"op/{at}")

    def address(self, graph: Graph, place: str) -> str:
        """An op, or the unit that it is in, in the graph that the page draws."""
        number = self.numbers.get(graph)
        return "" if number is None else f"#graph/{number}/{place}"
