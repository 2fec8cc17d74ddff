"""From a region to a kernel: stages, groups, nests, memory, text (paper Algorithm 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from codegen.caching import cache_values
from codegen.dot_groups import tile_dots
from codegen.expansions import expand
from codegen.factors import take_out_factors
from codegen.facts import kernel_facts
from codegen.groups import form_groups
from codegen.kernel import Kernel
from codegen.program import write_kernel
from codegen.scatters import expand_scatters
from codegen.schedule import KernelPlan, made_resident, schedule
from codegen.split import split_reductions
from codegen.stages import find_stages
from codegen.storage import SharedLayout, plan_layout
from codegen.strength import reduce_strength
from codegen.strength_rules import RULES
from codegen.template import parse_template
from codegen.templated import follow
from codegen.tuning import DEFAULT, Tuning
from costmodel.devices import Device
from costmodel.facts import KernelFacts
from hlo.errors import CodegenError
from hlo.graph import Graph
from hlo.verdict import Verdict, forbid

T = TypeVar("T")


@dataclass(frozen=True)
class CodegenOptions:
    """What changes the text of a kernel besides the region and the device.

    `numerics`: "default" keeps bf16 and f16 intermediates in float, "strict" rounds each.
    `sharing`: whether Algorithm 4 may reuse shared memory. `template`: a schedule to follow
    instead of the default one, in the paper's grammar (`codegen/template.py`). `tuning`: the
    autotuner's choices.
    """

    numerics: str = "default"
    sharing: bool = True
    template: str | None = None
    tuning: Tuning = DEFAULT


@dataclass(frozen=True, eq=False)
class Scheduled:
    """A region with every decision taken: what is left is printing it."""

    graph: Graph
    plan: KernelPlan
    layout: SharedLayout
    facts: KernelFacts


def plan_kernel(graph: Graph, device: Device, options: CodegenOptions | None = None) -> Scheduled:
    """Schedules a region. Raises CodegenError if none of the ways to do it fits the device."""
    settings = options or CodegenOptions()
    return _first_that_works(
        lambda merge: _scheduled(graph, device, settings, merge), settings.tuning.merge
    )


def inspect(
    graph: Graph, device: Device, options: CodegenOptions | None = None
) -> KernelFacts | Verdict:
    """What the kernel of a region would do, or why there can be none."""
    try:
        return plan_kernel(graph, device, options).facts
    except CodegenError as error:
        return forbid(str(error))


def generate(graph: Graph, device: Device, options: CodegenOptions | None = None) -> Kernel:
    """The kernel of a region. Raises CodegenError if none of the ways to schedule it works."""
    settings = options or CodegenOptions()
    return _first_that_works(
        lambda merge: write_kernel(_scheduled(graph, device, settings, merge), settings.numerics),
        settings.tuning.merge,
    )


def _first_that_works(attempt: Callable[[bool], T], merge: bool) -> T:
    """The attempt with merged groups or, where that does not fit, with a group per stage."""
    if not merge:
        return attempt(False)
    try:
        return attempt(True)
    except CodegenError as refused:
        try:
            return attempt(False)
        except CodegenError:
            raise refused from None


def _scheduled(graph: Graph, device: Device, options: CodegenOptions, merge: bool) -> Scheduled:
    graph = expand(graph, options.numerics)
    graph = reduce_strength(graph, RULES, exact=options.numerics == "strict")
    if options.numerics != "strict":
        graph = take_out_factors(graph)
    graph = split_reductions(expand_scatters(graph), device, options.tuning.parts)
    stages = find_stages(graph)
    if not stages:
        raise CodegenError(f"Region {graph.name} computes nothing: there is no kernel to write.")
    empty = next((op for op in graph.ops[:-1] if op.shape.size == 0), None)
    if empty is not None:
        raise CodegenError(f"{empty.name} has no elements ({empty.shape}): leave it to XLA.")
    groups = form_groups(stages, device, merge)
    if merge:
        groups = cache_values(groups, graph, device)
        if not options.template:
            tile_dots(groups, device)
    fixed = follow(parse_template(options.template), groups) if options.template else None
    plan = schedule(groups, device, fixed, options.tuning)
    layout = plan_layout(graph, plan, device.shared_per_block, options.sharing)
    plan = made_resident(plan, layout.total, device)
    return Scheduled(graph, plan, layout, kernel_facts(graph, plan, layout, device))
