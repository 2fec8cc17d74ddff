"""From a region to a kernel: passes, ways, decisions, text (paper Algorithm 3).

`codegen/passes.py` lists what rewrites a region and `codegen/decisions.py` what is decided of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.layers.generate import Layered, is_template, other_shapes, plan_layers
from fusionstitch.codegen.layers.thin import are_layers
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.search import neighbours as schedules
from fusionstitch.codegen.search.compared import fastest
from fusionstitch.codegen.search.left_out import LeftOut
from fusionstitch.codegen.search.stored import started
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.codegen.ways import first_that_works
from fusionstitch.codegen.while_loops.flat import has_loop
from fusionstitch.codegen.while_loops.generate import Looped, other_forms, plan_loops
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError, PassError, TemplateSyntaxError
from fusionstitch.hlo.graph import Graph

T = TypeVar("T")
#: What a kernel may be, as far as its cost needs it.
Planned = Draft | Layered | Looped


def plan_kernel(graph: Graph, device: Device, options: CodegenOptions | None = None) -> Scheduled:
    """Schedules a region. Raises CodegenError if none of the ways to do it fits the device."""
    settings = Settings.of(device, options or CodegenOptions())
    return first_that_works(graph, settings, lambda scheduled: scheduled, NOBODY)


def draft(graph: Graph, device: Device, options: CodegenOptions | None = None) -> Planned:
    """The kernel of a region, as far as its cost needs it. Raises CodegenError if there can be
    none."""

    def drafted(options: CodegenOptions) -> Planned:
        if has_loop(graph):
            return _planned_loops(graph, device, options, NOBODY)

        if layered := _in_layers(graph, device, options, NOBODY):
            return layered
        settings = Settings.of(device, options)
        return first_that_works(graph, settings, partial(started, settings=settings), NOBODY)

    return _first_that_fits(drafted, options or CodegenOptions())


def compared(first: Planned, device: Device) -> Planned:
    """A draft, or one of the same that is faster: what `generate` makes the kernel of."""
    if not isinstance(first, Draft):
        return first  # its forms were compared
    return fastest(first, Settings.of(device, first.options))


def neighbours(of: Planned) -> Iterator[Planned]:
    """The drafts of a region that are one decision away from one, each once."""
    if isinstance(of, Looped):
        yield from other_forms(of)
        return
    if isinstance(of, Layered):
        yield from other_shapes(of)
        return
    options = replace(of.options, template=None)
    for other in schedules.neighbours(of.scheduled, Settings(of.device, options)):
        with LeftOut(options.check):
            yield Draft.of(other, options, of.device)


def generate(
    graph: Graph,
    device: Device,
    options: CodegenOptions | None = None,
    watch: Watch = NOBODY,
) -> Kernel:
    """The kernel of a region. Raises CodegenError if none of the ways to schedule it works."""

    def generated(options: CodegenOptions) -> Kernel:
        if has_loop(graph):
            return _planned_loops(graph, device, options, watch).kernel()
        if layered := _in_layers(graph, device, options, watch):
            return layered.kernel()
        settings = Settings.of(device, options)

        def written(scheduled: Scheduled) -> Kernel:
            found = fastest(started(scheduled, settings), settings)
            if watch is not NOBODY:  # the passes over the statements of the one that is taken
                if found.scheduled is not scheduled:
                    watch.decided("compared", found.scheduled)
                Draft.of(found.scheduled, options, device, watch)
            return found.kernel()

        return first_that_works(graph, settings, written, watch)

    return _first_that_fits(generated, options or CodegenOptions())


def _first_that_fits(make: Callable[[CodegenOptions], T], options: CodegenOptions) -> T:
    """What `make` gives under a tuned template, or without it. Raises CodegenError."""
    *tuned, last = options.attempts
    for attempt in tuned:
        try:
            return make(attempt)
        except (CodegenError, TemplateSyntaxError) as error:
            if attempt.check and isinstance(error, PassError):
                raise  # the default schedule does not hide the defect
    return make(last)


def _in_layers(
    graph: Graph, device: Device, options: CodegenOptions, watch: Watch
) -> Layered | None:
    """The kernel of a region whose products a library would do otherwise; None for another one.
    Raises CodegenError where lanes cannot have its rows: no other way is as fast as libraries."""
    if options.template is None:
        applies = are_layers(graph, device)
    else:
        applies = is_template(options.template)
    return plan_layers(graph, Settings(device, options), watch) if applies else None


def _planned_loops(graph: Graph, device: Device, options: CodegenOptions, watch: Watch) -> Looped:
    """How the loops of a region run: a template says the form."""
    settings = Settings(device, replace(options, template=None))
    return plan_loops(graph, settings, watch, options.template)
