"""Bins: how many warps of a block have their own, and how many parts the updates fall into."""

from __future__ import annotations

from fusionstitch.codegen.text.types import compute_bytes
from fusionstitch.costmodel.devices import WARP, Device
from fusionstitch.hlo.graph import Op

#: Shared memory of a block for bins, in bytes: a multiprocessor has room for a few such blocks.
BLOCK_BYTES = 1 << 16
#: Warps of a block with bins of their own, at most.
MOST_WARPS = 8
#: Updates whose loads a thread has under way at once. What is loaded for one must not wait for
#: another: joining them orders all accesses of the warp.
AT_ONCE = 4
#: Rounds of these that a warp goes at least, so that bins are worth zeroing and joining.
LEAST_ROUNDS = 4
#: Threads of a multiprocessor that hide the latency of its shared memory.
THREADS = 1024


def bins_bytes(op: Op) -> int:
    """Bytes of the elements that a warp has."""
    return op.dims[1] * op.dims[2] * compute_bytes(op.dtype)


def warps_of(op: Op, block: int) -> int:
    """Warps of a block of so many threads that have bins of their own: a power of two."""
    worth = op.operands[1].dims[1] * op.dims[2] // (WARP * AT_ONCE * LEAST_ROUNDS)
    fitting = min(MOST_WARPS, block // WARP, BLOCK_BYTES // bins_bytes(op), worth)
    return 1 << max(1, fitting).bit_length() - 1


def block_of(op: Op) -> int:
    """Threads of a block that has nothing else to do."""
    return WARP * warps_of(op, WARP * MOST_WARPS)


def bins_parts(op: Op, device: Device, scale: float = 1.0) -> int:
    """Into how many parts the updates of bins fall, a block each: as many as fill the device, if
    each warp still has several rounds."""
    block = block_of(op)
    shared = bins_bytes(op) * warps_of(op, block) + device.reserved_shared
    per_sm = max(1, min(THREADS // block, device.shared_per_sm // shared))
    updates = op.operands[1].dims[1] * op.dims[2]
    most = updates // (LEAST_ROUNDS * AT_ONCE * block)
    return max(1, min(int(device.sm_count * per_sm * scale) // op.dims[0], most))
