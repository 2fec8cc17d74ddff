"""From a region to a kernel: stages, groups, nests, memory, text (paper Algorithm 3)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from fusionstitch.codegen.count.facts import kernel_facts
from fusionstitch.codegen.dots.chains import find_streams, without_factors
from fusionstitch.codegen.dots.groups import tile_dots
from fusionstitch.codegen.dots.streams import stream_rows
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.codegen.loops.caching import cache_values
from fusionstitch.codegen.loops.groups import form_groups
from fusionstitch.codegen.loops.nesting import check_nesting
from fusionstitch.codegen.loops.stages import NOTHING, find_stages
from fusionstitch.codegen.lower.functions import length
from fusionstitch.codegen.lower.program import write_kernel
from fusionstitch.codegen.memory.barriers import check_teams
from fusionstitch.codegen.memory.storage import plan_layout
from fusionstitch.codegen.rewrite.expansions import expand
from fusionstitch.codegen.rewrite.factors import take_out_factors
from fusionstitch.codegen.rewrite.moments import centre_sums, merge_variances
from fusionstitch.codegen.rewrite.scatters import expand_scatters
from fusionstitch.codegen.rewrite.strength import reduce_strength
from fusionstitch.codegen.rewrite.strength_rules import RULES
from fusionstitch.codegen.schedule.clusters import has_long_rows
from fusionstitch.codegen.schedule.residency import made_resident
from fusionstitch.codegen.schedule.schedule import schedule
from fusionstitch.codegen.schedule.split import split_reductions
from fusionstitch.codegen.schedule.template import parse_template
from fusionstitch.codegen.schedule.templated import follow
from fusionstitch.codegen.schedule.tuning import DEFAULT, Tuning
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.verdict import Verdict, forbid

#: Ops in a kernel's text, alike groups counted once: 550 of an unrolled LSTM's training step take
#: NVRTC half a minute of one core.
MOST_OPS = 2000

T = TypeVar("T")


@dataclass(frozen=True)
class CodegenOptions:
    """What changes the text of a kernel besides the region and the device.

    `numerics`: "default" keeps bf16 and f16 intermediates in float, "strict" rounds each.
    `sharing`: whether Algorithm 4 may reuse shared memory. `template`: a schedule to follow
    instead of the default one, in the paper's grammar (`schedule/template.py`). `tuning`: the
    autotuner's choices. `overwrites`: pairs of an output and an input whose buffer that output
    should end up in; a schedule may let it happen, which `Kernel.in_place` tells, or not.
    """

    numerics: str = "default"
    sharing: bool = True
    template: str | None = None
    tuning: Tuning = DEFAULT
    overwrites: tuple[tuple[int, int], ...] = ()


def plan_kernel(graph: Graph, device: Device, options: CodegenOptions | None = None) -> Scheduled:
    """Schedules a region. Raises CodegenError if none of the ways to do it fits the device."""
    return _first_that_works(
        graph, device, options or CodegenOptions(), lambda scheduled: scheduled
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

    def written(scheduled: Scheduled) -> Kernel:
        kernel = write_kernel(scheduled, settings.numerics)
        if not (verdict := launchable(kernel, device)):
            raise CodegenError(f"{verdict}.")
        return kernel

    return _first_that_works(graph, device, settings, written)


class Way(enum.Enum):
    """How the loops of a kernel are put together, the boldest first."""

    STREAM = "chains of dots walk their columns block by block, other loops merge"
    SHARE = "clusters of blocks share the rows: few of them fill the device, no sum is split"
    MERGE = "loops merge into groups"
    APART = "every loop is a group of its own"


def _first_that_works(
    graph: Graph, device: Device, options: CodegenOptions, finish: Callable[[Scheduled], T]
) -> T:
    """What `finish` makes of the first way that fits; where none does, the error of the boldest
    that any region may go."""
    graph = _simplified(graph, device, options)
    merge = options.tuning.merge
    streams = merge and options.numerics != "strict" and not options.template
    stream = find_streams(graph, device) if streams else NOTHING
    shares = merge and not options.template and has_long_rows(graph, device, options.tuning)
    possible = {Way.STREAM: bool(stream.dots), Way.SHARE: shares, Way.MERGE: merge, Way.APART: True}
    refused: CodegenError | None = None
    for way in Way:
        if not possible[way]:
            continue
        try:
            return finish(_scheduled(graph, device, options, way))
        except CodegenError as error:
            if way in (Way.MERGE, Way.APART) and refused is None:
                refused = error
    assert refused is not None
    raise refused


def _seen(device: Device, way: Way) -> Device:
    """The device as tiles see it: in clusters, each takes as many blocks."""
    if way is not Way.SHARE:
        return device
    return replace(device, sm_count=max(1, device.sm_count // device.cluster_limit))


def _simplified(graph: Graph, device: Device, options: CodegenOptions) -> Graph:
    graph = expand(graph, options.numerics)
    graph = reduce_strength(graph, RULES, exact=options.numerics == "strict")
    if options.numerics != "strict":
        graph = reduce_strength(centre_sums(take_out_factors(graph)), RULES)
    graph = expand_scatters(graph)
    empty = next((op for op in graph.ops[:-1] if op.shape.size == 0), None)
    if empty is not None:
        raise CodegenError(f"{empty.name} has no elements ({empty.shape}): leave it to XLA.")
    check_nesting(graph)
    return graph


def _scheduled(graph: Graph, device: Device, options: CodegenOptions, way: Way) -> Scheduled:
    stream = NOTHING
    if way is Way.STREAM:
        graph = without_factors(graph, find_streams(graph, device))
        stream = find_streams(graph, device)
    else:
        if way is not Way.SHARE:
            graph = split_reductions(graph, device, options.tuning.parts)
        if options.numerics != "strict":
            graph = merge_variances(graph)
    stages = find_stages(graph, stream)
    if not stages:
        raise CodegenError(f"Region {graph.name} computes nothing: there is no kernel to write.")
    groups = form_groups(stages, _seen(device, way), way is not Way.APART, stream)
    if way is not Way.APART:
        stream_rows(groups, stream, device)
        groups = cache_values(groups, graph, device)
        if not options.template:
            tile_dots(groups, device)
    fixed = follow(parse_template(options.template), groups) if options.template else None
    outputs, inputs = graph.root.operands, graph.parameters
    overwrites = {outputs[o]: inputs[i] for o, i in options.overwrites}
    plan = schedule(groups, device, fixed, options.tuning, overwrites)
    check_teams(plan)
    if way is Way.SHARE and plan.cluster == 1:
        raise CodegenError(f"No cluster shares the rows of {graph.name}.")
    if (ops := length(plan.groups)) > MOST_OPS:
        raise CodegenError(f"Its text of {ops} ops would take too long to compile: split it.")
    layout = plan_layout(graph, plan, device.shared_per_block, options.sharing)
    plan = made_resident(plan, layout.total, device)
    return Scheduled(graph, plan, layout, kernel_facts(graph, plan, layout, device))
