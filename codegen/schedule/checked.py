"""Checks that a schedule is what its template says, and drops nothing of it silently."""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.codegen.schedule.printed import Printer
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.schedule.template import Attr, Level, Schedule, Template
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph


def check_followed(given: Template, graph: Graph, plan: KernelPlan) -> None:
    """Raises CodegenError for the first line of a template that says something else than what
    became of it."""
    lines = list(_lines(graph, plan))
    order = [line.identifier for line, _ in lines]
    found = iter(lines) if given.phases else None
    latest = -1
    for required in given.schedules:
        line, block = next(found) if found else lines[order.index(required.identifier)]
        if not _same(required.attrs, line.attrs, block and bool(given.flat)) or not _marked(
            required, line, bool(given.flat)
        ):
            raise CodegenError(
                f"{required} cannot be followed: in the loop that its op has here it is {line}"
            )
        if given.flat and order.index(required.identifier) < latest:
            raise CodegenError(
                f"{required.identifier} stands after {order[latest]} in the template, but is "
                "computed before it: write them in that order."
            )
        latest = order.index(required.identifier)


def _lines(graph: Graph, plan: KernelPlan) -> Iterator[tuple[Schedule, bool]]:
    """The lines of a schedule in order, each with whether the whole block shares its rows."""
    text = Printer(graph, plan)
    for group in plan.groups:
        for nest in group.nests:
            for line in text.lines(nest, group):
                yield line, nest.teams.threads >= plan.block


def _same(required: tuple[Attr, ...], found: tuple[Attr, ...], block: bool) -> bool:
    """Whether two lists of attrs say the same: where the whole block shares a row, a list may
    have WARP and CTA for it, as the paper does."""
    return required == found or (block and _threads(required) == _threads(found))


def _threads(attrs: tuple[Attr, ...]) -> list[list[tuple[Level, int | None]]]:
    """Attrs with warps and the threads of a block as one level."""
    return [
        [(Level.CTA if p.level is Level.WARP else p.level, p.extent) for p in attr.parts]
        for attr in attrs
    ]


def _marked(required: Schedule, found: Schedule, flat: bool) -> bool:
    """Whether a line has the marks that the template requires; the paper has S alone."""
    if flat and not required.registers and not required.whole:
        return required.shared == found.shared
    return required.marks == found.marks
