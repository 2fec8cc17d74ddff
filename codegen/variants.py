"""The neighbours of a schedule: what differs from it in one decision, as templates.

Teams, tiles, points of the grid and the size of the block are changed in the schedule itself; parts
of a split sum and of an axis in its template, from which the kernel is planned once more. What a
kernel cannot have is left out. There are at most as many as `MOST`, in one order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from fusionstitch.codegen.decisions import settle
from fusionstitch.codegen.generate import plan_kernel
from fusionstitch.codegen.nearby import choice_of, near, regrouped, resized
from fusionstitch.codegen.schedule.choice import Choice
from fusionstitch.codegen.schedule.parser import parse_template
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.schedule.template import Attr, Block, Loop, Template
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import CodegenOptions, Settings, Way
from fusionstitch.codegen.watch import NOBODY
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph

#: Neighbours of one schedule that are tried.
MOST = 512


def variants(
    graph: Graph, device: Device, options: CodegenOptions | None = None
) -> Iterator[Scheduled]:
    """The neighbours of the schedule that a region has under `options`, each once."""
    options = options or CodegenOptions()
    base = plan_kernel(graph, device, options)
    seen = {base.template}
    for one in islice(_tried(graph, base, device, options), MOST):
        if one is not None and (text := one.template) not in seen:
            seen.add(text)
            yield one


def _tried(
    graph: Graph, base: Scheduled, device: Device, options: CodegenOptions
) -> Iterator[Scheduled | None]:
    """Every neighbour, or None where there is none of a kind."""
    settings = Settings(device, options)
    for choice in _choices(base.plan):
        try:
            found = settle(base.graph, choice, settings, Way.MERGE, NOBODY)
            yield replace(found, splits=base.splits, before=base.before)
        except CodegenError:
            yield None
    for template in _templates(parse_template(base.template)):
        try:
            yield plan_kernel(graph, device, replace(options, template=str(template)))
        except CodegenError:
            yield None


def _choices(plan: KernelPlan) -> Iterator[Choice]:
    base = choice_of(plan)
    for n, phase in enumerate(base.phases):
        for m in range(len(phase)):
            yield from regrouped(base, n, [m])
    yield from resized(base)
    for per_sm in (1, 2, 3, 4, 6, 8):
        yield replace(base, blocks_per_sm=per_sm)


# ---- in the template -----------------------------------------------------------------------------


def _templates(given: Template) -> Iterator[Template]:
    """Other parts of splits and of axes; what follows from these has its default."""
    free = replace(given, cta_num=None, cta_per_sm=None)
    for n, (name, parts) in enumerate(given.splits):
        for other in near(parts):
            splits = (*given.splits[:n], (name, other), *given.splits[n + 1 :])
            yield replace(free, splits=splits)
    for n, phase in enumerate(given.phases):
        for m, block in enumerate(phase):
            for changed in _blocks(block):
                blocks = (*phase[:m], changed, *phase[m + 1 :])
                yield replace(free, phases=(*given.phases[:n], blocks, *given.phases[n + 1 :]))


def _blocks(block: Block) -> Iterator[Block]:
    """A group with another part of one of the axes that its tiles share with the grid."""
    attrs = dict.fromkeys(a for s in block.schedules for a in s.attrs if len(a.parts) == 2)
    for attr in attrs:
        for other in _attrs(attr):
            yield replace(block, loops=tuple(_exchanged(loop, attr, other) for loop in block.loops))


def _attrs(attr: Attr) -> Iterator[Attr]:
    first, second = attr.parts
    if first.extent is None or second.extent is None:
        return
    for one, other in ((first, second), (second, first)):
        assert one.extent is not None
        assert other.extent is not None
        if one.extent % 2 == 0:
            less = replace(one, extent=one.extent // 2)
            more = replace(other, extent=other.extent * 2)
            yield Attr((less, more) if one is first else (more, less))


def _exchanged(loop: Loop, attr: Attr, other: Attr) -> Loop:
    """A loop with one attr for another, and the rest of its tile left to be worked out."""
    lines = tuple(
        replace(s, attrs=tuple(other if a == attr else a for a in s.attrs)) for s in loop.schedules
    )
    return replace(loop, schedules=lines, run=None, lot=None, shares=None)
