"""The neighbourhood of a schedule: what differs from it in one decision.

`MOVES` is the one list of what may be changed. Each move gives the schedules that it leads to, and
None where a kernel cannot have one, so that what is tried can be counted. The planner tries a few
of them where most of the time goes (`compared.py`), the autotuner and `emit --variants` all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from fusionstitch.codegen.decisions import settle
from fusionstitch.codegen.schedule.choice import Choice
from fusionstitch.codegen.schedule.parser import parse_template
from fusionstitch.codegen.schedule.registers import row_registers
from fusionstitch.codegen.schedule.split import Splits, possible_parts
from fusionstitch.codegen.schedule.template import Attr, Block, Loop, Template
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.search.choices import alike, choice_of, regrouped, resized
from fusionstitch.codegen.search.left_out import LeftOut
from fusionstitch.codegen.search.stored import others, restored
from fusionstitch.codegen.settings import Settings, Way
from fusionstitch.codegen.watch import NOBODY
from fusionstitch.codegen.ways import split_so
from fusionstitch.hlo.graph import Graph

#: Neighbours of one schedule that are tried.
MOST = 512
#: Blocks of a multiprocessor, and widths of accesses in bytes, that are tried.
PER_SM, VECTOR_BYTES = (1, 2, 3, 4, 6, 8), (4, 8)


@dataclass(frozen=True)
class Focus:
    """Where a schedule is changed: in these groups of a phase, the same change to each. `reach` is
    how often a number is doubled and halved."""

    phase: int
    groups: Sequence[int]
    reach: int = 1


Found = Iterator[Scheduled | None]
Move = Callable[[Scheduled, Settings, Focus | None], Found]


def neighbours(own: Scheduled, settings: Settings) -> Iterator[Scheduled]:
    """The neighbours of a schedule, each once, in one order; `MOST` are tried. `settings` are those
    that it was made under."""
    seen = {own.template}
    for one in islice(moved(own, settings, MOVES), MOST):
        if one is not None and (text := one.template) not in seen:
            seen.add(text)
            yield one


def moved(
    own: Scheduled, settings: Settings, names: Iterable[str], focus: Focus | None = None
) -> Found:
    """Where the moves of these names lead: with a `focus` there alone, else everywhere."""
    options = replace(settings.options, template=None)
    free = replace(settings, options=options, template=None, sunk=own.sunk, halo=own.halo)
    for name in names:
        yield from MOVES[name](own, free, focus)


# ---- the moves -----------------------------------------------------------------------------------


def _parts(own: Scheduled, settings: Settings, focus: Focus | None) -> Found:
    """Split sums in more or fewer parts: all of them at once, or each alone."""
    if own.before is None:
        return
    ops = {op.id: op for op in own.before if op.id in own.splits}
    together = [list(ops)] if focus else [[i] for i in ops]
    reach = focus.reach if focus else 2
    for chosen in together if ops else ():
        for factor in sorted({2.0**n for n in range(-reach, reach + 1)} - {1.0}, reverse=True):
            scaled = dict(own.splits)
            for i in chosen:
                split = own.splits[i]
                parts = max(2, round(split.parts * factor))
                scaled[i] = replace(split, parts=possible_parts(ops[i], parts))
            if scaled != own.splits:
                yield _split(own.before, scaled, settings, Way.MERGE)


def _threads(own: Scheduled, settings: Settings, focus: Focus | None) -> Found:
    """Blocks of other sizes; not smaller ones for tiles with a halo, whose memory keeps others from
    a multiprocessor: what the estimate does not know is how long lone warps wait."""
    most = settings.device.max_threads_per_block
    for choice in resized(choice_of(own.plan), most, focus.reach if focus else 2):
        if not own.halo or choice.block >= own.plan.block:
            yield _settled(own, choice, settings)


def _resident(own: Scheduled, settings: Settings, focus: Focus | None) -> Found:
    """Other numbers of blocks on a multiprocessor; in a focus half as many."""
    now = own.plan.blocks_per_sm or 0
    counts = ([now // 2] if now > 1 else []) if focus else PER_SM
    for count in counts:
        yield _settled(own, replace(choice_of(own.plan), blocks_per_sm=count), settings)


def _groups(own: Scheduled, settings: Settings, focus: Focus | None) -> Found:
    """Other teams, register tiles and points of the grid for groups that are alike."""
    base = choice_of(own.plan)
    for where in [focus] if focus else _everywhere(base):
        for choice in regrouped(base, where.phase, where.groups, where.reach):
            yield _settled(own, choice, settings)


def _everywhere(base: Choice) -> Iterator[Focus]:
    for n, phase in enumerate(base.phases):
        done: set[int] = set()
        for m in range(len(phase)):
            if m not in done:
                groups = alike(phase, m)
                done.update(groups)
                yield Focus(n, groups, reach=2)


def _stored(own: Scheduled, settings: Settings, focus: Focus | None) -> Found:
    """Other values that are computed once."""
    for ids in others(own):
        yield _restored(own, ids, settings)


def _registers(own: Scheduled, settings: Settings, focus: Focus | None) -> Found:
    """More, fewer and no registers of a thread for rows."""
    base = choice_of(own.plan)
    now = row_registers(own.plan)
    for count in (0, now // 2, 2 * now):
        tuning = replace(base.tuning, row_registers=count)
        yield _settled(own, replace(base, tuning=tuning), settings)


def _vectors(own: Scheduled, settings: Settings, focus: Focus | None) -> Found:
    """Narrower accesses."""
    base = choice_of(own.plan)
    for width in VECTOR_BYTES:
        tuning = replace(base.tuning, vector_bytes=width)
        yield _settled(own, replace(base, tuning=tuning), settings)


def _axes(own: Scheduled, settings: Settings, focus: Focus | None) -> Found:
    """Other parts of the axes that tiles share with the grid."""
    if own.before is None:
        return
    for template in _templates(parse_template(own.template)):
        requested = replace(settings, template=template)
        way = Way.STREAM if template.streams else Way.MERGE
        yield _split(own.before, own.splits, requested, way)


#: What may be changed, in the order in which it is tried.
MOVES: Mapping[str, Move] = {
    "parts of sums": _parts,
    "values computed once": _stored,
    "threads of a block": _threads,
    "blocks of a multiprocessor": _resident,
    "teams and tiles": _groups,
    "registers of rows": _registers,
    "width of accesses": _vectors,
    "parts of axes": _axes,
}


def _settled(own: Scheduled, choice: Choice, settings: Settings) -> Scheduled | None:
    """The schedule that another choice makes of the same region."""
    with LeftOut(settings.options.check):
        made = settle(own.graph, choice, settings, Way.MERGE, NOBODY)
        return made.from_that_of(own)
    return None


def _restored(own: Scheduled, ids: frozenset[int], settings: Settings) -> Scheduled | None:
    """The schedule of the same region that computes these ops once."""
    with LeftOut(settings.options.check):
        return restored(own, ids, settings)
    return None


def _split(before: Graph, splits: Splits, settings: Settings, way: Way) -> Scheduled | None:
    """The schedule of a region with other sums split, or under another template."""
    with LeftOut(settings.options.check):
        return split_so(before, splits, settings, way, NOBODY)
    return None


# ---- parts of axes, in the template --------------------------------------------------------------


def _templates(given: Template) -> Iterator[Template]:
    """One axis with other parts; what follows from these has its default."""
    free = replace(given, cta_num=None, cta_per_sm=None)
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
