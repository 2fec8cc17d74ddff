"""What was turned down, by reason, as the page lists it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusionstitch.hlo.graph import Graph, ids
from fusionstitch.reports.lines import source_lines

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.plan.plan import Rejected

#: Candidates listed of one reason; the rest is counted.
MOST = 200


def rejections(stitched: Stitched) -> list[dict[str, Any]]:
    """The reasons, those of most candidates first, each with its candidates. Ops are runs of
    numbers: [first, last, first, last, ...] in the graph of that number."""
    numbers = graph_numbers(stitched)
    by_reason: dict[str, list[tuple[int, Rejected]]] = {}
    for plan in stitched.plans:
        for one in plan.rejected:
            by_reason.setdefault(one.reason, []).append((numbers.get(plan.program, 0), one))
    ranked = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    return [
        {
            "reason": reason,
            "count": len(found),
            "facts": _columns(one for _, one in found),
            "candidates": [_candidate(graph, one) for graph, one in found[:MOST]],
        }
        for reason, found in ranked
    ]


def graph_numbers(stitched: Stitched) -> Mapping[Graph, int]:
    """Numbers of the graphs that run, as the drawings have them."""
    from fusionstitch.reports import counting

    if not stitched.plans:
        return {}
    return {graph: n for n, graph in enumerate(counting.repeats(stitched.plans[-1].program))}


def _columns(found: Any) -> list[str]:
    """The names of all facts, in the order in which they are met."""
    return list(dict.fromkeys(name for one in found for name, _ in one.facts))


def _candidate(graph: int, one: Rejected) -> dict[str, Any]:
    ops = one.ops
    return {
        "graph": graph,
        "ops": _runs(list(ids(one.bits))),
        "count": len(ops),
        "first": ops[0].name or ops[0].opcode if ops else "",
        "at": next(iter(source_lines(ops)), ""),
        "rule": one.rule,
        "facts": {name: _value(value) for name, value in one.facts},
    }


def _value(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    return value if isinstance(value, int) else str(value)


def _runs(numbers: Sequence[int]) -> list[int]:
    found: list[int] = []
    for number in numbers:
        if found and found[-1] == number - 1:
            found[-1] = number
        else:
            found += [number, number]
    return found
