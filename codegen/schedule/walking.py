"""The walks of a kernel's nests (walk.py), decided from index maps alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.loops.nests import CACHE_STEPS, Role
from fusionstitch.codegen.schedule.prefetch import late_inputs
from fusionstitch.codegen.schedule.registers import row_registers, words_of
from fusionstitch.codegen.schedule.runs import run_of, run_of_pairs
from fusionstitch.codegen.schedule.schedule import (
    RESIDENT_THREADS,
    GroupPlan,
    KernelPlan,
    NestPlan,
    Teams,
)
from fusionstitch.codegen.schedule.sweep_uses import Somewhere, first_common
from fusionstitch.codegen.schedule.tiled_walks import tiled_walk
from fusionstitch.codegen.schedule.walk import ONE_BY_ONE, ROW, Live, RowInput, Walk
from fusionstitch.codegen.schedule.widths import vector_width
from fusionstitch.hlo.graph import ITEM_BYTES, Op

#: Loads of a thread under way at once where it sums columns from row to row. Then, for a team along
#: its row: the most steps that are unrolled together, the most loads of all of these, and the
#: number of steps up to which the compiler may choose.
ROW_LOADS, STEPS, STEP_LOADS, FEW_STEPS = 8, 16, 32, 4
#: Elements of a run for one of a vector, above which more bytes are under way in a run.
RUN_SHARE = 2


def with_walks(plan: KernelPlan, written: Set[int]) -> KernelPlan:
    """`plan` with the walk of every nest; `written` are the ids of the ops whose values go to
    global memory."""
    phases = (tuple(_with_walks(group, plan, written) for group in phase) for phase in plan.phases)
    return replace(plan, phases=tuple(phases))


def _with_walks(group: GroupPlan, plan: KernelPlan, written: Set[int]) -> GroupPlan:
    walks = [walk_of(plan, group, nest, written) for nest in group.nests]
    if all(walk is ONE_BY_ONE for walk in walks):
        return group
    pairs = zip(group.nests, walks, strict=True)
    nests = tuple(replace(nest, walk=walk) for nest, walk in pairs)
    return replace(group, nests=nests, late=late_inputs(group))


def walk_of(plan: KernelPlan, group: GroupPlan, nest: NestPlan, written: Set[int]) -> Walk:
    """How a thread goes along the rows of a nest."""
    if nest.tile is not None:
        shared = group.shared
        placed = {s for s in nest.nest.stages if s.op.id in written or s.cuts or s in shared}
        return tiled_walk(group, nest, nest.tile, plan.block, placed)
    if nest.nest.own_role:
        return ONE_BY_ONE
    width = vector_width(plan, group, nest, written)
    run = run_of(group, nest, plan.block)
    if run.length > (1 if width == 1 else RUN_SHARE * width):
        return Walk(run=run)
    if nest.nest.levels == 1 and nest.inner == 1:
        return Walk(width) if width > 1 else ONE_BY_ONE
    here = Somewhere(group, nest, width)
    vectors = -(-nest.inner // (nest.teams.threads * width))
    carried = len(nest.nest.with_role(Role.CARRY)) * vectors * width
    registers = row_registers(plan) - carried
    stride = row_stride(nest.teams, nest.rows, plan.block, group.ragged)
    row_inputs: tuple[RowInput, ...] = ()
    if _walks_ahead(nest, group, stride, vectors, width):
        row_inputs, registers = _row_inputs(here, vectors * width, registers)
    sums_only = carried and stride and not nest.nest.with_role(Role.REDUCE)
    short = nest.inner > 1 and nest.nest.levels > 1 and vectors * width <= CACHE_STEPS
    walk = Walk(
        width,
        vectors,
        unrolled=bool(short or carried or row_inputs),
        stride=stride,
        rows=_rows_at_once(here.vectors(), vectors * width, vectors, registers) if sums_only else 0,
        loads=_steps_at_once(nest, vectors) if width == 1 and nest.teams.threads > 1 else 0,
        announced=plan.resident < RESIDENT_THREADS and not all(one.steady for one in row_inputs),
        row_inputs=row_inputs,
        picked=here.picked(),
    )
    if not (walk.unrolled or walk.live or walk.picked):
        walk = replace(walk, run=run_of_pairs(group, nest, plan.block))
    if nest.inner == 1 or not here.shares:
        return walk
    candidates = _worth_registers(here, walk) if walk.unrolled else []
    return replace(walk, live=_as_fits(candidates, vectors * width, registers))


def _steps_at_once(nest: NestPlan, steps: int) -> int:
    """Steps along a row of single elements, whose loads are under way together: elements of a team
    lie apart, and each load waits for memory. What an unrolled loop leaves over is gone through one
    by one, also by threads that have a step less."""
    if steps <= FEW_STEPS and not nest.teams.columns:
        return 0
    each = {nest.inner // nest.teams.threads, steps}
    loads = max(len(stage.loads) for stage in nest.nest.stages)
    most = max(1, min(STEPS, STEP_LOADS // max(1, loads)))
    return min(range(most, 0, -1), key=lambda n: max(t // n + t % n for t in each))


def row_stride(teams: Teams, rows: int, block: int, ragged: bool) -> int:
    """Rows from one that a thread of a block visits to its next; 0 if it visits one, or may repeat
    one of another's."""
    if rows == 1:
        return 0
    if teams.threads >= block:
        return 1
    at_once = max(1, block // teams.threads)
    alone = teams.goes_alone or (not ragged and rows % at_once == 0)
    return at_once if rows > at_once and alone else 0


def _walks_ahead(nest: NestPlan, group: GroupPlan, stride: int, vectors: int, width: int) -> bool:
    """True if threads visit several rows each, and wait for other threads at every one."""
    several = 0 < stride < nest.rows and not group.ragged
    fits = 1 < width <= vectors * width <= CACHE_STEPS
    return several and fits and nest.teams.threads > 1 and bool(nest.nest.with_role(Role.REDUCE))


def _row_inputs(here: Somewhere, elements: int, registers: int) -> tuple[tuple[RowInput, ...], int]:
    """The inputs of which a thread's `elements` stay in registers as loaded, and the registers left
    of `registers`.

    Rows come first; then they are fetched ahead, so that their latency passes while another row is
    worked on; then what all rows read alike is loaded once.
    """
    row = variable(ROW, here.nest.rows).variables
    inputs = here.vectors()
    rows = [RowInput(op, base, steady=False) for op, base in inputs if row & base.variables]
    steady = [RowInput(op, base, steady=True) for op, base in inputs if not row & base.variables]
    left = registers

    def taken(one: RowInput) -> bool:
        nonlocal left
        need = elements * ITEM_BYTES[one.op.dtype] // 4
        fits = need <= left
        left -= need if fits else 0
        return fits

    rows = [one for one in rows if taken(one)]
    rows = [replace(one, ahead=taken(one)) for one in rows]
    return (*rows, *(one for one in steady if taken(one))), left


def _rows_at_once(
    inputs: Sequence[tuple[Op, Index]], elements: int, vectors: int, registers: int
) -> int:
    """Rows of a loop that only sums: as many as fill memory with loads under way and fit in
    registers."""
    words = sum(elements * ITEM_BYTES[op.dtype] // 4 for op, _ in inputs)
    most = min(ROW_LOADS // max(1, vectors * len(inputs)), registers // max(1, words))
    return 1 << max(1, most).bit_length() - 1


def _worth_registers(here: Somewhere, walk: Walk) -> list[Live]:
    """What later sweeps need again: what is loaded, or what is computed of it where that takes no
    more registers."""
    loaded_once = {(one.op, one.base) for one in walk.row_inputs}
    common = first_common(here)
    if loaded_once:  # no load is left to save
        return [one for one in common if (one.op, here.base(one.op, one.at)) not in loaded_once]
    loaded = [Live(op, at, min(of)) for (op, at), of in here.uses.items() if len(of) > 1]
    return min(common, loaded, key=lambda live: sum(words_of(one.op) for one in live))


def _as_fits(candidates: Iterable[Live], elements: int, registers: int) -> tuple[Live, ...]:
    """Those of the values to keep that there are registers for, of so many elements each."""
    found = []
    for one in candidates:
        need = elements * words_of(one.op)
        if need <= registers:
            registers -= need
            found.append(one)
    return tuple(found)
