"""How many blocks of a kernel fit on one multiprocessor, by CUDA's rules."""

from __future__ import annotations

from fusionstitch.costmodel.devices import Device

#: Registers are handed out per warp in units of this many.
REGISTER_UNIT = 256
#: Registers one thread can have at most.
MAX_REGISTERS = 255
#: Shared memory is handed out in units of this many bytes.
SHARED_UNIT = 128
#: Shared memory the runtime keeps for itself per block, by first digit of the architecture.
RESERVED_SHARED = {"sm_7": 0}
DEFAULT_RESERVED = 1024


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def blocks_per_sm(device: Device, threads: int, registers: int, shared_bytes: int) -> int:
    """Resident blocks per multiprocessor for `threads` per block, `registers` per thread and
    `shared_bytes` per block; 0 if such a block cannot run at all."""
    if threads < 1 or threads > device.max_threads_per_block:
        return 0
    if shared_bytes > device.shared_per_block or registers > MAX_REGISTERS:
        return 0
    warps = -(-threads // device.warp_size)
    by_threads = device.max_threads_per_sm // (warps * device.warp_size)
    per_warp = _up(max(1, registers) * device.warp_size, REGISTER_UNIT)
    by_registers = device.registers_per_sm // per_warp // warps
    reserved = RESERVED_SHARED.get(device.sm_arch[:4], DEFAULT_RESERVED)
    shared = _up(shared_bytes + reserved, SHARED_UNIT)
    by_shared = device.shared_per_sm // shared if shared else device.max_blocks_per_sm
    return min(by_threads, by_registers, by_shared, device.max_blocks_per_sm)
