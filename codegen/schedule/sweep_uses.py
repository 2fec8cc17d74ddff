"""What the sweeps along a row have in common, and what each of them reads."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from fusionstitch.codegen.index_maps.index import Fetched, Index, Var, constant, linearize, variable
from fusionstitch.codegen.index_maps.maps import Indices, in_range
from fusionstitch.codegen.index_maps.vectors import aligned_base
from fusionstitch.codegen.loops.digits import Digits
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.loops.stages import Stage, body_reads, closure, inlined_reads
from fusionstitch.codegen.schedule.schedule import GroupPlan, NestPlan
from fusionstitch.codegen.schedule.walk import ELEMENT, POINT, ROW, TILE, UNIT, Live
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.semantics import Kind, kind_of

Key = tuple[Op, Indices]


class Somewhere:
    """A nest at a tile, a row and an element of it that stand for all; its threads take `width`
    elements at once."""

    def __init__(self, group: GroupPlan, nest: NestPlan, width: int) -> None:
        self.group, self.nest, self.width = group, nest, width
        self.stages = [s for s in nest.nest.stages if nest.nest.role[s] is not Role.ROW]
        self._body: dict[Stage, list[Key]] = {}
        self._below: dict[Key, list[Key]] = {}

    @functools.cached_property
    def whole(self) -> set[int]:
        """The ids of the ops of which this group reads values that are computed once."""
        return {p.op.id for s in self.group.group.stages for p, _ in s.reads}

    @functools.cached_property
    def column(self) -> Index:
        """The element of the row."""
        unit = variable(UNIT, self.nest.inner // self.width)
        return unit * self.width + variable(ELEMENT, self.width)

    @functools.cached_property
    def digits(self) -> Digits:
        """The axes there."""
        group, rows = self.group, self.nest.rows
        row = variable(ROW, rows)
        digits = Digits(group.group, self.nest.nest, group.points)
        point = variable(TILE, group.tiles) * group.points + digits.point_of(row)
        if group.ragged:
            point = variable(POINT, group.grid_points)
        backward = group.backward and self.nest.nest.with_role(Role.CARRY)
        digits.bind_rows(constant(rows - 1) - row if backward else row, point)
        digits.bind_column(self.column)
        return digits

    @property
    def shares(self) -> bool:
        """Whether two sweeps use the same value."""
        return self._may_share() and any(len(levels) > 1 for levels in self.levels_of.values())

    def _may_share(self) -> bool:
        """Whether two sweeps come by the same op, wherever they read it."""
        before: dict[int, int] = {}
        for stage in self.stages if self.nest.nest.levels > 1 else ():
            level = self.nest.nest.level[stage]
            passed = {op.id for op, _ in stage.loads} | {p.op.id for p, _ in stage.reads}
            passed |= stage.inlined
            if any(before.setdefault(i, level) != level for i in passed):
                return True
            before.setdefault(stage.op.id, level)
        return False

    @functools.cached_property
    def _moving(self) -> frozenset[Var]:
        return self.column.variables

    def along(self, at: Indices) -> bool:
        """Whether an index changes along the row."""
        return any(not self._moving.isdisjoint(i.variables) for i in at)

    def body(self, stage: Stage) -> list[Key]:
        """What a stage reads at each step of its sweep."""
        found = self._body.get(stage)
        if found is None:
            found = self._body[stage] = body_reads(stage.op, *self.digits.indices(stage))
        return found.copy()

    def below(self, key: Key) -> list[Key]:
        """What a value reads that is computed where it is used. Cached, since several walks need
        it."""
        found = self._below.get(key)
        if found is None:
            found = self._below[key] = inlined_reads(*key)
        return found

    @functools.cached_property
    def levels_of(self) -> dict[Key, set[int]]:
        """All values that lie along the row, with the levels of the sweeps that use them."""
        found: dict[Key, set[int]] = {}
        for stage in self.stages:
            level = self.nest.nest.level[stage]
            if self._gives(stage):
                found.setdefault((stage.op, self.digits.index(stage)), set()).add(level)
            passed = set()
            todo = self.body(stage)[::-1]
            while todo:
                key = todo.pop()
                if key in passed or not self.along(key[1]):
                    continue
                passed.add(key)
                found.setdefault(key, set()).add(level)
                if self.is_computed(key[0]):
                    todo += reversed(self.below(key))
        return found

    @functools.cached_property
    def uses(self) -> dict[Key, set[int]]:
        """Those of them that are loaded."""
        loaded = ((key, of) for key, of in self.levels_of.items() if not self.is_computed(key[0]))
        return {key: of for key, of in loaded if in_range(*key)}

    def is_computed(self, op: Op) -> bool:
        """Whether a value is computed wherever it is used."""
        return op.opcode != "parameter" and op.id not in self.whole

    def _gives(self, stage: Stage) -> bool:
        """Whether others read a stage's elements."""
        return self.nest.nest.role[stage] is Role.SWEEP and stage.op.id in self.whole

    def base(self, op: Op, at: Indices) -> Index | None:
        """Where the vector around an element of an input starts, if it is read as one."""
        if op.opcode != "parameter" or self.width == 1 or any(i.fetched for i in at):
            return None  # an index that the data decides is known only inside the loop
        if not in_range(op, at):
            return None
        return aligned_base(linearize(at, op.dims), Var(ELEMENT, self.width), self.width)

    def vectors(self) -> list[tuple[Op, Index]]:
        """The inputs that sweeps read as vectors, with where these begin, each once."""
        found: dict[tuple[Op, Index], None] = {}
        for op, at in self.uses:
            base = self.base(op, at)
            if base is not None:
                found[op, base] = None
        return list(found)

    def picked(self) -> tuple[Key, ...]:
        """Inputs of later sweeps of which the data picks one element for the whole row, where
        inputs alone decide which: read before the sweeps, these hide that one load waits for
        another."""
        level = self.nest.nest.level
        waits = [s for s in self.nest.nest.stages if level[s] and _is_picking(s)]
        found: dict[Key, None] = {}
        for stage in sorted(waits, key=lambda s: level[s]):
            for op, at in closure(stage.op, *self.digits.indices(stage), self.whole)[0]:
                fetches = [fetched for i in at for fetched in i.fetched]
                if op.opcode != "parameter" or not in_range(op, at):
                    continue
                if fetches and not self.along(at):
                    found |= {(op, at): None} if all(map(self._ready, fetches)) else {}
        return tuple(found)

    def _ready(self, fetched: Fetched) -> bool:
        """Whether an index depends on inputs alone."""
        if fetched.op.opcode == "parameter":
            return True
        if fetched.op.id in self.whole or kind_of(fetched.op.opcode) in (Kind.REDUCTION, Kind.DOT):
            return False
        leaves, _ = closure(fetched.op, fetched.at, (), self.whole)
        return all(op.opcode == "parameter" for op, _ in leaves)

    def by_level(self) -> Iterator[tuple[Stage, int]]:
        """The stages along the row in the order of their sweeps."""
        level = self.nest.nest.level
        yield from ((s, level[s]) for s in sorted(self.stages, key=lambda s: level[s]))


def _is_picking(stage: Stage) -> bool:
    """Whether the data decides which element of an input a stage reads."""
    return any(i.fetched for _, at in stage.loads for i in at)


def first_common(here: Somewhere) -> list[Live]:
    """What later sweeps share with earlier ones, as far computed as it is shared."""
    first: dict[Key, int] = {}
    shared: dict[Key, Live] = {}
    for stage, level in here.by_level():
        passed = set()
        todo = here.body(stage)
        while todo:
            op, at = key = todo.pop()
            if key in passed or not here.along(at) or op.opcode == "iota":
                continue
            passed.add(key)
            if in_range(op, at) and first.setdefault(key, level) < level:
                shared[key] = Live(op, at, first[key])
            elif here.is_computed(op):
                todo.extend(here.below(key))
        if stage.op.id in here.whole:
            first.setdefault((stage.op, here.digits.index(stage)), level)
    return list(shared.values())
