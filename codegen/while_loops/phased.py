"""Loops whose threads work on an iteration together: how work is dealt to blocks, and its cost.

Each segment is scheduled as any region is: for all multiprocessors, for one block or for the blocks
of a cluster. Its phases become those of one kernel, with a barrier of the grid, the block or the
cluster between phases and between iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.memory.inplace import in_place, one_to_one
from fusionstitch.codegen.schedule.outlining import without_functions
from fusionstitch.codegen.schedule.schedule import RESIDENT_THREADS
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.watch import NOBODY
from fusionstitch.codegen.ways import first_that_works
from fusionstitch.codegen.while_loops.conditions import carry_conditions
from fusionstitch.codegen.while_loops.dealt import deal
from fusionstitch.codegen.while_loops.flat import Flat
from fusionstitch.codegen.while_loops.ragged import let_rows_stop
from fusionstitch.codegen.while_loops.segments import (
    LoopBuffer,
    Program,
    Repeat,
    Segment,
    Straight,
    copied_to_outputs,
    program,
    repeats,
    straight_ones,
)
from fusionstitch.codegen.while_loops.threads import (
    Threads,
    free_registers,
    threads_alone,
    threads_in_cluster,
)
from fusionstitch.costmodel.devices import Device, exact
from fusionstitch.hlo.errors import CodegenError


@dataclass(frozen=True, eq=False)
class Phased:
    """A program, the segments it runs, the schedule of each straight one, and what the kernel
    takes. `same` maps buffers that iterations write element by element in place of another to that
    other one, `outputs` buffers to the numbers of the outputs that they are."""

    program: Program
    segments: tuple[Segment, ...]
    schedules: dict[Straight, Scheduled]
    same: dict[LoopBuffer, LoopBuffer]
    outputs: dict[LoopBuffer, int]
    threads: Threads
    grid: int
    #: who works on an iteration together: a block, a cluster of blocks, or all of them
    scope: Scope
    #: the blocks of a cluster, if clusters do
    cluster: int = 1
    #: a factor on the grid points of a tile, if the default was not taken
    tile: float | None = None

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.threads.block

    @property
    def alone(self) -> bool:
        """Whether blocks have nothing in common."""
        return self.scope is Scope.BLOCK

    @property
    def together(self) -> int:
        """The blocks that work on an iteration together."""
        return {Scope.BLOCK: 1, Scope.CLUSTER: self.cluster}.get(self.scope, self.grid)

    @property
    def form(self) -> str:
        """The word for how the kernel is dealt out."""
        if self.alone:
            return "dealt" if self.program.dealt else "block"
        return "cluster" if self.scope is Scope.CLUSTER else "grid"

    @property
    def template(self) -> str:
        """How the kernel is dealt out, as a line."""
        cluster = f" cluster {self.cluster}" if self.cluster > 1 else ""
        tile = f" tile {self.tile:g}" if self.tile else ""
        return f"loop {self.form} blocks {self.grid} threads {self.block}{cluster}{tile}"

    @property
    def flat(self) -> Flat:
        """The region, or that of one block."""
        return self.program.flat


def dealt_to_blocks(flat: Flat, settings: Settings, requested: int | None = None) -> Phased:
    """Each block runs all iterations of its own rows, with `requested` threads if that is given.
    Raises CodegenError without such rows."""
    cut = _dealt(flat, settings.device)
    threads = threads_alone(cut, settings.device, requested)
    return _planned(cut, settings, share(settings.device, 1), threads)


def in_clusters(flat: Flat, settings: Settings, requested: int | None = None) -> Phased:
    """Each cluster of blocks runs all iterations of its own rows. Clusters have `requested` blocks
    if that is given, or as few as together hold what all iterations read.

    Raises CodegenError without such rows, if the largest clusters do not hold that, or if the
    device has no clusters.

    One cluster for a loop without rows was tried, and took 1.2 to 2.5 times as long as one block or
    the grid (four loops on an H100).
    """
    device = settings.device
    sizes = [1 << n for n in range(1, min(device.cluster_limit, device.sm_count).bit_length())]
    if not sizes:
        raise CodegenError(f"{device.name} has no clusters of blocks.")
    if requested is not None:
        if requested not in sizes:
            known = ", ".join(map(str, sizes))
            raise CodegenError(f"Clusters of {device.name} have {known} blocks, not {requested}.")
        sizes = [requested]
    for blocks in sizes:
        cut = _dealt(flat.copied(), device, blocks)
        threads = threads_in_cluster(cut, device, blocks)
        if threads.holds or requested is not None:
            return _planned(cut, settings, share(device, blocks), threads)
    raise CodegenError("No cluster of blocks holds what all iterations read.")


def in_one_block(flat: Flat, settings: Settings, requested: int | None = None) -> Phased:
    """One block runs all iterations, with `requested` threads if that is given."""
    device = settings.device
    cut = program(carry_conditions(flat), table=device.barrier_copy_bytes)
    threads = threads_alone(cut, device, requested)
    return _planned(cut, settings, share(device, 1), threads)


def on_the_grid(flat: Flat, settings: Settings, tuning: Tuning | None = None) -> Phased:
    """All blocks that the device holds at once run each iteration together; `tuning` may say which
    blocks and tiles."""
    tile = tuning.tile if tuning else None
    if tuning:
        settings = replace(settings, options=replace(settings.options, tuning=tuning))
    device = settings.device  # as much is read and written as a barrier takes
    table = device.grid_barrier_us / 1e6 * device.l2_bytes_per_s / 2
    planned = _planned(program(carry_conditions(flat), table=table), settings, device)
    return replace(planned, tile=tile)


def _dealt(flat: Flat, device: Device, cluster: int = 1) -> Program:
    """The program of a block, or of a cluster of as many, that has rows of its own."""
    dealt = deal(let_rows_stop(flat), device, cluster)
    return program(carry_conditions(dealt.flat), dealt, table=device.barrier_copy_bytes)


def share(device: Device, blocks: int) -> Device:
    """What a device is for so many blocks, one to a multiprocessor."""
    part = blocks / device.sm_count
    return replace(
        device,
        sm_count=blocks,
        dram_bytes_per_s=device.dram_bytes_per_s * part,
        l2_bytes_per_s=device.l2_bytes_per_s * part,
        fp32_flops=device.fp32_flops * part,
        fp64_flops=device.fp64_flops * part,
        special_per_s=device.special_per_s * part,
        int32_ops=device.int32_ops * part,
        cooperative_limit=blocks,
        cluster_limit=1,
        own_blocks=blocks,
    )


def _planned(
    cut: Program, settings: Settings, device: Device, threads: Threads | None = None
) -> Phased:
    """The program for as many multiprocessors as `device` has, each with one block of `threads`,
    or (None) for all blocks that fit."""
    block = threads.block if threads else settings.options.tuning.block or 0
    schedules: dict[Straight, Scheduled] = {}
    for segment in sorted(straight_ones(cut.segments), key=lambda segment: -_elements(segment)):
        scheduled = _scheduled(segment, settings, device, block)
        block = block or scheduled.plan.block
        schedules[segment] = scheduled
    same = _same(cut, schedules)
    outputs = _outputs(cut, same, device.shared_per_block if threads else 0)
    rest = {n: buffer for n, buffer in cut.results.items() if n not in outputs.values()}
    every = cut.segments
    if rest:
        last = copied_to_outputs(cut.flat.graph.name, rest)
        schedules[last] = _scheduled(last, settings, device, block)
        every = (*every, last)
    scope, cluster = Scope.GRID, 1
    if threads:
        cluster = device.sm_count
        scope = Scope.CLUSTER if cluster > 1 else Scope.BLOCK
        grid = (cut.dealt.blocks if cut.dealt else 1) * cluster
    else:
        per_sm = [s.plan.blocks_per_sm or 1 for s in schedules.values() if s.plan.cooperative]
        fewest = min(per_sm, default=max(1, RESIDENT_THREADS // block))
        grid = min(max(s.plan.grid for s in schedules.values()), device.sm_count * fewest)
        resident = -(-grid // device.sm_count)
        threads = Threads(block, resident, free_registers(block * resident, device))
    return Phased(cut, every, schedules, same, outputs, threads, grid, scope, cluster)


def _elements(segment: Straight) -> int:
    return sum(op.shape.size for op in segment.graph.ops[:-1])


def _scheduled(segment: Straight, settings: Settings, device: Device, block: int) -> Scheduled:
    tuning = replace(
        settings.options.tuning,
        block=block or None,
        blocks_per_sm=1 if device.own_blocks else None,
        once=True,
    )
    options = replace(settings.options, tuning=tuning, overwrites=())
    # an iteration starts from what the one before has rounded: loops keep all bits of products
    own = Settings(exact(device), options)
    scheduled = first_that_works(segment.graph, own, lambda s: s, NOBODY)
    if scheduled.plan.cluster > 1:
        raise CodegenError("Blocks of a cluster would share rows in a loop.")
    if block and scheduled.plan.block != block:
        raise CodegenError(
            f"A segment of the loop takes blocks of {scheduled.plan.block} threads, not {block}."
        )
    return replace(scheduled, plan=without_functions(scheduled.plan))


def _same(cut: Program, schedules: dict[Straight, Scheduled]) -> dict[LoopBuffer, LoopBuffer]:
    """The buffers of next values that may be those of the present values, and these, by them."""
    found: dict[LoopBuffer, LoopBuffer] = {}
    for repeat in repeats(cut.segments):
        [segment, *others] = repeat.body
        if others or not isinstance(segment, Straight):
            continue
        # the condition of a counted loop reads its counter alone
        read = set[LoopBuffer]() if repeat.count else cut.read_for([repeat.condition])
        scheduled = schedules[segment]
        pairs = {now: next_ for now, next_ in repeat.pairs if now not in read}
        own = _written_by_their_readers(scheduled)
        for _, input_ in one_to_one(
            (o, i)
            for o, i in in_place(scheduled.graph, scheduled.plan)
            if o in own and _is_pair(segment, o, i, pairs)
        ):
            now = segment.sources[input_]
            assert now is not None
            found[pairs[now]] = now
    return found


def _written_by_their_readers(scheduled: Scheduled) -> set[int]:
    """The outputs each of whose elements has a thread of its own, and no other one reads it: teams
    that repeat another's row drop what they compute, but they may read what is written over."""
    numbers = {op.id: number for number, op in enumerate(scheduled.graph.root.operands)}
    return {
        numbers[stage.op.id]
        for group in scheduled.plan.groups
        for nest in group.nests
        if nest.rows * nest.inner > 1 and not nest.repeats(scheduled.plan.block, group.ragged)
        for stage, role in nest.nest.role.items()
        if stage.op.id in numbers and (role is Role.SWEEP or nest.teams.threads == 1)
    }


def _is_pair(
    segment: Straight, output: int, input_: int, pairs: dict[LoopBuffer, LoopBuffer]
) -> bool:
    now = segment.sources[input_]
    if now is None or now not in pairs or segment.sources.count(now) != 1:
        return False
    [target, *others] = segment.targets[output]
    return not others and target.buffer is pairs[now] and target.starts is None


def _outputs(
    cut: Program, same: dict[LoopBuffer, LoopBuffer], shared: int
) -> dict[LoopBuffer, int]:
    """The buffers that are outputs, since results lie in them at the end. What iterations read lies
    in shared memory instead, of `shared` bytes, if no block reads what others write."""
    found: dict[LoopBuffer, int] = {}
    for number, buffer in cut.results.items():
        for repeat in cut.segments:
            if not isinstance(repeat, Repeat):
                continue
            if shared and any(now is buffer for now, _ in repeat.pairs):
                break
            if buffer.shape.bytes <= shared and _is_read(buffer, repeat):
                break
            others = [next_ for now, next_ in repeat.pairs if now is buffer and next_ not in same]
            if others and repeat.count is None:
                break  # which of the two it is depends on the data
            if others and repeat.count and repeat.count.trips % 2:
                buffer = others[0]
        else:
            if buffer not in found:
                found[buffer] = number
    return found


def _is_read(buffer: LoopBuffer, repeat: Repeat) -> bool:
    """Whether iterations read a buffer."""
    return any(buffer in segment.sources for segment in straight_ones(repeat.body))


def shared_bytes(phased: Phased) -> int:
    """Shared memory of a block: that of the segment that takes most."""
    return max((s.layout.total for s in phased.schedules.values()), default=0)
