"""Exact weighted set packing, by dynamic programming along the ops of a graph.

Candidates contain ops that are close in topological order, so that at every op only few sets of
later ops can already be taken (the frontier). Prices show which of those can no longer win.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.plan.prices import Prices

#: The most frontiers before the search gives up: a millisecond. In that time HiGHS solves a small
#: program, or a tenth of one with a thousand columns.
MOST_FRONTIERS = 2_000

#: Columns taken so far, the last one first.
Trace = tuple[int, "Trace"] | None


def pack(
    columns: Sequence[Sequence[int]], weights: Sequence[float], prices: Prices
) -> list[int] | None:
    """The columns of the best packing, ascending; None if finding it would take too long.

    `columns` contain ascending rows; each row may be in at most one chosen column.
    """
    first: dict[int, list[tuple[int, int]]] = {}  # row -> (column, its later rows)
    for column in prices.remaining:
        leading, *rest = columns[column]
        first.setdefault(leading, []).append((column, sum(1 << row for row in rest)))
    # rows taken ahead -> (lost against the bound, worth, columns)
    frontiers: dict[int, tuple[float, float, Trace]] = {0: (0.0, 0.0, None)}
    looked_at = 0
    for row, unused in enumerate(prices.unused):
        following: dict[int, tuple[float, float, Trace]] = {}

        def offer(
            taken: int,
            lost: float,
            worth: float,
            trace: Trace,
            following: dict[int, tuple[float, float, Trace]] = following,
        ) -> None:
            if lost <= prices.gap and (taken not in following or worth > following[taken][1]):
                following[taken] = lost, worth, trace

        here = 1 << row
        for taken, (lost, worth, trace) in frontiers.items():
            if taken & here:
                offer(taken ^ here, lost, worth, trace)
                continue
            offer(taken, lost + unused, worth, trace)
            for column, later in first.get(row, ()):
                if not taken & later:
                    offer(
                        taken | later,
                        lost + prices.lost[column],
                        worth + weights[column],
                        (column, trace),
                    )
        frontiers = following
        looked_at += len(frontiers)
        if looked_at > MOST_FRONTIERS:
            return None
    _, _, trace = frontiers[0]
    chosen = []
    while trace is not None:
        column, trace = trace
        chosen.append(column)
    return sorted(chosen)
