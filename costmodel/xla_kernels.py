"""How long one of XLA's kernels takes, and what is left of XLA's kernels around a pattern."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.estimate import kernel_us, library_gemm_us
from fusionstitch.costmodel.evaluations import MOST_UNROLLED, unrolled
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.work import Work, dot_extents, dot_flops
from fusionstitch.hlo.attributes import REPLACE
from fusionstitch.hlo.graph import ITEM_BYTES, Op, ids
from fusionstitch.hlo.semantics import Kind, kind_of

#: Elements and threads per block of XLA's loop and row reduction kernels.
LOOP_TILE = 1024
LOOP_THREADS = 256
#: Columns and threads per block of a column reduction.
COLUMN_WIDTH = 32
COLUMN_THREADS = 1024
#: Longer reductions take a second kernel.
LONGEST_COLUMN = 4096
LONGEST_ROW = 16_384
#: From so many iterations on, in fewer blocks than there are multiprocessors, XLA computes the
#: terms of a sum in a separate kernel.
MANY_ITERATIONS = 16
#: Bytes of the smallest atomic operations.
ATOMIC_BYTES = 4


def kernel_time_us(works: GraphWork, bits: int, written: int) -> float:
    """Microseconds of one XLA kernel that computes `bits` and writes `written`, launch included,
    scaled as `works` says; 0 for an empty one."""
    if not bits:
        return 0.0
    us = _modelled_us(works, bits, written)
    return us if works.scale is None else us * works.scale.of(bits)


def _modelled_us(works: GraphWork, bits: int, written: int) -> float:
    device, ops = works.device, works.graph.ops
    work = works.fused(bits, written)
    if gemms := bits & works.dots:
        return sum(_gemm_us(ops[i], work, works, written) for i in ids(gemms))
    reductions = [ops[i] for i in ids(bits & works.reductions)]
    blocks = -(-max(works.sizes[i] for i in ids(bits)) // LOOP_TILE)
    us, threads = 0.0, LOOP_THREADS
    if not reductions and not bits & works.scatters:
        return _loop_us(works, bits, written, replace(work, blocks=blocks))
    # a scatter writes over an array that another kernel has filled or copied
    us += sum(device.launch_us + _scatter_us(ops[i], device) for i in ids(bits & works.scatters))
    chain = works.chain(bits)
    us += device.stage_us * chain
    least, walked, padded, whole = kernel_us(Work(), device), 0.0, 0, True
    if reductions:
        source = reductions[0].operands[0]
        blocks = max(1, -(-source.shape.size // LOOP_TILE))
        results, reduced, is_column = reduced_extents(reductions[0])
        if is_column:
            blocks, threads = -(-results // COLUMN_WIDTH), COLUMN_THREADS
        if reduced > (LONGEST_COLUMN if is_column else LONGEST_ROW):
            # the first pass splits the reduced elements evenly with the second
            blocks *= math.isqrt(reduced) if is_column else 1
            us += _second_pass_us(reductions, blocks, device)
        elif is_column:
            arrays = _arrays(works, bits, written, source)
            walked = _iterations(reduced) * arrays * device.xla.column_us
        if normalises := _normalises(works, reductions, written):
            work = _normalised(works, bits, source, work)
        if normalises or chain > 1:
            us += device.xla.again_us * (chain - 1)
            padded = source.shape.size // max(1, reduced) << (reduced - 1).bit_length()
            whole = padded == source.shape.size
        else:
            whole = source.dims[-1:] == () or source.dims[-1] % MOST_UNROLLED == 0
    work = replace(work, blocks=blocks)
    busy = max(kernel_us(work, device, threads) - least, walked)
    if padded:
        issued, waited = padded * device.xla.padded_us, 0.0
    else:
        issued, waited = _evaluated(works, bits, written, blocks * threads)
    # traffic hides what threads do that read whole vectors
    return us + least + waited + (max(busy, issued) if whole else math.hypot(busy, issued))


def _evaluated(works: GraphWork, bits: int, written: int, threads: int) -> tuple[float, float]:
    """Microseconds in which the threads of a reduction or a scatter issue what they do, and for
    which each waits."""
    device, xla = works.device, works.device.xla
    done = works.evaluations.of(bits, written)
    at_once = min(threads, device.sm_count * device.max_threads_per_sm)
    waited = done.branches * xla.branch_us / max(1, at_once)
    return done.us + done.loads * xla.reduced_us, waited


def _loop_us(works: GraphWork, bits: int, written: int, work: Work) -> float:
    """A kernel with a thread for each element of its result, or for a few neighbours.

    Its traffic overlaps with what its threads do, but not wholly. Few threads wait for what each of
    them does one after the other.
    """
    device, xla = works.device, works.device.xla
    size, elements = _looped(works, written)
    neighbours = 1 if bits & works.not_unrolled else unrolled(size, device)
    [root, *_] = (works.graph.ops[i] for i in ids(written)) if written else (None,)
    if root is not None and root.opcode == "concatenate":
        size, neighbours = max(x.shape.size for x in root.operands), 1
    threads = size / neighbours
    waves = max(1.0, threads / (device.sm_count * device.max_threads_per_sm))
    done = works.evaluations.of(bits, written)
    at_once = neighbours if _aligned(root, neighbours) else 1
    issued = (done.loads + elements) / at_once * xla.access_us + threads * xla.thread_us + done.us
    waited = (done.steps * xla.step_us + waves * done.branches * xla.branch_us) / threads
    least = kernel_us(Work(), device)
    return least + waited + math.hypot(kernel_us(work, device) - least, issued)


def _looped(works: GraphWork, written: int) -> tuple[int, int]:
    """Elements of the largest result, and of all."""
    sizes = [works.sizes[i] for i in ids(written)] or [1]
    return max(1, *sizes), sum(sizes)


def _aligned(root: Op | None, neighbours: int) -> bool:
    """Whether neighbours are in one row, so that they are read and written at once."""
    return root is not None and (len(root.dims) <= 1 or root.dims[-1] % neighbours == 0)


def _scatter_us(op: Op, device: Device) -> float:
    """Microseconds that the updates of a scatter wait for each other; those that replace do not."""
    if op.attrs["reducer"] == REPLACE or op.shape.is_tuple:
        return 0.0
    us = contended_us(op.operands[-1].shape.size, op.shape.size, device)
    # what is smaller than an atomic operation is swapped with its neighbours until none has changed
    return us * device.xla.narrow_updates if ITEM_BYTES.get(op.dtype, 1) < ATOMIC_BYTES else us


def contended_us(updates: int, targets: int, device: Device) -> float:
    """Microseconds of so many updates that are added at random to so many elements, because they
    meet."""
    xla = device.xla
    each = xla.contended_ns * (xla.contended_elements / targets) ** xla.contended_power
    return updates * min(xla.most_contended_ns, each) / 1e3


def sums_what_is_written(reduce: Op, device: Device) -> bool:
    """Whether XLA has the elements that `reduce` reads written by another kernel, because its own
    would compute them with few blocks in many iterations."""
    results, reduced, is_column = reduced_extents(reduce)
    if not is_column or reduced > LONGEST_COLUMN or _iterations(reduced) < MANY_ITERATIONS:
        return False
    return results <= COLUMN_WIDTH * device.sm_count


def _iterations(rows: int) -> int:
    """Iterations in which a block walks down the rows of a column reduction."""
    return -(-rows * COLUMN_WIDTH // COLUMN_THREADS)


def _arrays(works: GraphWork, bits: int, written: int, source: Op) -> int:
    """Arrays of the size of `source` that a kernel reads or writes."""
    touched = written
    for i in ids(bits):
        touched |= works.operands[i] & ~bits
    large = (works.graph.ops[i] for i in ids(touched & ~works.free))
    return sum(op.shape.size >= source.shape.size for op in large)


def _normalises(works: GraphWork, reductions: Sequence[Op], written: int) -> bool:
    """Whether a kernel writes rows that follow from what it reduced them to."""
    dims, above = reductions[0].operands[0].dims, sum(1 << op.id for op in reductions)
    ops = (works.graph.ops[i] for i in ids(written))
    return any(op.dims == dims and works.graph.reach[op.id] & above for op in ops)


def _normalised(works: GraphWork, bits: int, source: Op, work: Work) -> Work:
    """`work` with the traffic that would take as long at the full rate."""
    operands = {o.id for i in ids(bits) for o in works.graph.ops[i].operands}
    outside = [works.graph.ops[i] for i in operands if not (bits | works.free) >> i & 1]
    large = sum(op.shape.size >= source.shape.size for op in outside)
    xla = works.device.xla
    share = xla.more_inputs_share if large > 1 else xla.one_input_share
    read, written = int(work.bytes_read / share), int(work.bytes_written / share)
    return replace(work, bytes_read=read, bytes_written=written)


def reduced_extents(reduce: Op) -> tuple[int, int, bool]:
    """(elements kept, elements reduced, whether the last dim is kept)."""
    dims = reduce.operands[0].dims
    gone = reduce.attrs["dimensions"]
    reduced = math.prod(dims[d] for d in gone)
    last = max((d for d, n in enumerate(dims) if n > 1), default=0)
    result = reduce.shape.elements[0] if reduce.shape.is_tuple else reduce.shape
    return result.size, reduced, last not in gone


def _second_pass_us(reductions: list[Op], blocks: int, device: Device) -> float:
    """Partial results in, results out."""
    written = sum(op.shape.bytes for op in reductions)
    return kernel_us(Work(bytes_read=8 * written, bytes_written=written, blocks=blocks), device)


def _gemm_us(op: Op, work: Work, works: GraphWork, written: int) -> float:
    device = works.device
    batch, m, n, k = dot_extents(op)
    unit = product_flops_per_s(op, device)
    # the kernel that reads a result element by element also adds up its parts
    users = works.graph.users[op.id]
    joined = written >> op.id & 1 and any(kind_of(u.opcode) is Kind.ELEMENTWISE for u in users)
    each, sizes = ITEM_BYTES.get(op.operands[0].dtype, 1), ((batch, m, n), k)
    return library_gemm_us(work, device, dot_flops(op), *sizes, unit, each, bool(joined))


def product_flops_per_s(op: Op, device: Device) -> float:
    """FLOP/s of the unit a library runs this dot on: by default f32 goes through TF32 from sm_80,
    at half the bf16 rate; "high" takes three such products, "highest" the FMA units, as f32 and
    bf16 do on older devices."""
    dtype = op.operands[0].dtype
    if dtype == "f64":
        return device.fp64_flops
    if dtype == "f16" or (dtype == "bf16" and device.float_tensors):
        return device.tensor_bf16_flops
    if not device.float_tensors or op.attrs.get("precision") == "highest":
        return device.fp32_flops
    tf32 = device.tensor_bf16_flops / 2
    return tf32 / 3 if op.attrs.get("precision") == "high" else tf32
