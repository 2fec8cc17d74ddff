"""What the threads of a warp read beside what they use: memory comes in sectors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fusionstitch.codegen.loops.nests import Place
from fusionstitch.codegen.loops.stages import Stage, is_strided
from fusionstitch.codegen.places.index import Index, Term, Var, linearize
from fusionstitch.codegen.schedule.schedule import GroupPlan, NestPlan
from fusionstitch.costmodel.work import SECTOR_BYTES
from fusionstitch.hlo.graph import ITEM_BYTES, Op

#: An array of up to so many bytes is in the cache beside the multiprocessor when its sectors are
#: needed again.
L1_BYTES = 1 << 16


def read_beside(group: GroupPlan) -> int:
    """Bytes that come from L2 with those that a group reads of inputs, in the same sectors, because
    neighbouring threads read elements that lie apart.

    Rows that one block walks share their sectors where they lie beside each other, and so do the
    loads of a thread. Where the data decides the place, and for register tiles, reading is counted
    elsewhere.
    """
    found: dict[tuple[object, ...], _Reads] = {}
    for nest in group.nests:
        for stage in nest.nest.stages if nest.tile is None else ():
            if (lane := _lane(stage, nest)) is None:
                continue
            for op, index in stage.loads:
                if any(i.fetched for i in index) or op.shape.bytes <= L1_BYTES:
                    continue
                address = linearize(index, op.dims)
                step = abs(dict(address.terms).get(lane, 0))
                if step > 1:
                    start = Index(address.terms)
                    # the sweeps of a row name their loops differently
                    way = sorted((c, v.extent) for t, c in start.terms for v in _of(t))
                    reads = found.setdefault((op, step, *way), _Reads(op, start, step))
                    reads.offsets.add(address.const % step)
                    reads.together = max(reads.together, nest.rows if _team(nest) else lane.extent)
    return sum(reads.beside for reads in found.values())


@dataclass
class _Reads:
    """Loads of `op` that go from `start` on, `step` elements from thread to thread, at several
    `offsets`. Where another loop goes through neighbours, the thread's own or from row to row, it
    goes through so many `together`."""

    op: Op
    start: Index
    step: int
    offsets: set[int] = field(default_factory=set)
    together: int = 1

    @property
    def beside(self) -> int:
        item = ITEM_BYTES[self.op.dtype]
        near = any(abs(c) == 1 for _, c in self.start.terms)
        used = len(self.offsets) * item * (self.together if near else 1)
        sector = min(SECTOR_BYTES, self.step * item)
        elements = math.prod(v.extent for v in self.start.variables) * len(self.offsets)
        return max(0, elements * item * sector // min(used, sector) - elements * item)


def _of(term: Term) -> frozenset[Var]:
    return Index(((term, 1),)).variables


def _team(nest: NestPlan) -> bool:
    """Whether neighbouring threads work on one row."""
    return nest.teams.threads > 1 and not nest.teams.columns


def _lane(stage: Stage, nest: NestPlan) -> Var | None:
    """The variable that differs by one from a thread to its neighbour."""
    along = stage.dims
    if _team(nest):
        place = nest.nest.place[stage]
        if place is Place.ROW or any(is_strided(s.op) for s in nest.nest.placed(Place.REDUCE)):
            return None
        along = stage.inner if place is Place.REDUCE else stage.dims
    last = next((i for i in reversed(along) if i.terms), Index())
    return next((term for term, c in last.terms if isinstance(term, Var) and c == 1), None)
