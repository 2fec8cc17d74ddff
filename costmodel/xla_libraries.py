"""How long XLA's sorts take, and what it leaves to libraries: transforms, convolutions, solvers.

Of these, kernels may take sorts, and solvers of small matrices. The others are modeled where a
compiled program's time is divided among its kernels, so that these do not get their share of it.
Each rule follows from passes over the arrays, steps that wait for each other, and products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from fusionstitch.costmodel.devices import WARP, Device
from fusionstitch.costmodel.estimate import kernel_us
from fusionstitch.costmodel.work import SECTOR_BYTES, Work
from fusionstitch.costmodel.xla_kernels import product_flops_per_s
from fusionstitch.hlo.graph import ITEM_BYTES, Op

#: Primes that libraries have transforms of their own for.
SMALL_PRIMES = (2, 3, 5, 7)
#: Transforms of a length with a larger prime are convolutions of a power of two.
LARGEST_PRIME = 127


def library_us(op: Op, device: Device) -> float | None:
    """Microseconds of an op that XLA sorts by, or has a library do, launches included; None for any
    other op."""
    name = str(op.attrs["target"]).lower() if op.opcode == "custom-call" else op.opcode
    rule = next((rule for part, rule in _RULES.items() if part in name), None)
    return None if rule is None else rule(op, device)


def _moving_us(moved: float, device: Device) -> float:
    """A kernel that reads and writes so many bytes in all, in L2 as long as they fit there."""
    if moved < device.l2_bytes * device.warm_share:
        return kernel_us(Work(l2_bytes=int(moved)), device)
    return kernel_us(Work(bytes_read=int(moved)), device)


def _sort_us(op: Op, device: Device) -> float:
    """XLA's own: a bitonic network. Steps between keys of one tile are taken by blocks that hold
    it, every other one is a kernel that reads and writes all."""
    library, keys = device.foreign, op.operands[0]
    n = max(2, keys.dims[op.attrs["dimension"]])
    rows = max(1, keys.shape.size // n)
    levels, tile_levels = (n - 1).bit_length(), library.sort_tile.bit_length() - 1
    own = min(levels, tile_levels)
    above = levels - own
    passes = above * (above + 1) // 2
    steps = own * (own + 1) // 2 + above * own
    blocks, threads = rows * -(-n // (1 << own)), 1 << max(0, own - 1)
    warps = -(-threads // WARP)
    resident = min(device.max_blocks_per_sm, device.max_threads_per_sm // (WARP * warps))
    beside = min(resident, -(-blocks // device.sm_count)) * warps * WARP
    step = library.sort_step_us + library.sort_thread_us * min(device.max_threads_per_block, beside)
    waves = max(1.0, blocks / (resident * device.sm_count))
    moved = 2.0 * sum(_in_rows(x, op.attrs["dimension"]) for x in op.operands)
    tiles = above + 1
    return (
        tiles * kernel_us(Work(), device)
        + max(waves * steps * step, tiles * (_moving_us(moved, device) - device.launch_us))
        + passes * _moving_us(moved, device)
    )


def _in_rows(x: Op, dimension: int) -> int:
    """Bytes that are moved to read an array along a dim: whole sectors where that is not the last
    one."""
    last = max((d for d, n in enumerate(x.dims) if n > 1), default=0)
    if dimension >= last:
        return x.shape.bytes
    return x.shape.bytes * SECTOR_BYTES // ITEM_BYTES.get(x.dtype, 1)


def _radix_sort_us(op: Op, device: Device) -> float:
    """A library's: each pass takes a byte of the keys, all at once or, of rows, a block each."""
    library, keys = device.foreign, op.operands[0]
    n = keys.dims[-1]
    rows = keys.shape.size // max(1, n)
    if rows > 1:
        return library.radix_us + library.radix_key_us * n * max(1.0, rows / device.sm_count)
    passes = ITEM_BYTES.get(keys.dtype, 1)
    moved = keys.shape.bytes + 2 * passes * sum(x.shape.bytes for x in op.operands)
    return library.radix_us + moved / (library.radix_share * device.l2_bytes_per_s) * 1e6


def _transform_us(op: Op, device: Device) -> float:
    """Passes over the array for each dim; inverse transforms are scaled by one more kernel, and
    those to real numbers work on a copy."""
    library, x = device.foreign, op.operands[0]
    moved = x.shape.bytes + op.shape.bytes
    us = 0.0
    for n in op.attrs["length"]:
        passes, grown = _passes(n, device)
        us += passes * _moving_us(moved * grown, device)
    if op.attrs["inverse"]:
        real = not op.dtype.startswith("c")
        extra = library.real_inverse_passes if real else library.inverse_passes
        us += extra * _moving_us(moved, device)
    return us


def _passes(n: int, device: Device) -> tuple[float, float]:
    """Passes of a transform of length `n`, and by how much its array grows."""
    library = device.foreign
    if n & (n - 1) == 0:
        return library.even_passes, 1.0
    rest = n
    for prime in SMALL_PRIMES:
        while rest % prime == 0:
            rest //= prime
    if rest == 1:
        return library.smooth_passes, 1.0
    if _largest_prime(rest) <= LARGEST_PRIME:
        return library.rough_passes, 1.0
    return library.rough_passes, (1 << (2 * n - 1).bit_length()) / n


def _largest_prime(n: int) -> int:
    found, prime = 1, 2
    while prime * prime <= n:
        while n % prime == 0:
            found, n = prime, n // prime
        prime += 1
    return max(found, n)


def _convolution_us(op: Op, device: Device) -> float:
    """The products of a convolution, forward or either gradient, on the unit of its type where
    there are channels to add up, else one by one."""
    library = device.foreign
    result = op.shape.elements[0] if op.shape.is_tuple else op.shape
    target = str(op.attrs.get("target", ""))
    arrays = [result, *(x.shape for x in op.operands[:2])]
    if "BackwardFilter" in target:
        kernel, written = arrays[0], arrays[2]
    elif "BackwardInput" in target:
        kernel, written = arrays[2], arrays[1]
    else:
        kernel, written = arrays[2], arrays[0]
    results = max(1, kernel.dims[op.attrs["kernel"][1]])
    each = kernel.size // results
    products = written.size * each
    moved = sum(shape.bytes for shape in arrays)
    channels = each // max(1, math.prod(op.attrs["size"]))
    results //= op.attrs.get("groups", 1)
    if by_kernel := channels > library.narrow_channels and _is_by_kernel(op):
        channels = op.operands[0].dims[op.attrs["input"][0]]  # the entries of its batch
    if channels <= library.narrow_channels:
        filled = min(library.narrow_filled, max(1.0, results / library.narrow_results))
        us = products / (library.narrow_products_per_s * filled) * 1e6
        us += library.narrow_passes * moved / device.dram_bytes_per_s * 1e6
        return us + (library.narrow_gradient_us if by_kernel else library.narrow_us)
    rate = product_flops_per_s(op, device) * device.library.share
    return max(_moving_us(moved, device), library.convolution_us + 2 * products / rate * 1e6)


def _is_by_kernel(op: Op) -> bool:
    """Whether a convolution is over windows that are larger than its result: the gradient of one by
    its kernel."""
    if op.opcode != "convolution":
        return False
    return math.prod(op.attrs["size"]) > math.prod(op.dims[d] for d in op.attrs["output"][2:])


def _cholesky_us(op: Op, device: Device) -> float:
    """Columns one after the other, matrices side by side."""
    library, n = device.foreign, op.operands[0].dims[-1]
    matrices = op.operands[0].shape.size // max(1, n * n)
    return library.solver_us + library.column_us * n + library.matrix_us * matrices


def _triangular_us(op: Op, device: Device) -> float:
    """Rows one after the other; with many right-hand sides, their products."""
    library, n = device.foreign, op.operands[0].dims[-1]
    products = op.operands[1].shape.size * n / 2
    waited = library.solver_us + library.row_us * n
    return waited + products / library.solver_products_per_s * 1e6


#: By a part of the opcode, or of the target of a custom call.
_RULES: Mapping[str, Callable[[Op, Device], float]] = {
    "cub_sort": _radix_sort_us,
    "cub$deviceradixsort": _radix_sort_us,
    "radix-sort": _radix_sort_us,
    "sort": _sort_us,
    "topk": _sort_us,
    "fft": _transform_us,
    "cudnn$conv": _convolution_us,
    "convolution": _convolution_us,
    "potrf": _cholesky_us,
    "cholesky": _cholesky_us,
    "getrf": _cholesky_us,
    "permutation": lambda op, device: _moving_us(2.0 * op.shape.bytes, device),
    "triangular": _triangular_us,
}
