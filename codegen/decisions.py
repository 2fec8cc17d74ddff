"""From a region to a schedule with every decision taken: the steps, in the order they are taken.

Each step has a name and gives a value that the next ones build on. None of them sees text, and
what a region cannot have on a way is a CodegenError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.dots.groups import tile_dots
from fusionstitch.codegen.dots.streams import stream_rows
from fusionstitch.codegen.loops.caching import cache_values
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.merging import form_groups
from fusionstitch.codegen.loops.once import Synchronisation, materialized
from fusionstitch.codegen.loops.pieces import joined
from fusionstitch.codegen.loops.stages import Stage, find_stages
from fusionstitch.codegen.loops.stream import Stream
from fusionstitch.codegen.memory.scratch import global_values
from fusionstitch.codegen.memory.storage import plan_layout
from fusionstitch.codegen.memory.teams import check_teams
from fusionstitch.codegen.schedule.checked import check_followed
from fusionstitch.codegen.schedule.choice import Choice, planned
from fusionstitch.codegen.schedule.defaults import chosen
from fusionstitch.codegen.schedule.flat import follow_flat
from fusionstitch.codegen.schedule.followed import follow, pieces_of
from fusionstitch.codegen.schedule.named_splits import requested_splits
from fusionstitch.codegen.schedule.outlining import length, with_functions
from fusionstitch.codegen.schedule.residency import made_resident
from fusionstitch.codegen.schedule.schedule import KernelPlan
from fusionstitch.codegen.schedule.split import Splits, find_splits
from fusionstitch.codegen.schedule.walking import with_walks
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import Settings, Way
from fusionstitch.codegen.watch import Watch
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.estimate import boundary_us
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph

#: Ops in a kernel's text, alike groups counted once: 550 of an unrolled LSTM's training step take
#: NVRTC half a minute of one core.
MOST_OPS = 2000


def decide_splits(graph: Graph, settings: Settings, way: Way) -> Splits:
    """The sums of a region that become several on `way`: those a template lists, or the defaults,
    with which a template of the paper's leaves us. Raises CodegenError."""
    template = settings.template
    if template is not None and template.splits:
        return {i: s for i, s in requested_splits(graph, template.splits).items() if s.parts > 1}
    fixed = (template is not None and template.phases) or settings.halo
    if fixed or way not in (Way.MERGE, Way.APART):
        return {}
    return find_splits(graph, settings.device, settings.options.tuning.parts)


def decide(graph: Graph, settings: Settings, way: Way, watch: Watch) -> Scheduled:
    """The schedule of a rewritten region on `way`. Raises CodegenError if there is none."""
    device = settings.device
    done = watch.decided
    stream, template = settings.stream, settings.template
    if template is not None and template.phases:
        choice = done("choice", follow(template, graph, stream, device))
    else:
        stages = done("stages", _stages(graph, stream, settings))
        seen = _seen(device, way)
        groups = done("groups", form_groups(stages, seen, way is not Way.APART, stream))
        if way is not Way.APART:
            groups = done("streamed rows", stream_rows(groups, stream, device))
            groups = done("cached values", cache_values(groups, graph, device))
            if template is None:
                groups = done("tiles", tile_dots(groups, device))
        choice = done("choice", _choice(graph, groups, settings))
    return settle(graph, choice, settings, way, watch)


def settle(graph: Graph, choice: Choice, settings: Settings, way: Way, watch: Watch) -> Scheduled:
    """The schedule that a choice makes, with all that follows. Raises CodegenError where it does
    not fit the device, or is not what the template of the settings says."""
    device, options, done = settings.device, settings.options, watch.decided
    plan = done("schedule", planned(choice, device))
    plan = done("limits", _within_limits(graph, plan, way))
    plan = done("walks", with_walks(plan, _written(graph, plan)))
    plan = done("functions", with_functions(plan, _buffers(graph, plan)))
    layout = done("memory", plan_layout(graph, plan, device.shared_per_block, options.sharing))
    requested = choice.blocks, choice.blocks_per_sm
    plan = done("residency", made_resident(plan, layout.total, device, *requested))
    if settings.template is not None:
        check_followed(settings.template, graph, plan)
    return done("all", Scheduled(graph, plan, layout))


def _seen(device: Device, way: Way) -> Device:
    """The device as tiles see it: in clusters, each takes as many blocks."""
    if way is not Way.SHARE:
        return device
    return replace(device, sm_count=max(1, device.sm_count // device.cluster_limit))


def _stages(graph: Graph, stream: Stream, settings: Settings) -> list[Stage]:
    stages = _found_stages(graph, stream, settings)
    if not stages:
        raise CodegenError(f"Region {graph.name} computes nothing: there is no kernel to write.")
    for stage in stages:
        part_of = annotations_of(stage.op).part_of
        if part_of is not None:
            stage.share = settings.splits[part_of].share
    return stages


def _found_stages(graph: Graph, stream: Stream, settings: Settings) -> list[Stage]:
    """The stages of a region: where too much would be computed again, costly values are stored."""
    pieces = settings.joined
    if pieces is None:
        template = settings.template
        pieces = joined(graph) if template is None else pieces_of(template, graph)

    def found(stored: frozenset[int]) -> list[Stage]:
        return find_stages(graph, stream, stored, pieces)

    if settings.stored is not None:
        return found(settings.stored)
    if settings.options.tuning.once:
        return found(materialized(graph, stream, synchronisation(settings)))
    try:
        return found(materialized(graph, stream))
    except CodegenError:
        return found(materialized(graph, stream, synchronisation(settings)))


def synchronisation(settings: Settings) -> Synchronisation:
    """What it costs that all threads wait for each other once more."""
    device, threads = settings.device, settings.options.tuning.block or 0
    wait_us = max(boundary_us(device, device.sm_count), device.block_barrier_us)
    lanes = device.lanes * device.sm_count
    alone = threads if device.holds_one_block else 0
    return Synchronisation(wait_us * device.cycles_per_us, lanes, alone)


def _choice(graph: Graph, groups: Sequence[Group], settings: Settings) -> Choice:
    """The default choice for groups, or that of a template which leaves them to merging."""
    outputs, inputs = graph.root.operands, graph.parameters
    overwrites = {outputs[o]: inputs[i] for o, i in settings.options.overwrites}
    if settings.template is not None:
        return follow_flat(settings.template, graph, groups, settings.device, overwrites)
    return chosen(groups, settings.device, settings.options.tuning, overwrites)


def _written(graph: Graph, plan: KernelPlan) -> set[int]:
    """The ids of the ops whose values go to global memory."""
    return {op.id for op in graph.root.operands} | {s.op.id for s in global_values(plan)}


def _buffers(graph: Graph, plan: KernelPlan) -> Counter[int]:
    """How many buffers of global memory a value is stored to, by op id: outputs, or scratch."""
    outputs = Counter(op.id for op in graph.root.operands)
    return outputs + Counter(dict.fromkeys(_written(graph, plan) - outputs.keys(), 1))


def _within_limits(graph: Graph, plan: KernelPlan, way: Way) -> KernelPlan:
    """A schedule whose teams have barriers, whose clusters share rows, and whose text is short
    enough."""
    check_teams(plan)
    if way is Way.SHARE and plan.cluster == 1:
        raise CodegenError(f"No cluster shares the rows of {graph.name}.")
    if (ops := length(plan.groups)) > MOST_OPS:
        raise CodegenError(f"Its text of {ops} ops would take too long to compile: split it.")
    return plan
