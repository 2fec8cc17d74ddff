"""Emission: a scheduled kernel as CUDA-C text, phase by phase, group by group."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.expressions import Cast, Expr, Name, infix, least, number
from fusionstitch.codegen.ir.intrinsics import PREFETCH
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Barrier,
    Blank,
    Call,
    For,
    Function,
    If,
    Invoke,
    Let,
    Shared,
    Statement,
)
from fusionstitch.codegen.ir.types import computed
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.lower.access import Site
from fusionstitch.codegen.lower.bins import lower_bins
from fusionstitch.codegen.lower.context import Context
from fusionstitch.codegen.lower.functions import Signature, signature
from fusionstitch.codegen.lower.nest import lower_rows
from fusionstitch.codegen.lower.sorts import lower_sorts
from fusionstitch.codegen.lower.tiles import lower_tile
from fusionstitch.codegen.schedule.schedule import GroupPlan
from fusionstitch.codegen.text.source import comment

#: Statements of one loop at most. Values that read two elements of others, level by level, double
#: at each level in every branch: a few hundred reads have become 26,000 lines. Of 500 stored
#: regions none has a loop of more than 1,000.
MOST_STATEMENTS = 12_288


#: How nests of one stage are written whose threads work in a way of their own.
OWN_WAYS: Mapping[Role, Callable[[Site], None]] = {Role.BINS: lower_bins, Role.SORT: lower_sorts}


class KernelEmitter:
    """Prints the statements of one kernel function through its context's writer."""

    def __init__(self, context: Context):
        self.context = context
        self.plan, self.memory = context.plan, context.memory
        self.int, self.writer = context.int_, context.writer
        self.functions: list[Function] = []
        self._calls: dict[GroupPlan, Invoke] = {}

    def body(self) -> tuple[Statement, ...]:
        """The statements of the kernel function; `functions` holds what they call."""
        self.phases(None)
        return self.writer.body

    def phases(self, between: Barrier | None) -> None:
        """Writes the phases, with a grid barrier between them if there are several. Other barriers
        follow from the statements of the whole kernel (`ir/passes/barriers.py`)."""
        self._write_functions()
        if self.plan.cluster > 1:
            self.writer.add(Barrier(Scope.CLUSTER, why="all run before one writes to another"))
        for i, phase in enumerate(self.plan.phases):
            if i and between:
                self.writer.add(between)
            if i:
                self.writer.add(Blank())
            self._phase(phase)

    def _write_functions(self) -> None:
        """Writes those groups as functions that share theirs with others. The first ones of each
        kind have the shortest names."""
        outlined = [group for group in self.plan.groups if group.function is not None]
        first = {group.function: group for group in reversed(outlined)}
        for group in sorted(outlined, key=lambda g: (g is not first[g.function], g.function)):
            given = signature(group, self.memory)
            body = self._function_body(group, given)
            name = self.writer.name("elementwise" if given.flat else "part")
            self.functions.append(Function(name, given.parameters(self.int, body), body))
            self._calls[group] = Invoke(name, given.arguments(group, body))

    def _function_body(self, group: GroupPlan, signature: Signature) -> tuple[Statement, ...]:
        """The statements of a function that computes one tile of a group."""
        outputs: dict[int, list[str]] = {}
        for i, (op, _) in enumerate(signature.stores):
            outputs.setdefault(op.id, []).append(f"out_{i}")
        loads = {op.id: f"in_{i}" for i, (op, _) in enumerate(signature.loads)}
        read = {i: name for i, name in loads.items() if i not in outputs}
        memory = replace(self.memory, inputs=loads, outputs=outputs, scratch=read)
        context = replace(self.context, memory=memory, writer=Writer(), anonymous=True)
        inner = KernelEmitter(context)
        names = [f"in_{i}" for i in range(len(signature.loads))]
        names += [f"out_{i}" for i in range(len(signature.stores))]
        for name in ("tile", "points", *names, *self.memory.tables.values()):
            inner.writer.name(name)
        inner.writer.declare("tile")
        inner._nests(group, "tile", "points" if signature.flat else "")
        return inner.writer.body

    def _phase(self, groups: Sequence[GroupPlan]) -> None:
        """The tiles of all groups, numbered through; a block, or a cluster of them, takes
        every grid-th one."""
        tiles, grid = sum(g.tiles for g in groups), self.plan.grid
        writer, int_, cluster = self.writer, self.int, self.plan.cluster
        worker = self.context.worker
        worker = infix("/", worker, cluster) if cluster > 1 else worker
        if tiles <= grid and len(groups) == 1:
            guard = If(infix("<", worker, tiles))
            with writer.nested(guard, pinned=True) if tiles < grid else nullcontext():
                self._group(groups[0], worker)
            return
        work = writer.name("work")
        looped = self.plan.loops(groups)
        if looped and len(groups) == 1 and groups[0].again:
            each = -(-tiles // grid)
            first = infix("*", Cast(int_, worker), each)
            end = least(int_, infix("+", first, each), tiles)
            frame: For | If = For(int_, work, first, end)
            if groups[0].backward:
                frame = For(int_, work, infix("-", end, 1), first, down=True)
        elif looped:
            frame = For(int_, work, worker, number(tiles), step=grid)
        else:
            frame = If(infix("<", Name(work), tiles), Let(int_, work, worker))
        with writer.nested(frame, pinned=True):
            if len(groups) == 1:
                self._group(groups[0], Name(work))
                return
            self._dispatch(groups, work)

    def _dispatch(self, groups: Sequence[GroupPlan], work: str) -> None:
        """Finds the group a tile belongs to, by halves."""
        if len(groups) == 1:
            first = groups[0].first_tile
            tile = infix("-", Name(work), first) if first else Name(work)
            self._group(groups[0], tile)
            return
        middle = len(groups) // 2
        with self.writer.nested(If(infix("<", Name(work), groups[middle].first_tile)), pinned=True):
            self._dispatch(groups[:middle], work)
        with self.writer.otherwise():
            self._dispatch(groups[middle:], work)

    def _group(self, group: GroupPlan, tile_number: Expr) -> None:
        """The tile of a group with that number: its nests in order."""
        writer = self.writer
        if group in self._calls:
            names = tuple(self.context.label(stage.op) for stage in group.group.stages)
            writer.note(comment(", ".join(names)), names)
            call = self._calls[group]
            writer.add(replace(call, arguments=(tile_number, *call.arguments)))
            return
        tile = writer.name("tile")
        if group.tiles > 1:
            writer.let(self.int, tile, tile_number)
            writer.declare(tile)
        self._nests(group, tile)

    def _nests(self, group: GroupPlan, tile: str, points: str = "") -> None:
        """The nests of a group in order."""
        writer = self.writer
        for op, elements in group.late:
            begin = infix("*", Name(tile), elements)
            start = infix("+", Name(self.memory.inputs[op.id]), begin)
            writer.add(Call(PREFETCH, (), (start, number(elements))))
        names: dict[Stage, str] = {}
        for stage in group.group.stages:
            if stage in self.memory.shared:
                names[stage] = writer.name(f"{self.context.label(stage.op)}_shared")
                kind, offset = computed(stage.op.dtype), self.memory.shared[stage]
                leaves = group.group.in_block(stage)
                size = group.points * math.prod(map(group.group.axes.extent, leaves))
                writer.add(Shared(kind, names[stage], offset, size))
        for nest in group.nests:
            role = nest.nest.own_role
            lower = OWN_WAYS[role] if role else lower_rows if nest.tile is None else lower_tile
            with writer.bounded(MOST_STATEMENTS):
                lower(Site(self.context, group, nest, tile, names, points))
