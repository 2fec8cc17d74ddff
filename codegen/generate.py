"""From a region to a kernel: passes, ways, decisions, text (paper Algorithm 3).

`codegen/passes.py` lists what rewrites a region and `codegen/decisions.py` what is decided of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from fusionstitch.codegen.compared import fastest
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.schedule.tuning import DEFAULT
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.codegen.ways import first_that_works
from fusionstitch.codegen.while_loops.flat import has_loop
from fusionstitch.codegen.while_loops.generate import Looped, plan_loops
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph

T = TypeVar("T")


def plan_kernel(graph: Graph, device: Device, options: CodegenOptions | None = None) -> Scheduled:
    """Schedules a region. Raises CodegenError if none of the ways to do it fits the device."""
    settings = Settings.of(device, options or CodegenOptions())
    return first_that_works(graph, settings, lambda scheduled: scheduled, NOBODY)


def draft(graph: Graph, device: Device, options: CodegenOptions | None = None) -> Draft | Looped:
    """The kernel of a region, as far as its account needs it. Raises CodegenError if there can be
    none."""
    options = options or CodegenOptions()
    if has_loop(graph):
        return _planned_loops(graph, device, options, NOBODY)

    drafted = partial(Draft.of, options=options, device=device)
    return first_that_works(graph, Settings.of(device, options), drafted, NOBODY)


def compared(first: Draft | Looped, device: Device) -> Draft | Looped:
    """A draft, or one of the same that is faster: what `generate` makes the kernel of."""
    if isinstance(first, Looped):
        return first  # its forms were compared
    return fastest(first, Settings.of(device, first.options))


def generate(
    graph: Graph,
    device: Device,
    options: CodegenOptions | None = None,
    watch: Watch = NOBODY,
) -> Kernel:
    """The kernel of a region. Raises CodegenError if none of the ways to schedule it works."""
    if has_loop(graph):
        return _planned_loops(graph, device, options or CodegenOptions(), watch).kernel()
    options = options or CodegenOptions()

    settings = Settings.of(device, options)

    def written(scheduled: Scheduled) -> Kernel:
        found = fastest(Draft.of(scheduled, options, device), settings)
        if watch is not NOBODY:  # the passes over the statements of the one that is taken
            if found.default_us is not None:
                watch.decided("compared", found.scheduled)
            Draft.of(found.scheduled, options, device, watch)
        return found.kernel()

    return first_that_works(graph, settings, written, watch)


def tuned_or_default(
    make: Callable[[Graph, Device, CodegenOptions], T],
    graph: Graph,
    device: Device,
    options: CodegenOptions,
    insisted: bool = True,
) -> T:
    """What `make` gives of a region; with the default tuning where that of the options is refused,
    since it may be another version's. A template is `insisted` on, or left out with the tuning.
    Raises CodegenError where the default is refused, too."""
    try:
        return make(graph, device, options)
    except CodegenError:
        template = options.template if insisted else None
        plain = replace(options, tuning=DEFAULT, template=template)
        if plain == options:
            raise
        return make(graph, device, plain)


def _planned_loops(graph: Graph, device: Device, options: CodegenOptions, watch: Watch) -> Looped:
    """How the loops of a region run: a template says the form."""
    settings = Settings(device, replace(options, template=None))
    return plan_loops(graph, settings, watch, options.template)
