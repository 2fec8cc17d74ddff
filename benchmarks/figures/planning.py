"""Two candidates that would wait for each other, and the plan without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.figures import graphs
from benchmarks.figures.cases import planner
from benchmarks.figures.picture import Picture
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.patterns.pattern import Pattern

COLOURS = ("block", "grid")
PANEL = 420


@dataclass(frozen=True)
class Found:
    """The candidates of a graph, the first pair with a cycle, all that may not be chosen together
    since the first cycle, and the chosen ones, by their numbers; bounds and scores."""

    graph: Graph
    patterns: Sequence[Pattern]
    cycle: tuple[int, ...]
    cuts: list[tuple[int, ...]]
    chosen: tuple[int, ...]
    bounds: Sequence[float]
    scores: dict[int, float]


def found(name: str = "cycle") -> Found:
    """What the planner knows in the end."""
    search = planner(name).search
    solution = search.run()
    cuts = [tuple(sorted(cut)) for cut in search.program.cuts]
    return Found(
        search.graph,
        [one.pattern for one in search.candidates],
        next(cut for cut in cuts if len(cut) == 2),
        cuts,
        solution.chosen,
        [one.bound for one in search.candidates],
        {n: one.value for n, one in enumerate(search.candidates) if one.score is not None},
    )


def waits(one: Found) -> list[tuple[Op, Op]]:
    """The edges out of a pattern of the cycle to what the other waits for, and on to it."""
    first, second = (one.patterns[n].bits for n in one.cycle)
    edges = []
    for op in graphs.shown_ops(one.graph, inputs=False):
        for before in graphs.sources(op, graphs.computes):
            inside = [b for b in (first, second) if b >> before.id & 1 or b >> op.id & 1]
            through = "dot" in (op.opcode, before.opcode)
            if through and inside:
                edges.append((before, op))
    return edges


def draw() -> Picture:
    """On the left the cycle, on the right what was chosen."""
    one = found()
    ops = graphs.shown_ops(one.graph, inputs=False)
    p, q = one.cycle
    chosen = ", ".join(_names(one.patterns[n].bits, ops) for n in one.chosen)
    picture = Picture(
        2 * PANEL,
        790,
        "A cycle between two candidates, and the plan without it",
        f"Candidate {p}: {_names(one.patterns[p].bits, ops)}. Candidate {q}: "
        f"{_names(one.patterns[q].bits, ops)}. Each waits for a product that waits for the other. "
        f"Chosen: {chosen}.",
    )
    loops = set(waits(one))
    titles = ("cannot be chosen together", "the plan")
    for n, (title, pair) in enumerate(zip(titles, (one.cycle, one.chosen), strict=True)):
        picture.text(20 + PANEL * n, 26, title, 13.5, bold=True)
        marked = [one.patterns[number].bits for number in pair]

        def colour(op: Op, marked: Sequence[int] = marked) -> str:
            for bits, name in zip(marked, COLOURS, strict=False):
                if bits >> op.id & 1:
                    return name
            return "xla" if op.opcode == "dot" else "panel"

        graphs.draw_ops(
            picture,
            ops,
            62,
            PANEL * (n + 0.5),
            colour,
            strong=(lambda a, b: "loop" if (a, b) in loops else "") if n == 0 else _nothing,
        )
        rows = [
            (name, f"candidate {number}: {_worth(one, number)}")
            for name, number in zip(COLOURS, pair, strict=False)
        ]
        if n:
            rows.append(("panel", "left to XLA, as are the products"))
        graphs.legend(picture, 20 + PANEL * n, 736, rows)
    return picture


def _nothing(before: Op, op: Op) -> str:
    return ""


def _worth(one: Found, number: int) -> str:
    score = one.scores.get(number)
    if score is None:
        return f"a bound of {one.bounds[number]:.2f} us"
    return f"a score of {score:.2f} us"


def _names(bits: int, ops: Sequence[Op]) -> str:
    shown = {op.id for op in ops}
    by_id = {op.id: op.name for op in ops}
    return " ".join(by_id[i] for i in ids(bits) if i in shown)
