"""The DAG of the benchmark IMG as a run of it on the emulator leaves it: kernels by stream."""

from __future__ import annotations

from benchmarks.dag.images import img
from benchmarks.dag.programs import TINY
from benchmarks.dag.scheduled import Scheduled
from benchmarks.figures.picture import Picture
from fusionstitch.dag import Graph

COLOURS = ("thread", "warp", "block", "grid")
LEFT, TOP, COLUMN, ROW, WIDTH, HEIGHT = 30, 70, 230, 78, 150, 36


def graph() -> Graph:
    """Of one run, with simulated streams."""
    program = img(TINY["img"], 32, grid=1)
    scheduled = Scheduled(program, program.inputs(), backend="emulate")
    scheduled.run()
    return scheduled.d.graph()


def depths(found: Graph) -> dict[int, int]:
    """How many kernels at least come before each one, on its longest path."""
    depth: dict[int, int] = {}
    for vertex in found.vertices:
        before = [depth[edge.before] for edge in found.edges if edge.after == vertex.number]
        depth[vertex.number] = 1 + max(before, default=-1)
    return depth


def draw() -> Picture:
    """A column for each stream, a row for each depth; edges between streams are events."""
    found, depth = graph(), depths(graph())
    stream = {vertex.number: vertex.stream for vertex in found.vertices}
    pairs = ", ".join(f"{before} to {after}" for before, after in found.pairs())
    picture = Picture(
        LEFT + (found.streams - 1) * COLUMN + WIDTH + LEFT,
        TOP + max(depth.values()) * ROW + HEIGHT + 30,
        "The DAG of IMG and its streams",
        f"{len(found.vertices)} kernels on {found.streams} streams. Edges: {pairs}.",
    )
    at = {n: (LEFT + stream[n] * COLUMN, TOP + depth[n] * ROW) for n in stream}
    for number in range(found.streams):
        x = LEFT + number * COLUMN + WIDTH / 2
        picture.text(x, 34, f"stream {number}", 13, COLOURS[number], "middle", bold=True)
    for edge in found.edges:
        (x, y), (to_x, to_y) = at[edge.before], at[edge.after]
        same = stream[edge.before] == stream[edge.after]
        start, end = (x + WIDTH / 2, y + HEIGHT), (to_x + WIDTH / 2, to_y)
        if not same:  # from side to side
            right = to_x > x
            start = (x + WIDTH * right, y + HEIGHT / 2)
            end = (to_x + WIDTH * (not right), to_y + HEIGHT / 2)
        picture.line([start, end], "soft" if same else "ink", 1.2, True, not same)
        middle = (start[0] + end[0]) / 2 + 6, (start[1] + end[1]) / 2 + (4 if same else -4)
        picture.text(*middle, ", ".join(edge.arrays), 10.5, "soft", mono=True)
    for vertex in found.vertices:
        x, y = at[vertex.number]
        colour = COLOURS[vertex.stream]
        picture.box(x, y, WIDTH, HEIGHT, colour, colour, 1.2, 0.14)
        picture.text(x + WIDTH / 2, y + 23, vertex.name, 12.5, "ink", "middle")
    return picture
