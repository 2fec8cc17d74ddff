"""Which stages become one group.

Merging starts from one group per stage and follows the edges between them. A merge must leave the
group graph acyclic, keep at least one block's worth of shared memory free, and pay: what it saves
in barriers and scratch traffic must outweigh the parallelism it gives up.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from fusionstitch.codegen.loops.groups import Group, read_by, shared_bytes
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.loops.stream import NOTHING, Stream
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.estimate import boundary_us

#: Earlier readers of an input that a stage may join.
MOST_SIBLINGS = 4
#: Multiply-adds from which a dot deserves tiles of its own.
TILED_WORK = 1 << 20
#: Stages of one group: longer chains would take long to analyse and seldom fit.
MOST_STAGES = 160


def form_groups(
    stages: Sequence[Stage], device: Device, merge: bool = True, stream: Stream = NOTHING
) -> list[Group]:
    """The groups of a region's stages, greedily merged if `merge`, in topological order."""
    return _Merger(stages, device, stream).run(merge)


class _Merger:
    def __init__(self, stages: Sequence[Stage], device: Device, stream: Stream):
        self.device = device
        self.stream = stream
        self.stages = stages
        self.group_of: dict[Stage, Group] = {s: Group.of([s], device) for s in stages}
        self.refused: set[tuple[Group, Group]] = set()
        #: by group, its stages and those of other groups that it waits for, as bitsets of numbers
        self.bits: dict[Group, int] = {}
        self.above: dict[Group, int] = {}
        #: what is read, and by which stage, the largest value first
        self.edges = [(producer, stage) for stage in stages for producer, _ in stage.reads]
        self.edges.sort(key=lambda edge: -edge[0].op.shape.bytes)

    def run(self, merge: bool) -> list[Group]:
        if merge:
            for stage in self.stages:
                self._enter(stage)
            siblings = self._siblings()
            # sums over the same pairs have one loop, whatever reads them
            for left, right in siblings:
                if left.visits_pairs and right.visits_pairs and not self._waits(right, left):
                    self._try(self.group_of[left], self.group_of[right], linked=False)
            for stage in self.stages:
                apart = self._side_by_side(stage)
                for producer, _ in stage.reads:
                    if self.group_of[producer] not in apart:
                        self._try(self.group_of[producer], self.group_of[stage], linked=True)
            for left, right in siblings:
                self._try(self.group_of[left], self.group_of[right], linked=False)
        return ordered(list(dict.fromkeys(self.group_of[s] for s in self.stages)), self.group_of)

    def _waits(self, stage: Stage, other: Stage) -> bool:
        """Whether the group of a stage waits for that of another."""
        return bool(self.above[self.group_of[stage]] & self.bits[self.group_of[other]])

    def _enter(self, stage: Stage) -> None:
        """Notes what a stage waits for, before it is in any larger group."""
        group = self.group_of[stage]
        above = 0
        for producer, _ in stage.reads:
            before = self.group_of[producer]
            above |= self.bits[before] | self.above[before]
        self.bits[group], self.above[group] = 1 << stage.number, above

    def _side_by_side(self, stage: Stage) -> set[Group]:
        """The groups of few tiles that `stage` reads sums of, where these would wait for each other
        in its block for longer than for a grid barrier, each in blocks of its own."""
        sms = self.device.sm_count
        read = {self.group_of[producer] for producer, _ in stage.reads}
        few = [g for g in read if g.tiles < sms and _loops(g)]
        ancestors = functools.reduce(operator.or_, (self.above[g] for g in few), 0)
        last = {g for g in few if not self.bits[g] & ancestors}
        if len(last) < 2:
            return set()
        together = sum(_loops(g) for g in last)
        over_blocks = -(-sum(g.tiles * _loops(g) for g in last) // sms)
        longest = max(over_blocks, *(_loops(g) for g in last))
        waits = (together - longest) * self.device.row_sum_us
        return last if waits > boundary_us(self.device, sms) else set()

    def _siblings(self) -> list[tuple[Stage, Stage]]:
        """Pairs of stages, one soon after the other, that read an input about once per element, or
        compute a special function alike: in one loop they do so once. Pieces of one output that are
        of one shape are likely to."""
        swept = [[o for o in s.swept if o.shape.size * 2 >= s.visits] for s in self.stages]
        specials = [[op for op, _ in s.specials] for s in self.stages]
        pieces = [s.joins for s in self.stages]
        pairs: list[tuple[Stage, Stage]] = []
        for each in (swept, specials, pieces):
            before: dict[int, list[Stage]] = {}
            for stage, ops in zip(self.stages, each, strict=True):
                most = MOST_STAGES if stage.visits_pairs else MOST_SIBLINGS
                for op in ops:
                    others = before.setdefault(op.id, [])
                    pairs += [(other, stage) for other in others[:-most:-1]]
                    others.append(stage)
        return list(dict.fromkeys(pairs))

    def _try(self, left: Group, right: Group, linked: bool) -> None:
        if left is right or (left, right) in self.refused:
            return
        if not self._merged(left, right, linked):
            self.refused.add((left, right))

    def _merged(self, left: Group, right: Group, linked: bool) -> bool:
        """Merges two groups if that is legal and pays; says whether it did."""
        if len(left.stages) + len(right.stages) > MOST_STAGES or self._cyclic(left, right):
            return False
        if not linked and left.tiles != right.tiles:
            return False
        if _parted(left, right) or _parted(right, left):
            return False
        if _strangers(left, right) or _by_rows(left) or _by_rows(right):
            return False
        merged = Group.merged(left, right)
        if merged.tiles == 1 and max(left.tiles, right.tiles) > self.device.sm_count:
            return False
        if not linked and (merged.tiles != left.tiles or not _alike(merged, left, right)):
            return False
        if linked and (self._streams(left) or self._streams(right)):
            self._replace(left, right, merged)  # elements of a stream are never stored
            return True
        if not self._pays(left, right, merged):
            return False
        if linked and self._parts_more(left, right):
            return False
        self._replace(left, right, merged)
        return True

    def _pays(self, left: Group, right: Group, merged: Group) -> bool:
        """Whether a block has the memory for both, and they gain from being one group."""
        if shared_bytes(merged) > self.device.shared_per_block:
            return False
        together, apart = merged.figures.us, left.figures.us + right.figures.us
        return together <= apart or together <= apart + self._saved_us(left, right)

    def _parts_more(self, left: Group, right: Group) -> bool:
        """Whether two groups as one would keep others apart that have more to gain, because the
        one that reads larger values of the other would wait for a sum that waits for them:

            weights -> losses(weights, rows)    gradient(rows, sum(weights))

        Losses stay with rows, and so does the gradient; weights go through memory."""
        if len(self.stages) > MOST_STAGES:
            return False
        saved = self._saved_us(left, right)
        tried = set()
        for producer, reader in self.edges:
            pair = before, after = self.group_of[producer], self.group_of[reader]
            if before is after or pair in tried or {before, after} == {left, right}:
                continue
            if 2 * self._us(producer) <= saved:
                return False
            tried.add(pair)
            if not self._between(before, after, left, right) or self._cyclic(before, after):
                continue
            if self._saved_us(before, after) > saved and self._may_be_one(before, after):
                return True
        return False

    def _between(self, before: Group, after: Group, left: Group, right: Group) -> bool:
        """Whether a path from one group to another would pass through a third, if `left` and
        `right` were one."""
        both = self.bits[left] | self.bits[right]
        if before not in (left, right) and after not in (left, right):
            above = self.above[left] | self.above[right]
            return bool(self.above[after] & both and above & self.bits[before])
        ends = {left, right, before, after}
        start = both if before in (left, right) else self.bits[before]
        stages = after.stages if before in (left, right) else [*left.stages, *right.stages]
        read = {self.group_of[producer] for stage in stages for producer, _ in stage.reads}
        return any(self.above[third] & start for third in read - ends)

    def _may_be_one(self, left: Group, right: Group) -> bool:
        """Whether two groups are as many tiles together as alone, and gain from that."""
        merged = Group.merged(left, right)
        return merged.tiles >= min(left.tiles, right.tiles) and self._pays(left, right, merged)

    def _us(self, stage: Stage) -> float:
        """What it takes to store a value, or to read it."""
        return stage.op.shape.bytes / self.device.l2_bytes_per_s * 1e6

    def _streams(self, group: Group) -> bool:
        dots = self.stream.dots
        return bool(dots) and any(s.op.id in dots for s in group.stages)

    def _replace(self, left: Group, right: Group, merged: Group) -> None:
        for stage in merged.stages:
            self.group_of[stage] = merged
        bits = self.bits[merged] = self.bits.pop(left) | self.bits.pop(right)
        before = (self.above.pop(left) | self.above.pop(right)) & ~bits
        for group, above in self.above.items():
            if above & bits:
                self.above[group] = above | bits | before
        self.above[merged] = before

    def _cyclic(self, left: Group, right: Group) -> bool:
        """True if a path between the two groups passes through a third."""
        for start, goal in ((left, right), (right, left)):
            for stage in goal.stages:
                for producer, _ in stage.reads:
                    group = self.group_of[producer]
                    third = group is not start and group is not goal
                    if third and self.above[group] & self.bits[start]:
                        return True
        return False

    def _saved_us(self, left: Group, right: Group) -> float:
        """What a merge saves: the barrier, the scratch traffic, and inputs read twice."""
        inside = set(left.stages)
        crossing = {p for s in right.stages for p, _ in s.reads if p in inside}
        moved = 2 * sum(p.op.shape.bytes for p in crossing)
        loaded = {op for s in left.stages for op in s.swept}
        moved += sum(op.shape.bytes for op in loaded & {op for s in right.stages for op in s.swept})
        barrier = self.device.grid_barrier_us if crossing else 0.0
        return barrier + moved / self.device.l2_bytes_per_s * 1e6


def _parted(left: Group, right: Group) -> bool:
    """Whether `right` adds up sums of columns that `left` has spread over its share of the blocks:
    in one group the columns would replace the parts as the grid."""
    spread = {s for s in left.stages if s.share is not None}
    return bool(spread) and any(p in spread for stage in right.stages for p, _ in stage.reads)


def _strangers(left: Group, right: Group) -> bool:
    """Whether a dot that should have tiles of its own would share a loop with an independent
    reduction whose results have the same dims. The dims that the reduction sums over would replace
    the dot's columns, and leave most of its threads idle."""
    both = [s for s in (*left.stages, *right.stages) if s.is_reduction]
    dots = [s for s in both if s.op.opcode == "dot" and s.visits >= TILED_WORK]
    reductions = [s for s in both if s.op.opcode != "dot"]
    if not (dots and reductions):
        return False
    stages = sorted((*left.stages, *right.stages), key=lambda s: s.number)
    ancestors: dict[Stage, set[Stage]] = {}
    for stage in stages:
        read = [p for p, _ in stage.reads if p in ancestors]
        ancestors[stage] = set(read).union(*(ancestors[p] for p in read))
    return any(
        dot not in ancestors[other] and other not in ancestors[dot] and dot.op.dims == other.op.dims
        for dot in dots
        for other in reductions
    )


def _by_rows(group: Group) -> bool:
    """Whether the data says which of its results each element that it visits belongs to: threads
    that have others to wait for would wait for all of these."""
    return any(s.op.opcode == "bins" for s in group.stages)


def _loops(group: Group) -> int:
    """Sums of a group, which wait for each other."""
    return sum(s.is_reduction for s in group.stages)


def _alike(merged: Group, left: Group, right: Group) -> bool:
    """Siblings gain from one loop only if their loops visit the same elements: those of one group
    those of loops of the other."""
    return len(_loop_axes(merged)) <= max(len(_loop_axes(left)), len(_loop_axes(right)), 1)


def _loop_axes(group: Group) -> set[frozenset[int]]:
    """The axes of each loop inside blocks. What is computed of sums, once per row, has no loop."""
    axes = {frozenset(group.in_block(s) + group.axes.inner_leaves(s)) for s in group.stages}
    return axes - {frozenset()}


def ordered(groups: Sequence[Group], group_of: dict[Stage, Group]) -> list[Group]:
    """Topological order of groups, ties by first stage."""
    done: set[Group] = set()
    result: list[Group] = []
    waiting = sorted(groups, key=lambda g: g.stages[0].op.id)
    while waiting:
        for group in waiting:
            if read_by(group, group_of) <= done:
                break
        done.add(group)
        result.append(group)
        waiting.remove(group)
    return result
