"""Graphs of ops as people think of them, without what only spreads or reshapes, in layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from benchmarks.figures.picture import Picture, Point
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.reports.page.layers import layers

#: Of a box: its size, and what lies between two.
WIDTH, HEIGHT, GAP, ROW_GAP = 118, 26, 18, 22
ROUNDS = 12


def computes(op: Op) -> bool:
    """Whether an op is more than another view of a value."""
    return kind_of(op.opcode) in (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.DOT)


def sources(op: Op, shown: Callable[[Op], bool]) -> list[Op]:
    """The shown ops whose values an op reads, through others."""
    found: dict[Op, None] = {}
    for operand in op.operands:
        found.update(dict.fromkeys([operand] if shown(operand) else sources(operand, shown)))
    return list(found)


def shown_ops(graph: Graph, inputs: bool = True) -> list[Op]:
    """Ops that compute, and parameters if asked for."""
    return [op for op in graph if computes(op) or (inputs and op.opcode == "parameter")]


def laid_out(
    reads: Sequence[Sequence[int]], top: float, middle: float, step: float
) -> tuple[list[Point], list[list[Point]]]:
    """Where the middle of each node lies, and each edge as a line of points."""
    found = layers(reads)
    count = 1 + max((n for row in found.rows for n in row), default=-1)
    place = [0.0] * count
    near: list[list[int]] = [[] for _ in range(count)]
    for path in found.edges:
        for one, other in pairwise(path):
            near[one].append(other)
            near[other].append(one)
    widths = [step if n < found.nodes else step / 2.5 for n in range(count)]
    for row in found.rows:
        _spread(row, [float(n) * step for n in range(len(row))], widths, place)
    for _ in range(ROUNDS):
        for rows in (found.rows, found.rows[::-1]):
            for row in rows:
                wanted = [
                    sum(place[m] for m in near[n]) / len(near[n]) if near[n] else place[n]
                    for n in row
                ]
                _spread(row, wanted, widths, place)
    low, high = min(place[: found.nodes]), max(place[: found.nodes])
    level = {n: top + y * (HEIGHT + ROW_GAP) for y, row in enumerate(found.rows) for n in row}
    at = [(middle + place[n] - (low + high) / 2, level[n]) for n in range(count)]
    edges = []
    for path in found.edges:
        start, end = at[path[0]], at[path[-1]]
        inner = [at[n] for n in path[1:-1]]
        edges.append([(start[0], start[1] + HEIGHT / 2), *inner, (end[0], end[1] - HEIGHT / 2)])
    return at[: found.nodes], edges


def _spread(
    row: Sequence[int], wanted: Sequence[float], widths: Sequence[float], place: list[float]
) -> None:
    """Places of a row as near to the wanted ones as its order and widths allow."""
    best = list(wanted)
    for n in range(1, len(row)):
        least = (widths[row[n - 1]] + widths[row[n]]) / 2
        if best[n] - best[n - 1] < least:
            over = least - (best[n] - best[n - 1])
            best[n] += over / 2
            best[n - 1] -= over / 2
            for m in range(n - 1, 0, -1):
                least = (widths[row[m - 1]] + widths[row[m]]) / 2
                best[m - 1] = min(best[m - 1], best[m] - least)
    for n, x in zip(row, best, strict=True):
        place[n] = x


def draw_ops(
    picture: Picture,
    ops: Sequence[Op],
    top: float,
    middle: float,
    colour: Callable[[Op], str],
    note: Callable[[Op], str] = lambda op: "",
    strong: Callable[[Op, Op], str] = lambda before, op: "",
    stored: Callable[[Op], bool] = lambda op: False,
    width: int = WIDTH,
) -> Mapping[Op, Point]:
    """Boxes with names in layers, edges below them. `strong` names the colour of an edge that
    matters."""
    number = {op: n for n, op in enumerate(ops)}
    before = [sources(op, number.__contains__) for op in ops]
    reads = [[number[o] for o in own] for own in before]
    at, edges = laid_out(reads, top, middle, width + GAP)
    pairs = [(o, op) for op, own in zip(ops, before, strict=True) for o in own]
    pairs.sort(key=lambda pair: (number[pair[1]], number[pair[0]]))
    for (source, op), points in zip(pairs, edges, strict=True):
        told = strong(source, op)
        picture.line(points, told or "soft", 2.4 if told else 1.1, arrow=True)
    for op, (x, y) in zip(ops, at, strict=True):
        named = colour(op)
        plain = named in ("panel", "sunken")
        picture.box(x - width / 2, y - HEIGHT / 2, width, HEIGHT, "panel", "panel")
        picture.box(
            x - width / 2,
            y - HEIGHT / 2,
            width,
            HEIGHT,
            named,
            "line" if plain else named,
            2.5 if stored(op) else 1.2,
            1 if plain else 0.16,
        )
        picture.text(x - (width / 2 - 7), y + 4, op.name or op.opcode, 11, mono=True)
        if text := note(op):
            picture.text(x + width / 2 - 6, y + 4, text, 10, "soft", "end")
    return dict(zip(ops, at, strict=True))


def legend(picture: Picture, x: float, y: float, rows: Sequence[tuple[str, str]]) -> None:
    """What colours say, one below the other."""
    for n, (colour, text) in enumerate(rows):
        plain = colour in ("panel", "sunken")
        opacity = 1 if plain else 0.16
        picture.box(x, y + 20 * n - 10, 18, 13, colour, "line" if plain else colour, 1.2, opacity)
        picture.text(x + 26, y + 20 * n, text, 11.5)
