"""Clusters: blocks of neighbouring multiprocessors that share each row.

What several sweeps of a row read, DRAM delivers once if the blocks on a multiprocessor keep it in
registers or L1. Of longer rows each block of a cluster takes a part: the blocks exchange what they
summed through each other's shared memory (distributed shared memory, sm_90 and later).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.nests import CACHE_STEPS, Nest, Role
from fusionstitch.codegen.rewrite.extents import is_strided, reduced_size
from fusionstitch.codegen.schedule.tuning import Tuning, power_of_two
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import ITEM_BYTES, Graph

#: Bytes of a row per thread of its team: 2048 threads of a multiprocessor then find them in L1. On
#: an H200 softmax of 1024 rows of 131072 bf16 took 183 us with 8 blocks of 256 threads for each,
#: 200 with 2 of 1024, 217 with 8 of 512, 260 with one of 512 (XLA 304); 2048 rows of 65536 f32
#: took 301, 340, 428 and 518 us (XLA 507).
ROW_BYTES = 128
#: The smallest block of a cluster, and the elements of a row that each of its threads has at least.
LEAST_CLUSTER_BLOCK, LEAST_ELEMENTS = 128, 16
#: Blocks of clusters that each multiprocessor needs so that some work while others wait. Then the
#: share of the device's threads from which on rows are worth sharing, where they are too few for a
#: block each. On an H200 softmax of 64 rows of 131072 bf16 took 13.2 us, 15.9 with its sums split
#: after a grid barrier (XLA 26.5); of 32 rows of 65536 f32 10.0 and 9.3 us (XLA 13.0).
LEAST_BLOCKS_PER_SM, FILLED = 3, 0.75


def cluster_of(
    groups: Sequence[Group], nests: dict[Group, list[Nest]], device: Device, tuning: Tuning
) -> tuple[int, int]:
    """(blocks that share each row of a kernel, threads of each); (1, 0) where one block has it."""
    limit, most = device.cluster_limit, device.max_threads_per_block
    if len(groups) > 1 or limit == 1 or not can_share(groups[0], nests[groups[0]]):
        return 1, 0
    [nest] = nests[groups[0]]
    row = groups[0].axes.size(nest.inner)
    threads = 0
    if _enough(groups[0].tiles, device):
        threads = _filling_threads(groups[0].tiles, row, device)
        sweeps = {nest.level[s] for s in nest.stages if nest.role[s] is not Role.ROW}
        if len(sweeps) > 1:
            threads = max(threads, _register_threads(row, element_bytes(groups[0], nest), device))
    block = tuning.block or max(LEAST_CLUSTER_BLOCK, threads // limit)
    blocks = tuning.cluster or (threads // block if threads > most else 1)
    fits = 1 < blocks <= limit and block <= most and row >= blocks * block
    return (blocks, block) if fits else (1, 0)


def has_long_rows(graph: Graph, device: Device, tuning: Tuning) -> bool:
    """Whether a region sums rows that clusters may be the right blocks for."""
    if device.cluster_limit == 1:
        return False
    sums = (op for op in graph if op.opcode == "reduce" and not is_strided(op))
    rows = ((op.shape.size, reduced_size(op)) for op in sums)
    return any(
        row > longest_row(device) or _filling_threads(count, row, device)
        for count, row in rows
        if tuning.cluster or _enough(count, device)
    )


def _enough(rows: int, device: Device) -> bool:
    """Whether clusters of so many rows leave each multiprocessor blocks that need not wait."""
    return rows * device.cluster_limit >= LEAST_BLOCKS_PER_SM * device.sm_count


def longest_row(device: Device) -> int:
    """Elements of a row that the registers of one block keep."""
    return device.max_threads_per_block * CACHE_STEPS


def _register_threads(row: int, bytes_each: int, device: Device) -> int:
    """Threads whose multiprocessors keep a row that one block does not, or 0."""
    if row <= longest_row(device):
        return 0
    return power_of_two(row * bytes_each // ROW_BYTES)


def _filling_threads(rows: int, row: int, device: Device) -> int:
    """Threads for each of few rows that fill the device together, or 0 where a block for each does,
    and where clusters do not."""
    block = device.max_threads_per_block
    all_threads = device.sm_count * block
    most = min(device.cluster_limit * block, row // LEAST_ELEMENTS)
    each = all_threads // rows
    if each <= block or rows * most < FILLED * all_threads:
        return 0
    return 1 << int(math.log2(min(each, most)))


def element_bytes(group: Group, nest: Nest) -> int:
    """Bytes of the inputs that have an element for each of all rows."""
    elements = group.tiles * group.axes.size(nest.inner)
    inputs = {op for stage in nest.stages for op in stage.swept}
    return sum(ITEM_BYTES[op.dtype] for op in inputs if op.shape.size >= elements)


def can_share(group: Group, nests: Sequence[Nest]) -> bool:
    """Whether a group is one loop over rows, one to a tile, that are summed along memory: all that
    its threads exchange are then the sums."""
    if len(nests) > 1 or group.dot_axes is not None or group.streamed:
        return False
    nest = nests[0]
    summed = nest.with_role(Role.REDUCE)
    return (
        bool(summed)
        and set(nest.role.values()) <= {Role.REDUCE, Role.SWEEP, Role.ROW}
        and not nest.tiled
        and not nest.in_order
        and group.axes.size(nest.rows) == 1
        and not any(s.op.opcode == "dot" or s.in_columns for s in summed)
    )
