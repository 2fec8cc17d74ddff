"""How many blocks of a schedule are on the device at once, and the registers that leaves each.

A kernel with grid barriers launches no more blocks than fit; launch bounds hold the compiler to
what the schedule counts on.
"""

from __future__ import annotations

from dataclasses import replace

from fusionstitch.codegen.loops.nests import Role
from fusionstitch.codegen.schedule.schedule import GroupPlan, KernelPlan, NestPlan
from fusionstitch.codegen.schedule.tuning import PAIRED_ROWS
from fusionstitch.costmodel.devices import WARP, Device
from fusionstitch.costmodel.estimate import barrier_us
from fusionstitch.costmodel.occupancy import blocks_per_sm
from fusionstitch.hlo.errors import CodegenError

#: Registers a thread needs beside a tile's values, and where it stores elements of the tile.
ADDRESS_REGISTERS, STORING_REGISTERS = 16, 24
#: Registers per thread that are left to any kernel, and from which on the compiler finds a better
#: balance if left alone.
LEAST_REGISTERS, MOST_BOUNDED = 64, 128
#: Ops of an elementwise stage from which the compiler, left alone, takes too few registers and
#: spills. It does well with fewer: Black-Scholes, 27 ops, took 53 us with the 32 registers it
#: chose and 59 us with 64 at most on an H200.
LARGE_CLOSURE = 96
#: Threads per SM that a kernel with grid barriers has at least.
LEAST_RESIDENT = 512


def made_resident(
    plan: KernelPlan,
    shared_bytes: int,
    device: Device,
    blocks: int | None = None,
    per_sm: int | None = None,
) -> KernelPlan:
    """`plan` with the requested number of blocks, and of blocks per multiprocessor in its launch
    bounds. By default these are no more than a cooperative launch can have resident. Raises
    CodegenError for more than have work, or than can be resident."""
    default = _by_default(plan, shared_bytes, device)
    bounds = default.blocks_per_sm if per_sm is None else per_sm
    if per_sm is not None:
        _check_fits(plan, per_sm, shared_bytes, device)
    most = default.grid if per_sm is None or not plan.cooperative else plan.grid
    if plan.cooperative and per_sm is not None:
        resident_blocks = device.sm_count * per_sm
        most = min(most, resident_blocks, device.cooperative_limit or resident_blocks)
    if blocks is None:
        return replace(plan, grid=most, blocks_per_sm=bounds)
    limit = most if plan.cooperative else plan.grid
    if blocks > limit:
        raise CodegenError(
            f"cta_num={blocks * plan.cluster}: there are tiles, and room on the device at once "
            f"where a grid barrier needs it, for {limit * plan.cluster} blocks."
        )
    return replace(plan, grid=blocks, blocks_per_sm=bounds)


def _check_fits(plan: KernelPlan, per_sm: int, shared_bytes: int, device: Device) -> None:
    """Raises CodegenError where so many blocks do not fit on a multiprocessor."""
    shared = per_sm * (shared_bytes + device.reserved_shared) > device.shared_per_sm
    shared |= per_sm * plan.barriers > device.barriers_per_sm
    fits = per_sm <= device.max_blocks_per_sm and per_sm * plan.block <= device.max_threads_per_sm
    if plan.cooperative and not per_sm:
        raise CodegenError("cta_per_sm=any: with a grid barrier all blocks are there at once.")
    if not fits or (plan.cooperative and per_sm > 1 and shared):
        raise CodegenError(
            f"cta_per_sm={per_sm}: a multiprocessor has no room for as many blocks of {plan.block} "
            f"threads and {shared_bytes} bytes of shared memory."
        )


def _by_default(plan: KernelPlan, shared_bytes: int, device: Device) -> KernelPlan:
    tuning = plan.tuning
    per_sm = tuning.blocks_per_sm or max(1, plan.resident // plan.block)
    if not plan.cooperative:
        flat = all(g.group.is_flat for g in plan.groups)
        large = any(len(s.inlined) > LARGE_CLOSURE for g in plan.groups for s in g.group.stages)
        stays = (flat and large) or any(_is_persistent(g, plan.block) for g in plan.groups)
        tiled = _tiled_per_sm(plan, shared_bytes, device)
        bounds = per_sm if stays or tuning.blocks_per_sm else tiled
        return replace(plan, blocks_per_sm=bounds)
    if shared_bytes:
        per_sm = max(
            1, min(per_sm, device.shared_per_sm // (shared_bytes + device.reserved_shared))
        )
    per_sm = min(per_sm, device.barriers_per_sm // plan.barriers)
    if not tuning.blocks_per_sm:
        fit = blocks_per_sm(device, plan.block, _tile_registers(plan), shared_bytes)
        per_sm = _waiting_per_sm(plan, max(1, min(per_sm, fit)), device)
    resident_blocks = device.sm_count * per_sm
    limit = min(resident_blocks, device.cooperative_limit or resident_blocks)
    return replace(plan, grid=min(plan.grid, limit), blocks_per_sm=per_sm)


def _waiting_per_sm(plan: KernelPlan, most: int, device: Device) -> int:
    """Blocks per multiprocessor, at most `most`, of a kernel with grid barriers: with more of them
    each phase takes fewer rounds, and each barrier longer."""
    tiles = [sum(group.tiles for group in phase) for phase in plan.phases]

    def us(per_sm: int) -> float:
        blocks = device.sm_count * per_sm
        rounds = sum(-(-count // blocks) for count in tiles)
        return rounds * device.tile_us + (len(tiles) - 1) * barrier_us(
            device, min(blocks, max(tiles))
        )

    least = max(1, LEAST_RESIDENT // plan.block)
    choices = [1 << i for i in range(most.bit_length()) if 1 << i >= min(least, most)] or [most]
    return min(choices, key=us)


def _is_persistent(plan: GroupPlan, block: int) -> bool:
    """True if the teams of every block walk several long rows each."""
    long = [n for n in plan.nests if n.teams.threads > 32]
    return any(plan.points * n.teams.threads > block for n in long)


def _tiled_per_sm(plan: KernelPlan, shared_bytes: int, device: Device) -> int:
    """Blocks per multiprocessor that leave register tiles the registers they need and little more:
    if there are many blocks, more resident ones hide each other's latency. For few blocks of lone
    dots it is no more than there are. The compiler uses the registers of the missing ones for more
    loads under way: 784 summed elements took 4.0 instead of 5.5 us so on an H200. 0: no request."""
    tiled = [group for group in plan.groups if any(nest.tile for nest in group.nests)]
    if not tiled:
        return 0
    per_thread = _tile_registers(plan)
    resident = -(-plan.grid // device.sm_count)
    fit = blocks_per_sm(device, plan.block, per_thread, shared_bytes)
    lone = all(group.group.dot_axes is not None and not group.group.streamed for group in tiled)
    if resident <= fit and not lone:
        return 0
    if per_thread > MOST_BOUNDED:
        return int(resident == 1)
    return min(resident, fit)


def _tile_registers(plan: KernelPlan) -> int:
    """Registers per thread that the register tiles of a kernel take, or its sums over pairs."""
    need = 0
    for group in plan.groups:
        for nest in group.nests:
            if nest.tile is not None:
                need = max(need, nest.tile.registers + _spare_registers(nest, plan))
            need = max(need, _paired_registers(nest, plan.block))
    return max(LEAST_REGISTERS, -(-need // 8) * 8)


def _paired_registers(nest: NestPlan, block: int) -> int:
    """Registers of a loop over pairs: its sums, what it reads of both of a pair, and what they are
    together, which all sums may wait for; where a team has several rows at once, what it reads of
    each."""
    sums = [stage for stage in nest.nest.stages if stage.visits_pairs]
    if not sums:
        return 0
    read = max(len(stage.loads) for stage in sums)
    if not nest.nest.sums_pairs or nest.teams.threads > WARP:
        return ADDRESS_REGISTERS + len(sums) + read + read // 2
    rows = min(PAIRED_ROWS, max(1, nest.rows * nest.teams.threads // block))
    return ADDRESS_REGISTERS + rows * nest.nest.sums_at_once + (rows + 1) * read // 2 + read // 2


def _spare_registers(nest: NestPlan, plan: KernelPlan) -> int:
    """Registers beside a tile's values: addresses, and more where elements go to memory."""
    elements = {s for s, role in nest.nest.role.items() if role is Role.SWEEP}
    read = {
        producer
        for group in plan.groups
        for stage in group.group.stages
        if stage not in nest.nest.level
        for producer, _ in stage.reads
    }
    return STORING_REGISTERS if elements & read else ADDRESS_REGISTERS
