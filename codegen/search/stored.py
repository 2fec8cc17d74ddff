"""Which values of a kernel are computed once, and read where they are stored.

Any elementwise value can be computed again by whoever reads it, at each index where it is read, or
once, for all threads to read after they have waited for each other. Neither is always faster: a
stencil of stencils computes its first level a hundred times, and each wait costs a microsecond of
the whole grid. A kernel starts from the better of two rules of thumb (`started`) and goes on from
there, class of values by class (`restored`). Outputs that may be stored piece by piece
(codegen/loops/pieces.py) are stored as a whole instead where that takes less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fusionstitch.codegen.decisions import decide, decide_splits, synchronisation
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.loops.once import again, materialized
from fusionstitch.codegen.loops.picked import picked
from fusionstitch.codegen.loops.pieces import joined
from fusionstitch.codegen.loops.stream import NOTHING
from fusionstitch.codegen.rewrite.sunk import sink_concatenates
from fusionstitch.codegen.schedule.tuning import DEFAULT
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.search.left_out import LeftOut
from fusionstitch.codegen.search.tile_sizes import tile_sizes
from fusionstitch.codegen.settings import Settings, Way
from fusionstitch.codegen.watch import NOBODY
from fusionstitch.codegen.ways import has_items, split_so
from fusionstitch.costmodel.kernel_time import cost_us, proven
from fusionstitch.hlo.errors import CodegenError, PassError

#: Classes of values that are tried the other way, of those that are computed again and of those
#: that are stored.
MOST_CLASSES = 3
#: Columns of a row up to which registers may hold all of it (codegen/dots/tile.py); and what a
#: stream has to take at most then, as a share of that: both are priced up to twice too high.
MOST_HELD, STREAMED_SHARE = 128, 0.7


def started(scheduled: Scheduled, settings: Settings) -> Draft:
    """The fastest draft by the cost estimate: that of the default schedule, one in which what takes
    long to recompute is computed once, or one in which no output is stored piece by piece. Raises
    CodegenError where there is none."""
    free = settings.options.template is None and settings.options.tuning == DEFAULT
    found: list[Draft] = []
    refused: CodegenError | None = None
    try:
        first = Draft.of(scheduled, settings.options, settings.device)
        if free:
            first = _or_in_tiles(first, settings)
        if not proven(first.cost):
            return first
        found.append(first)
    except PassError:
        raise
    except CodegenError as error:
        refused = error
    if free:
        found += _drafts(starts(scheduled, settings), settings)
    if free and not found:
        found += _drafts(_shorter(scheduled, settings), settings)
    if not found:
        assert refused is not None
        raise refused
    if not proven(found[0].cost):
        return found[0]
    return min((one for one in found if proven(one.cost)), key=_us)


def _or_in_tiles(first: Draft, settings: Settings) -> Draft:
    """A draft; or, of one whose streamed rows registers could hold as a whole, that of the schedule
    in which they do, if the stream does not take much less."""
    own = first.scheduled
    columns = [nest.inner for one in own.plan.groups if one.group.streamed for nest in one.nests]
    if own.before is None or not columns or max(columns) > MOST_HELD:
        return first
    with LeftOut(settings.options.check):
        splits = decide_splits(own.before, settings, Way.MERGE)
        tiled = split_so(own.before, splits, settings, Way.MERGE, NOBODY)
        held = Draft.of(tiled, settings.options, settings.device)
        return first if _us(first) < STREAMED_SHARE * _us(held) else held
    return first


def _drafts(schedules: Iterable[Scheduled], settings: Settings) -> Iterator[Draft]:
    """The drafts of those that can be written."""
    for one in schedules:
        with LeftOut(settings.options.check):
            yield Draft.of(one, settings.options, settings.device)


def restored(own: Scheduled, ids: frozenset[int], settings: Settings) -> Scheduled:
    """The schedule of the same region that computes these ops once. Raises CodegenError."""
    return _decided(own, replace(settings, stored=ids, joined=in_pieces(own)))


def _decided(own: Scheduled, settings: Settings) -> Scheduled:
    """Another schedule of the same region. Raises CodegenError."""
    requested = replace(settings, splits=own.splits, halo=own.halo, stream=NOTHING)
    return decide(own.graph, requested, Way.MERGE, NOBODY).from_that_of(own)


def others(own: Scheduled) -> Iterator[frozenset[int]]:
    """The sets of ops to compute once that differ from a schedule's in one class of values, or the
    first of it. Values are of a class if they are alike in what they do, at how many indices they
    are read, and whether they are stored."""
    if _is_fixed(own):
        return
    now = stored(own)
    classes: dict[tuple[object, ...], list[int]] = {}
    rank: dict[tuple[object, ...], float] = {}
    for value in again(own.graph, now):
        op = value.op
        key: tuple[object, ...] = op.id in now, op.opcode, op.shape, value.cost, value.reads
        classes.setdefault(key, []).append(op.id)
        rank[key] = rank.get(key, 0.0) + value.spared
    for is_stored in (False, True):
        # what is spared most by storing it, and what is spared least by having stored it
        keys = sorted((key for key in classes if key[0] is is_stored), key=rank.__getitem__)
        for key in keys[:MOST_CLASSES] if is_stored else keys[: -MOST_CLASSES - 1 : -1]:
            ids = classes[key]
            yield now.symmetric_difference(ids)
            if len(ids) > 1:
                yield now.symmetric_difference(ids[:1])


def stored(own: Scheduled) -> frozenset[int]:
    """The ids of the ops that a schedule computes once."""
    return frozenset(s.op.id for g in own.plan.groups for s in g.group.stages if s.whole)


def in_pieces(own: Scheduled) -> frozenset[int]:
    """The ids of the outputs that a schedule stores piece by piece."""
    whole = {s.op.id for g in own.plan.groups for s in g.group.stages}
    return joined(own.graph) - whole


def starts(own: Scheduled, settings: Settings) -> Iterator[Scheduled]:
    """What may be started from instead of a default schedule, each once."""
    seen = {own.template}
    in_items = own.sunk and own.before is not None and has_items(own.before)
    # an item that a thread has in registers leaves in pieces
    for kind in (_with_more,) if in_items else (_in_one, _sunk, _haloed, _with_more, _picking):
        for one in kind(own, settings):
            if (text := one.template) not in seen:
                seen.add(text)
                yield one


def _sunk(own: Scheduled, settings: Settings) -> Iterator[Scheduled]:
    """The schedule whose concatenates sink towards the outputs, if they can."""
    if own.before is None or own.sunk or _is_fixed(own) or settings.strict:
        return
    if sink_concatenates(own.graph) is own.graph:
        return
    with LeftOut(settings.options.check):
        requested = replace(settings, sunk=True)
        yield split_so(own.before, own.splits, requested, Way.MERGE, NOBODY)


def _haloed(own: Scheduled, settings: Settings) -> Iterator[Scheduled]:
    """The schedules in tiles with a halo, of several sizes, if there can be such tiles."""
    if own.before is None or own.halo or _is_fixed(own) or settings.strict:
        return
    for sizes in tile_sizes(own.before):
        with LeftOut(settings.options.check):
            requested = replace(settings, halo=sizes, sunk=own.sunk)
            yield split_so(own.before, {}, requested, Way.MERGE, NOBODY)


def _in_one(own: Scheduled, settings: Settings) -> Iterator[Scheduled]:
    """The schedule that stores each output as a whole, if it is another."""
    if in_pieces(own) and not _is_fixed(own):
        with LeftOut(settings.options.check):
            yield _decided(own, replace(settings, joined=frozenset()))


def _picking(own: Scheduled, settings: Settings) -> Iterator[Scheduled]:
    """The schedules in which loops pick elements of what they compute for sums of others, if there
    are such sums."""
    if _is_fixed(own):
        return
    waiting = synchronisation(settings)
    more = (materialized(own.graph, NOTHING, waiting, spread) for spread in (False, True))
    for ids in dict.fromkeys((stored(own), *more)):
        if found := picked(own.graph, ids):
            with LeftOut(settings.options.check):
                yield restored(own, ids | found, settings)


def _with_more(own: Scheduled, settings: Settings) -> Iterator[Scheduled]:
    """The schedules in which threads may wait for each other, as far as they are others."""
    if _is_fixed(own):
        return
    seen = {stored(own)}
    for spread in (False, True):
        ids = materialized(own.graph, NOTHING, synchronisation(settings), spread)
        if ids not in seen:
            seen.add(ids)
            with LeftOut(settings.options.check):
                yield restored(own, ids, settings)


def _shorter(own: Scheduled, settings: Settings) -> Iterator[Scheduled]:
    """The schedule that computes once what is read in many pieces of others: of the shortest
    text."""
    if _is_fixed(own):
        return
    ids = materialized(own.graph, NOTHING, synchronisation(settings), spread=True, short=True)
    with LeftOut(settings.options.check):
        yield restored(own, ids, settings)


def _is_fixed(own: Scheduled) -> bool:
    """Whether what is stored follows from how its rows are walked."""
    return own.plan.cluster > 1 or any(plan.group.streamed for plan in own.plan.groups)


def _us(one: Draft) -> float:
    return cost_us(one.cost, one.device)
