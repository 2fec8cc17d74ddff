"""The choice that a template makes for a region, group by group and loop by loop.

Each part of a template decides one thing. What it leaves out gets the default, and what cannot be
done as it says is refused with the name of the part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, islice, pairwise

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.loops.caching import retrace
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.pieces import joined
from fusionstitch.codegen.loops.stages import Stage, find_stages, new_stage
from fusionstitch.codegen.loops.stream import Stream
from fusionstitch.codegen.rewrite.extents import needs_stage
from fusionstitch.codegen.schedule.choice import Choice, GroupChoice, LoopChoice, read_elsewhere
from fusionstitch.codegen.schedule.clusters import can_share
from fusionstitch.codegen.schedule.defaults import kind, points_of
from fusionstitch.codegen.schedule.defaults import teams_of as default_teams
from fusionstitch.codegen.schedule.labels import labels
from fusionstitch.codegen.schedule.looped import Launch, fits, has_team, nest_of, teams_of, tile_of
from fusionstitch.codegen.schedule.spread import spread
from fusionstitch.codegen.schedule.template import Block, Loop, Schedule, Template
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of


def follow(template: Template, graph: Graph, stream: Stream, device: Device) -> Choice:
    """The choice for a region after its passes. Raises CodegenError for what it cannot have."""
    return _Follower(template, graph, stream, device).choice()


def launch_of(template: Template, device: Device) -> Launch:
    """The block and cluster of a template, or the defaults."""
    launch = Launch(template.cta_size, template.cluster or 1)
    most = device.max_threads_per_block
    if launch.block % 32 or launch.block > most:
        raise CodegenError(
            f"cta_size={launch.block}: it takes a multiple of 32 up to {most} on {device.name}."
        )
    if launch.cluster > device.cluster_limit:
        raise CodegenError(
            f"cluster={launch.cluster}: {device.name} has clusters of up to {device.cluster_limit} "
            "blocks."
        )
    if template.cta_num is not None and template.cta_num % launch.cluster:
        raise CodegenError(
            f"cta_num={template.cta_num}: it takes a multiple of cluster={launch.cluster}."
        )
    return launch


def pieces_of(template: Template, graph: Graph) -> frozenset[int]:
    """The ids of the outputs that a template has stored piece by piece: it has no line for them."""
    lines, names = {line.op for line in template.schedules}, labels(graph)
    return frozenset(i for i in joined(graph) if names[i] not in lines)


def made(template: Template, launch: Launch, phases: Sequence[Sequence[GroupChoice]]) -> Choice:
    """The choice of these groups with what the header of a template says."""
    blocks = template.cta_num
    return Choice(
        launch.block,
        tuple(map(tuple, phases)),
        launch.cluster,
        None if blocks is None else blocks // launch.cluster,
        template.cta_per_sm,
        Tuning(vector_bytes=template.vector_bytes, row_registers=template.row_registers),
    )


def stored(
    group: Group, loops: Sequence[LoopChoice], lines: Mapping[Stage, Schedule]
) -> frozenset[Stage]:
    """The stages of a group that are marked S, among which all must be that another loop of the
    block reads. Raises CodegenError where one is not."""
    shared = frozenset(stage for stage, line in lines.items() if line.shared)
    for stage in sorted(read_elsewhere(loop.nest for loop in loops), key=lambda s: s.op.id):
        if stage in lines and stage not in shared:
            raise CodegenError(
                f"{lines[stage].identifier} is read by another loop of its block: mark it S."
            )
    return shared


def _is_sum_of_few(op: Op) -> bool:
    """Whether a sum, short enough to be repeated inside each reader, is computed once anyway."""
    return kind_of(op.opcode) is Kind.REDUCTION and annotations_of(op).once


class _Follower:
    """One region and its template, on the way to a choice."""

    def __init__(self, template: Template, graph: Graph, stream: Stream, device: Device):
        self.template, self.graph, self.device = template, graph, device
        self.stream = stream
        self.launch = launch_of(template, device)
        self.label = labels(graph)
        self.op: dict[str, Op] = {name: graph.ops[i] for i, name in self.label.items()}
        self.lines = self._lines()
        #: where a phase begins among the groups
        self.first = [0, *accumulate(map(len, template.phases))]

    def choice(self) -> Choice:
        """All of it."""
        groups = [self._group(lines) for lines in self.lines]
        phases = [groups[start:end] for start, end in pairwise(self.first)]
        self._check_order(phases)
        found = [self._phase(groups, n) for n, groups in enumerate(phases)]
        if self.launch.cluster > 1:
            self._check_cluster([g for phase in found for g in phase])
        return made(self.template, self.launch, found)

    # ---- which ops have a line ------------------------------------------------------------------

    def _lines(self) -> list[dict[Stage, Schedule]]:
        """The stages of each group, in the order of its lines, with these."""
        stored = {op.id for op in self.graph.ops[:-1] if needs_stage(op) or _is_sum_of_few(op)}
        stored |= {self._op(line).id for line in self.template.schedules if line.whole}
        pieces = pieces_of(self.template, self.graph)
        stages = find_stages(self.graph, self.stream, frozenset(stored), pieces)
        must = {s.op.id: s for s in stages}
        found: list[dict[Stage, Schedule]] = []
        number = len(must)
        todo = set(must)
        for block in self.template.blocks:
            own: dict[Stage, Schedule] = {}
            for line in block.schedules:
                op = self._op(line)
                if op.id in must and not line.is_copy:
                    stage = must[op.id]
                    again = op.id not in todo
                    todo.discard(op.id)
                else:
                    self._check_optional(line, op.id in must)
                    stage = new_stage(op, number, optional=True)
                    number += 1
                    again = any(s.op is op for s in own)
                if again:
                    raise CodegenError(f"The template schedules {line.identifier} twice.")
                own[stage] = line
            found.append(own)
        for i in sorted(todo):
            raise CodegenError(
                f"The template has no line for {self.label[i]}: each output, reduction and dot "
                "has a loop."
            )
        return found

    def _op(self, line: Schedule) -> Op:
        """The op of a line."""
        if line.op not in self.op:
            raise CodegenError(
                f"The template schedules {line.op}, but the region has no such op; it has: "
                f"{', '.join(self.op)}."
            )
        op = self.op[line.op]
        if kind_of(op.opcode) in (Kind.REDUCTION, Kind.DOT) and (line.registers or line.whole):
            raise CodegenError(
                f"{line.op} is a sum, which is never computed again: it takes no mark but S."
            )
        return op

    def _check_optional(self, line: Schedule, elsewhere: bool) -> None:
        """Raises CodegenError for a line that has no reason to be."""
        if line.is_copy and not elsewhere:
            raise CodegenError(f"{line.identifier}: {line.op} has no line of which it is a copy.")
        if not (line.shared or line.registers):
            raise CodegenError(
                f"{line.identifier} needs no loop of its own: mark it S, R or G to have its value "
                "kept, or leave it out."
            )

    # ---- groups ---------------------------------------------------------------------------------

    def _group(self, lines: Mapping[Stage, Schedule]) -> Group:
        """The stages of a group, which read the values that it keeps."""
        on_chip = [s for s, one in lines.items() if not s.whole and (one.shared or one.registers)]
        if on_chip:
            whole = {s.op.id: s for own in self.lines for s in own if s.whole}
            retrace(lines, whole | {s.op.id: s for s in on_chip})
        read = {producer for stage in lines for producer, _ in stage.reads}
        for stage in on_chip:
            if stage.optional and stage not in read:
                raise CodegenError(
                    f"{self.label[stage.op.id]} is kept, but nothing in its group reads it."
                )
        return Group.of(lines, self.device)

    def _check_order(self, phases: Sequence[Sequence[Group]]) -> None:
        """Raises CodegenError where a group reads what is not there yet."""
        position = {
            s: (n, group) for n, phase in enumerate(phases) for group in phase for s in group.stages
        }
        for stage, (number, group) in position.items():
            for producer, _ in stage.reads:
                before, other = position[producer]
                if other is not group and before >= number:
                    raise CodegenError(
                        f"{self.label[stage.op.id]} reads {self.label[producer.op.id]} of another "
                        "group, which must lie before a grid; that comes before it."
                    )

    def _phase(self, groups: Sequence[Group], number: int) -> list[GroupChoice]:
        blocks = self.template.phases[number]
        lines = self.lines[self.first[number] : self.first[number + 1]]
        parts = zip(groups, blocks, lines, strict=True)
        looped = [self._loops(group, block, own) for group, block, own in parts]
        groups, loops = [group for group, _ in looped], [own for _, own in looped]
        kinds = [kind(g, [one.nest for one in own]) for g, own in zip(groups, loops, strict=True)]
        alike = Counter(kinds)
        found = []
        for group, block, own, sort, line in zip(groups, blocks, loops, kinds, lines, strict=True):
            points = self._points(group, block, own, alike[sort])
            done = [
                self._sized(one, loop, group, points)
                for loop, one in zip(block.loops, own, strict=True)
            ]
            on_chip = stored(group, done, line)
            found.append(GroupChoice(group, points, tuple(done), on_chip))
        return found

    def _loops(
        self, group: Group, block: Block, lines: Mapping[Stage, Schedule]
    ) -> tuple[Group, list[LoopChoice]]:
        """A group with its axes over blocks, and its nests, each with its team."""
        group, levels = spread(group, lines)
        found: list[LoopChoice] = []
        home: dict[Stage, int] = {}
        left = iter(lines)
        for number, loop in enumerate(block.loops):
            stages = list(islice(left, len(loop.schedules)))
            for stage, after in pairwise(stages):
                if after.op.id < stage.op.id:
                    raise CodegenError(
                        f"{self.label[after.op.id]} comes before {self.label[stage.op.id]} in the "
                        "program, so it does in their loop."
                    )
            teams = teams_of(loop, stages, group, levels, self.launch)
            group, nest = nest_of(loop, stages, group, levels, teams, self.launch, self.stream)
            for stage in stages:
                home[stage] = number
            found.append(LoopChoice(nest, teams))
        for stage, number in home.items():
            for producer, _ in stage.reads:
                if home.get(producer, number) > number:
                    raise CodegenError(
                        f"{self.label[stage.op.id]} reads {self.label[producer.op.id]} of a later "
                        "loop of its group."
                    )
        return group, found

    def _sized(self, one: LoopChoice, loop: Loop, group: Group, points: int) -> LoopChoice:
        """A loop with its tile, or with the default team where nothing in its head or in its attrs
        is against that."""
        block, nest = self.launch.block, one.nest
        if loop.tiled:
            return LoopChoice(nest, one.teams, tile_of(loop, group, nest, points, block))
        if self.launch.cluster > 1 or nest.in_order or has_team(loop):
            return one
        default = default_teams(group, nest, points, block, self.device)
        return LoopChoice(nest, default) if fits(default, one.teams, nest, block) else one

    def _points(self, group: Group, block: Block, loops: Sequence[LoopChoice], alike: int) -> int:
        """Grid points of a tile."""
        nests = [loop.nest for loop in loops]
        fixed = group.streamed or self.launch.cluster > 1 or any(n.carries for n in nests)
        first = self.label[group.stages[0].op.id]
        if block.tile is None:
            points = 1
            if not fixed:
                points = points_of(group, nests, self.launch.block, self.device, alike)
            return points if group.is_flat else min(points, group.tiles)
        if fixed and block.tile > 1:
            raise CodegenError(
                f"tile={block.tile} in the group of {first}: a block that carries sums, streams or "
                "shares rows with others has one point of the grid at a time."
            )
        most = 2 * group.tiles - 1 if group.is_flat else group.tiles
        if block.tile > max(1, most):
            raise CodegenError(
                f"tile={block.tile} in the group of {first}: its grid has {group.tiles} points."
            )
        return block.tile

    def _check_cluster(self, groups: Sequence[GroupChoice]) -> None:
        """Raises CodegenError unless the blocks of a cluster can share each row."""
        nests = [loop.nest for loop in groups[0].loops]
        one = len(groups) == 1 and can_share(groups[0].group, nests)
        threads = self.launch.cluster * self.launch.block
        if not one or groups[0].group.axes.size(nests[0].inner) < threads:
            raise CodegenError(
                f"cluster={self.launch.cluster}: the kernel is not one loop over rows of at least "
                f"{threads} elements, one row to a tile, that are summed along memory."
            )
