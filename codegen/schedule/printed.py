"""A schedule as a template: every decision of it, and nothing that follows from others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusionstitch.codegen.loops.axes import GroupAxes
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.schedule.labels import labels
from fusionstitch.codegen.schedule.registers import row_registers
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan, NestPlan
from fusionstitch.codegen.schedule.template import (
    COPY,
    Attr,
    Block,
    Level,
    Loop,
    Schedule,
    SubAttr,
    Template,
    attr,
)
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.hlo.graph import Graph


def printed(
    graph: Graph,
    plan: KernelPlan,
    splits: Sequence[tuple[str, int]],
    sunk: bool,
    halo: tuple[int, ...],
) -> Template:
    """The template of a schedule of a region in which `splits` were done, by name, concatenates
    were `sunk`, and tiles have a `halo`."""
    text = Printer(graph, plan)
    registers = row_registers(plan)
    free = row_registers(plan.tuned(Tuning()))
    return Template(
        cta_num=plan.grid * plan.cluster,
        cta_size=plan.block,
        cluster=plan.cluster if plan.cluster > 1 else None,
        cta_per_sm=plan.blocks_per_sm,
        row_registers=registers if registers != free else None,
        vector_bytes=plan.tuning.vector_bytes,
        sunk=sunk,
        halo=halo,
        splits=tuple(splits),
        phases=tuple(tuple(text.block(group) for group in phase) for phase in plan.phases),
    )


class Printer:
    """The groups of a schedule as templates have them."""

    def __init__(self, graph: Graph, plan: KernelPlan):
        self.plan = plan
        self.outputs = set(graph.root.operands)
        stages = [stage for group in plan.groups for stage in group.group.stages]
        self.read = {producer for stage in stages for producer, _ in stage.reads}
        must = {stage.op.id for stage in stages if not stage.optional}
        found = labels(graph)
        self.name = {
            s: found[s.op.id] + (COPY if s.optional and s.op.id in must else "") for s in stages
        }

    def block(self, group: GroupPlan) -> Block:
        """A group."""
        return Block(tuple(self._loop(nest, group) for nest in group.nests), group.points)

    def _loop(self, nest: NestPlan, group: GroupPlan) -> Loop:
        lines = tuple(self.lines(nest, group))
        if (tile := nest.tile) is None:
            if nest.nest.in_order or nest.inner == 1 or self.plan.cluster > 1:
                return Loop(lines)
            if nest.teams.columns:
                return Loop(lines, columns=nest.teams.columns)
            return Loop(lines, team=nest.teams.threads)
        if tile.columns:
            return Loop(lines, stream=True)
        lone = group.group.dot_axes is not None
        return Loop(
            lines,
            tensor=tile.tensor,
            rows=None if tile.tensor else tile.rows,
            lanes=None if tile.tensor else tile.lanes,
            run=tile.run if tile.tensor or lone else None,
            lot=tile.lot if lone else None,
            shares=tile.shares if lone else None,
        )

    def lines(self, nest: NestPlan, group: GroupPlan) -> Iterator[Schedule]:
        """The schedules of a loop. A sum is always kept, and nothing keeps an output that no loop
        reads."""
        row, inner = levels(nest.teams.threads, nest.teams.columns, self.plan.block)
        for stage in nest.nest.stages:
            shared = stage in group.shared
            elementwise, read = not stage.is_reduction, stage in self.read
            yield Schedule(
                self.name[stage],
                attrs_of(stage, group, nest, row, inner),
                shared,
                registers=elementwise and read and not stage.whole and not shared,
                whole=elementwise and stage.whole and (read or stage.op not in self.outputs),
            )


def levels(threads: int, columns: int, block: int) -> tuple[Level, Level]:
    """What runs along the rows and along the inner axes of a nest."""
    if threads == 1:
        return Level.CTA, Level.THREAD
    if columns:
        return Level.CTA, Level.WARP
    if threads >= block > 32:
        return Level.THREAD, Level.CTA
    return Level.WARP, Level.CTA


def input_axes(stage: Stage, axes: GroupAxes) -> list[int]:
    """The axes of a stage by dim of its op's input: kept and summed dims in their order."""
    if stage.op.opcode != "reduce":
        return [*axes.dims[stage.number], *axes.inner[stage.number]]
    kept_dims, summed = iter(axes.dims[stage.number]), iter(axes.inner[stage.number])
    reduced = stage.op.attrs["dimensions"]
    rank = stage.op.operands[0].shape.rank
    return [next(summed) if d in reduced else next(kept_dims) for d in range(rank)]


def attrs_of(
    stage: Stage, group: GroupPlan, nest: NestPlan, row: Level, inner: Level
) -> tuple[Attr, ...]:
    """One attr per dim of a stage's input. What a dot sums over for each element that it holds, and
    its results where it sums along the rows, each thread walks alone."""
    axes = group.group.axes
    level = dict.fromkeys(group.group.grid, Level.GRID)
    level |= dict.fromkeys(nest.nest.rows, row) | dict.fromkeys(nest.nest.inner, inner)
    found = []
    for chain in input_axes(stage, axes):
        leaves = [leaf for leaf in axes.set.leaves(chain) if axes.extent(leaf) != 1]
        kinds = [level.get(leaf, Level.THREAD) for leaf in leaves]
        if len(set(kinds)) <= 1:
            found.append(attr(kinds[0] if kinds else Level.THREAD))
            continue
        parts = zip(kinds, leaves, strict=True)
        found.append(Attr(tuple(SubAttr(k, axes.extent(leaf)) for k, leaf in parts)))
    return tuple(found) or (attr(Level.THREAD),)  # a scalar has no dim, and one thread computes it
