"""From a region to a kernel: passes, ways, decisions, text (paper Algorithm 3).

`codegen/passes.py` lists what rewrites a region and `codegen/decisions.py` what is decided of it.
"""

from __future__ import annotations

from dataclasses import replace

from fusionstitch.codegen.count.account import account
from fusionstitch.codegen.count.tallies import count
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.codegen.lower.program import statements, write_kernel
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.codegen.ways import first_that_works
from fusionstitch.codegen.whiles.flat import has_loop
from fusionstitch.codegen.whiles.generate import Looped, plan_loops, write_loops
from fusionstitch.costmodel.account import Account
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.verdict import Verdict, forbid


def plan_kernel(graph: Graph, device: Device, options: CodegenOptions | None = None) -> Scheduled:
    """Schedules a region. Raises CodegenError if none of the ways to do it fits the device."""
    settings = Settings.of(device, options or CodegenOptions())
    return first_that_works(graph, settings, lambda scheduled: scheduled, NOBODY)


def inspect(
    graph: Graph, device: Device, options: CodegenOptions | None = None
) -> KernelFacts | Verdict:
    """What the kernel of a region would do, or why there can be none."""
    try:
        if has_loop(graph):
            return _planned_loops(graph, device, options or CodegenOptions(), NOBODY)[0].facts
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

    return first_that_works(graph, settings, account_of, NOBODY)


def generate(
    graph: Graph,
    device: Device,
    options: CodegenOptions | None = None,
    watch: Watch = NOBODY,
) -> Kernel:
    """The kernel of a region. Raises CodegenError if none of the ways to schedule it works."""
    if has_loop(graph):
        return write_loops(*_planned_loops(graph, device, options or CodegenOptions(), watch))
    settings = Settings.of(device, options or CodegenOptions())

    def written(scheduled: Scheduled) -> Kernel:
        kernel = write_kernel(scheduled, settings.options.numerics, watch)
        if not (verdict := launchable(kernel, device)):
            raise CodegenError(f"{verdict}.")
        return kernel

    return first_that_works(graph, settings, written, watch)


def _planned_loops(
    graph: Graph, device: Device, options: CodegenOptions, watch: Watch
) -> tuple[Looped, Settings]:
    """How the loops of a region run: a template says the form."""
    settings = Settings(device, replace(options, template=None))
    return plan_loops(graph, settings, watch, options.template), settings
