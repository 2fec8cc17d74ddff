"""The gradient of a layer norm: which axes blocks, teams, threads and vectors go along."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures.cases import Case, case
from benchmarks.figures.picture import Picture
from fusionstitch.codegen.loops.nests import Nest
from fusionstitch.codegen.schedule.schedule import GroupPlan, NestPlan

LEFT, BAR, TALL, PANEL = 150, 660, 30, 46
#: Factors of an axis, the outer one first: how many, of what, and the colour of that scope.
Part = tuple[int, str, str]


def blocks_axis(group: GroupPlan) -> list[Part]:
    """The grid axes of a group."""
    parts = [(group.tiles, "blocks", "grid")]
    if group.points > 1:
        parts.append((group.points, "points each", "block"))
    return parts


def rows_axis(nest: NestPlan, block: int) -> list[Part]:
    """The rows of a nest: how they are dealt to the teams of a block."""
    teams = nest.teams.columns or block // nest.teams.threads
    turns = -(-nest.rows // teams)
    what = "columns side by side" if nest.teams.columns else "teams"
    parts = [(min(teams, nest.rows), what, "block")]
    return [(turns, "iterations", "thread"), *parts] if turns > 1 else parts


def inner_axis(nest: NestPlan) -> list[Part]:
    """What lies along a row: threads, and what each of them takes."""
    threads, walk = nest.teams.threads, nest.walk
    steps = -(-nest.inner // (threads * walk.width))
    how = "threads" if nest.teams.columns or threads > 32 else "lanes"
    if threads > 32 and not nest.teams.columns:
        how = f"threads, {threads // 32} warps"
    parts = [(steps, "steps", "thread"), (threads, how, "warp")]
    if walk.width > 1:
        parts.append((walk.width, "elements in a vector", "thread"))
    return parts


def sweeps(nest: Nest) -> list[str]:
    """What each sweep along a row computes, a line each."""
    return [
        f"sweep {level}: "
        + ", ".join(f"{stage.op.name} ({nest.place[stage].value})" for stage in nest.at(level))
        for level in range(nest.levels)
    ]


def described(one: Case) -> list[tuple[str, list[tuple[str, list[Part]]], list[str]]]:
    """Of each group its title, its axes with their factors, and its sweeps."""
    assert one.scheduled is not None
    plan = one.scheduled.plan
    found = []
    for phase, groups in enumerate(plan.phases):
        for group in groups:
            [nest] = group.nests
            number = plan.groups.index(group)
            axes = [
                (f"grid: {group.grid_points:,}", blocks_axis(group)),
                (f"rows: {nest.rows:,}", rows_axis(nest, plan.block)),
                (f"along a row: {nest.inner:,}", inner_axis(nest)),
            ]
            if group.points == nest.rows:
                axes.pop(1)
                axes[0] = (axes[0][0], [*axes[0][1][:1], *rows_axis(nest, plan.block)])
            found.append((f"phase {phase}, group {number}", axes, sweeps(nest.nest)))
    return found


def draw() -> Picture:
    """A panel for each group."""
    one = case("norms")
    groups = described(one)
    height = sum(PANEL + 40 * len(axes) + 18 * len(lines) + 6 for _, axes, lines in groups)
    said = []
    for title, axes, lines in groups:
        told = [
            f"{name} as {' times '.join(f'{n} {what}' for n, what, _ in parts)}"
            for name, parts in axes
        ]
        said.append(f"{title}: {', '.join(told)}; {'; '.join(lines)}")
    kernel = one.kernel
    picture = Picture(
        LEFT + BAR + 30,
        height + 30,
        "Axes of a layer norm's gradient",
        f"{kernel.grid} blocks of {kernel.block} threads. {'. '.join(said)}.",
    )
    y = 26.0
    for title, axes, lines in groups:
        picture.text(20, y, title, 13.5, bold=True)
        y += 16
        for name, parts in axes:
            picture.text(20, y + 20, name, 12)
            _bar(picture, y, parts)
            y += 40
        for line in lines:
            picture.text(LEFT, y + 12, line, 10.5, "soft", mono=True)
            y += 18
        y += 36
    return picture


def _bar(picture: Picture, y: float, parts: Sequence[Part]) -> None:
    """The factors of an axis side by side."""
    x, width = float(LEFT), BAR / len(parts)
    for number, what, colour in parts:
        picture.box(x, y, width - 6, TALL, colour, colour, 1.2, 0.16)
        picture.text(x + 10, y + 20, f"{number:,} {what}", 12)
        x += width
