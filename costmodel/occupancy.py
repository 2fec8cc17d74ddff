"""How many blocks of a kernel fit on one multiprocessor, by CUDA's rules."""

from __future__ import annotations

from fusionstitch.costmodel.devices import Device


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def blocks_per_sm(
    device: Device, threads: int, registers: int, shared_bytes: int, barriers: int = 1
) -> int:
    """Resident blocks per multiprocessor for `threads` per block, `registers` per thread,
    `shared_bytes` and `barriers` per block; 0 if such a block cannot run at all."""
    if threads < 1 or threads > device.max_threads_per_block:
        return 0
    if shared_bytes > device.shared_per_block or registers > device.registers.most:
        return 0
    warps = -(-threads // device.warp_size)
    by_threads = device.max_threads_per_sm // (warps * device.warp_size)
    per_warp = _up(max(1, registers) * device.warp_size, device.registers.unit)
    by_registers = device.registers_per_sm // per_warp // warps
    shared = _up(shared_bytes + device.reserved_shared, device.shared_unit)
    by_shared = device.shared_per_sm // shared if shared else device.max_blocks_per_sm
    by_barriers = device.barriers_per_sm // max(1, barriers)
    return min(by_threads, by_registers, by_shared, by_barriers, device.max_blocks_per_sm)
