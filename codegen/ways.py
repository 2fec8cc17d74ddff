"""The ways that a region may go, tried until one fits: the boldest first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.decisions import decide, decide_splits
from fusionstitch.codegen.dots.chains import find_streams
from fusionstitch.codegen.loops.nesting import check_nesting
from fusionstitch.codegen.loops.stream import NOTHING
from fusionstitch.codegen.passes import rewritten
from fusionstitch.codegen.schedule.clusters import has_long_rows
from fusionstitch.codegen.schedule.renamed import in_own_names
from fusionstitch.codegen.schedule.split import Splits
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import Settings, Way
from fusionstitch.codegen.watch import Watch
from fusionstitch.hlo.errors import CodegenError, PassError
from fusionstitch.hlo.graph import Graph

T = TypeVar("T")


def first_that_works(
    graph: Graph, settings: Settings, finish: Callable[[Scheduled], T], watch: Watch
) -> T:
    """What `finish` makes of the first way that fits; where none does, the error of the boldest
    that any region may go."""
    watch.region(graph, "region", "as it came in")
    graph = rewritten(graph, settings, None, watch)
    _check_writable(graph)
    refused: CodegenError | None = None
    settings = _with_streams(graph, settings)
    for way in _possible(graph, settings):
        watch.way(way)
        try:
            splits = decide_splits(graph, settings, way)
            return finish(split_so(graph, splits, _in_items(graph, settings, way), way, watch))
        except PassError:
            raise
        except CodegenError as error:
            watch.refused(way, str(error))
            requested = way in (Way.MERGE, Way.APART) or settings.template is not None
            if requested and refused is None:
                refused = error
    assert refused is not None
    raise refused


def split_so(graph: Graph, splits: Splits, settings: Settings, way: Way, watch: Watch) -> Scheduled:
    """The schedule on a way of a region that is rewritten but for what each way does, with these of
    its sums split. Raises CodegenError."""
    own = replace(settings, splits=splits)
    if own.template is not None:
        own = replace(own, sunk=own.template.sunk, halo=own.template.halo)
    after = rewritten(graph, own, way, watch)
    own = _with_halo(after, own)
    own = _with_streams(after, own) if way is Way.STREAM else replace(own, stream=NOTHING)
    if own.template is not None:
        own = replace(own, template=in_own_names(own.template, after))
    made = decide(after, own, way, watch)
    return replace(made, splits=splits, sunk=own.sunk, halo=own.halo, before=graph)


def _in_items(graph: Graph, settings: Settings, way: Way) -> Settings:
    """The settings, under which concatenates sink from the outset where there are items."""
    free = settings.template is None and not settings.strict and way is Way.MERGE
    return replace(settings, sunk=True) if free and has_items(graph) else settings


def has_items(graph: Graph) -> bool:
    """Whether one thread should have all components of an item."""
    return any(annotations_of(op).item for op in graph)


def _with_halo(graph: Graph, settings: Settings) -> Settings:
    """The settings with the tiles that a region has. Raises CodegenError where a template requests
    tiles that do not exist."""
    if not settings.halo or any(annotations_of(op).tile for op in graph):
        return settings
    if settings.template is not None:
        sizes = " ".join(map(str, settings.halo))
        raise CodegenError(
            f"halo {sizes}: in {graph.name} nothing is shifted along {len(settings.halo)} axes, or "
            "too far. Leave that line out of the template."
        )
    return replace(settings, halo=())


def _with_streams(graph: Graph, settings: Settings) -> Settings:
    """The settings for a region as it is now: what its dots are a chain of has other numbers after
    each pass."""
    return replace(settings, stream=find_streams(graph, settings.device))


def _check_writable(graph: Graph) -> None:
    """Raises CodegenError for what no way makes a kernel of."""
    empty = next((op for op in graph.ops[:-1] if op.shape.size == 0), None)
    if empty is not None:
        raise CodegenError(f"{empty.name} has no elements ({empty.shape}): leave it to XLA.")
    check_nesting(graph)


def _possible(graph: Graph, settings: Settings) -> list[Way]:
    """The ways that a region may go, the boldest first."""
    device, options = settings.device, settings.options
    if (template := settings.template) is not None:
        if template.streams and settings.strict:
            raise CodegenError(
                "loop stream: sums that go on while a maximum grows round in other places, which "
                "strict numerics forbid."
            )
        return [Way.STREAM if template.streams else Way.MERGE, *[Way.APART] * bool(template.flat)]
    merge = options.tuning.merge
    possible = {
        Way.STREAM: merge and not settings.strict and bool(settings.stream.dots),
        Way.SHARE: merge and has_long_rows(graph, device, options.tuning),
        Way.MERGE: merge,
        Way.APART: True,
    }
    return [way for way in Way if possible.get(way)]
