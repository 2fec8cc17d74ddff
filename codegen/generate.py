"""From a region to a kernel: passes, ways, decisions, text (paper Algorithm 3).

`codegen/passes.py` lists what rewrites a region and `codegen/decisions.py` what is decided of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from fusionstitch.codegen.count.account import account
from fusionstitch.codegen.count.tallies import count
from fusionstitch.codegen.decisions import decide, decide_splits
from fusionstitch.codegen.dots.chains import find_streams
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.codegen.loops.nesting import check_nesting
from fusionstitch.codegen.lower.program import statements, write_kernel
from fusionstitch.codegen.passes import rewritten
from fusionstitch.codegen.schedule.clusters import has_long_rows
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import CodegenOptions, Settings, Way
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.codegen.whiles.flat import has_loop
from fusionstitch.codegen.whiles.generate import plan_loops, write_loops
from fusionstitch.costmodel.account import Account
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.hlo.errors import CodegenError, PassError
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.verdict import Verdict, forbid

T = TypeVar("T")


def plan_kernel(graph: Graph, device: Device, options: CodegenOptions | None = None) -> Scheduled:
    """Schedules a region. Raises CodegenError if none of the ways to do it fits the device."""
    settings = Settings.of(device, options or CodegenOptions())
    return _first_that_works(graph, settings, lambda scheduled: scheduled, NOBODY)


def inspect(
    graph: Graph, device: Device, options: CodegenOptions | None = None
) -> KernelFacts | Verdict:
    """What the kernel of a region would do, or why there can be none."""
    try:
        if has_loop(graph):
            settings = Settings.of(device, options or CodegenOptions())
            looped = plan_loops(graph, settings)
            write_loops(looped, settings)  # only lowering tells whether every value has a place
            return looped.facts
        return plan_kernel(graph, device, options).facts
    except CodegenError as error:
        return forbid(str(error))


def counted(graph: Graph, device: Device, options: CodegenOptions | None = None) -> Account:
    """What the kernel of a region does, statement by statement. Raises CodegenError if there can be
    none."""
    settings = Settings.of(device, options or CodegenOptions())

    def account_of(scheduled: Scheduled) -> Account:
        lowered = statements(scheduled, settings.options.numerics)
        return account(count(lowered), lowered)

    return _first_that_works(graph, settings, account_of, NOBODY)


def generate(
    graph: Graph,
    device: Device,
    options: CodegenOptions | None = None,
    watch: Watch = NOBODY,
) -> Kernel:
    """The kernel of a region. Raises CodegenError if none of the ways to schedule it works."""
    settings = Settings.of(device, options or CodegenOptions())
    if has_loop(graph):
        return write_loops(plan_loops(graph, settings, watch), settings, watch)

    def written(scheduled: Scheduled) -> Kernel:
        kernel = write_kernel(scheduled, settings.options.numerics, watch)
        if not (verdict := launchable(kernel, device)):
            raise CodegenError(f"{verdict}.")
        return kernel

    return _first_that_works(graph, settings, written, watch)


def _first_that_works(
    graph: Graph, settings: Settings, finish: Callable[[Scheduled], T], watch: Watch
) -> T:
    """What `finish` makes of the first way that fits; where none does, the error of the boldest
    that any region may go."""
    watch.region(graph, "region", "as it came in")
    graph = rewritten(graph, settings, None, watch)
    _check_writable(graph)
    refused: CodegenError | None = None
    for way in _possible(graph, settings):
        watch.way(way)
        try:
            own = replace(settings, splits=decide_splits(graph, settings, way))
            scheduled = decide(rewritten(graph, own, way, watch), own, way, watch)
            return finish(replace(scheduled, splits=own.splits, before=graph))
        except PassError:
            raise
        except CodegenError as error:
            watch.refused(way, str(error))
            asked = way in (Way.MERGE, Way.APART) or settings.template is not None
            if asked and refused is None:
                refused = error
    assert refused is not None
    raise refused


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
        Way.STREAM: merge and not settings.strict and bool(find_streams(graph, device).dots),
        Way.SHARE: merge and has_long_rows(graph, device, options.tuning),
        Way.MERGE: merge,
        Way.APART: True,
    }
    return [way for way in Way if possible[way]]
