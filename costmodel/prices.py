"""What instructions and whole kernels cost on a device: parts of its profile (`devices.py`)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields

from fusionstitch.hlo.brief import brief, count
from fusionstitch.hlo.graph import FLOATS, FLOATS8
from fusionstitch.hlo.semantics import spec_of

#: What stands for the type of f32 that is computed with fewer correct bits.
APPROXIMATE = "approximate f32"


class Numbers:
    """Some numbers of a device."""

    def __repr__(self) -> str:
        given = count(len(fields(self)), "number")  # type: ignore[arg-type]
        return brief(f"{type(self).__name__}: {given} of a device")


@dataclass(frozen=True)
class Price:
    """What one result of an elementwise op takes, by the units of `Work`."""

    flops: int = 0
    flops64: int = 0
    special: int = 0
    int_ops: float = 0


@dataclass(frozen=True, repr=False)
class OpCosts(Numbers):
    """What elementwise ops cost a multiprocessor: instructions of its machine code, and cycles
    until the result of an operation, of a special function, or of a load of shared memory is there.

    `floats`: opcode to (FLOPs, calls of the special-function unit) of one f32 result; `fewer_bits`
    the same of what is computed with fewer correct bits, as `codegen/cuda/functions.cuh` does.
    `integers`: opcode to units of the integer rate of one result of 32 bits. What is in none of
    them takes what `hlo/semantics.py` says.

    A float instruction counts as two FLOPs, since rates count a fused multiply-add as two; a lone
    add or multiply counts as one, half of such an instruction. On sm_90 (CUDA 13.5) about half of
    all integer additions run on the FMA units instead, a shift is usually a part of a rotation, and
    three logical operands go into one instruction. XLA's threefry kernel, 33.5 million words on an
    H200, took 115 us: 57 such units a word, where these numbers give 60.
    """

    operation_cycles: float
    special_cycles: float
    near_cycles: float
    floats: Mapping[str, tuple[int, int]]
    fewer_bits: Mapping[str, tuple[int, int]]
    integers: Mapping[str, float]

    def __hash__(self) -> int:
        return hash((self.operation_cycles, self.special_cycles, self.near_cycles))

    def price(self, opcode: str, dtype: str) -> Price:
        """Elementwise work goes to the unit of the type it is computed in, that of its operands, or
        `APPROXIMATE`."""
        found = self._prices.get((opcode, dtype))
        if found is None:
            found = self._prices[opcode, dtype] = self._priced(opcode, dtype)
        return found

    def cycles(self, opcode: str, dtype: str) -> float:
        """Until the result of an elementwise op is there."""
        one = self.price(opcode, dtype)
        operations = one.flops + one.int_ops + 2 * one.flops64
        return self.operation_cycles * operations + self.special_cycles * one.special

    @functools.cached_property
    def _prices(self) -> dict[tuple[str, str], Price]:
        return {}

    def _priced(self, opcode: str, dtype: str) -> Price:
        spec = spec_of(opcode)
        if dtype == APPROXIMATE:
            flops, special = self.fewer_bits[opcode]
            return Price(flops=flops, special=special)
        if dtype == "f64":
            # f64 library routines are all FMA: the special-function unit only starts them
            return Price(flops64=spec.flops)
        if dtype in FLOATS or dtype in FLOATS8:
            flops, special = self.floats.get(opcode, (spec.flops, spec.special))
            return Price(flops=flops, special=special)
        units = self.integers.get(opcode, spec.flops) * (2 if dtype in ("s64", "u64") else 1)
        return Price(int_ops=units)


@dataclass(frozen=True, repr=False)
class Prices(Numbers):
    """What the amounts of an `KernelCost` cost.

    Names of `Path`: cycles on the path of a thread. `issue_...`: issue slots of a lane for each
    operation of all threads. Shares are of the numbers in the device's profile. From
    `resident_share` of L2 on, part of what a kernel touches is missing when it runs again, and all
    of it `missing_share` later. What blocks visit again stays near up to `kept_share` of a
    multiprocessor's memory, and accesses to spilled registers take issue slots as well. Paths and
    rates overlap by a power, `overlap`, which grows with what is `independent` of each other.

    A multiprocessor takes `line` cycles for each line of memory that a warp's load touches, and
    `line_stored` for each that a store does, unless its threads are so near each other that the
    hardware joins what they store (an H200, benchmarks/records.py).

    Those of the H100 are what `benchmarks/fit_model.py` found with the times of 1,524 kernels, 246
    of them loops. Kernels were counted less well when they were found: arrays took registers to the
    end of their frames, a product and its sum were three operations. Three are not those of the
    fit: `spilled` is set so that two loops both come out right. `products` is set so that layers
    and attention do, in f32 and bf16, since tensor cores are counted by instructions. `meetings`,
    for barriers of clusters and each other block that is stored to before them, is set so that two
    recurrences come out right in clusters of 2, 4 and 8 (benchmarks/loops/by_form.py).
    """

    rounds: float
    far: float
    accesses: float
    near: float
    ops: float
    records: float
    special: float
    divisions: float
    shuffles: float
    barriers: float
    meetings: float
    products: float
    chain: float
    issue_access: float
    issue_sector: float
    issue_near: float
    issue_op: float
    issue_record: float
    issue_special: float
    issue_division: float
    issue_shuffle: float
    l2_share: float
    few_blocks: float
    line: float
    line_stored: float
    resident_share: float
    missing_share: float
    start_us: float
    block_us: float
    phase_us: float
    overlap: float
    independent: float
    spilled: float
    kept_share: float
    issue_spilled: float


@dataclass(frozen=True, repr=False)
class Registers(Numbers):
    """Registers of 32 bits as the device hands them out, and what its compiler does with them.

    A thread has `most` at most, a warp whole `units`. Bounds leave a thread `least`. Beside arrays
    and what is loaded it needs `beside` (addresses, and values on the way), and gives `loads` to
    loads at most, `least_loads` at least: so the registers of 450 kernels for sm_90 are met to a
    factor of 1.3 in the mean (NVRTC 13.5).

    Of a loop that the compiler may write out it writes out `unrolled` iterations. The loads of so
    many are one round: of a loop without branches `straight`, of one with branches, past which the
    compiler moves no load, `branching` (found with `benchmarks/fit_model.py`, of 8 to 32 and of 1
    to 8).
    """

    most: int
    unit: int
    least: int
    beside: int
    loads: int
    least_loads: int
    unrolled: int
    straight: int
    branching: int


@dataclass(frozen=True, repr=False)
class Library(Numbers):
    """GEMMs of XLA's libraries. Those of the H200 are priced against the dots of
    costmodel/gemms/h200.json, as XLA runs them with warm caches (tests/costmodel): 75 of usual
    shapes, of which the mean of |log(modelled / measured)| is 0.21, and tiny and skewed ones.

    A GEMM that fills the device reaches `share` of its unit's rate. The smallest one takes
    `least_us`, launch included, and each contracted element adds `step_us`. A block computes a
    square tile of side `tile`, which takes it `tile_us` more, or `unaligned_us` where a product of
    16 bits in a batch is padded for a library. `resident` blocks of a multiprocessor work at a
    time. A contraction of at least `split_k` elements is split where no more than `split_share` of
    the multiprocessors have a tile, one of `long_k` where not all of them have: into parts of
    `split_k` elements, or as many as work at a time. Its parts are added up by a kernel of their
    own; one whose length is no multiple of `pad` is padded first, a kernel an operand. Products of
    4 bytes whose operands have less than `loop_elements` elements, without the batch, are a loop of
    XLA's own. Products keep `float_bits` bits of f32 operands where the program asks for no
    precision.
    """

    share: float
    least_us: float
    step_us: float
    tile: int
    tile_us: float
    unaligned_us: float
    resident: float
    split_k: int
    split_share: float
    long_k: int
    loop_elements: int
    pad: int
    float_bits: int


@dataclass(frozen=True, repr=False)
class Foreign(Numbers):
    """Sorts of XLA's, and what it leaves to libraries beside GEMMs. Fitted to the kernels of whole
    programs on an H200 (benchmarks/results/h200-2026-11-28-xla-kernels.json).

    A step of a bitonic sort takes `sort_step_us`, and `sort_thread_us` more for each thread that
    is resident beside it; a block holds `sort_tile` keys. A radix sort takes `radix_us`, and moves
    what its passes do at `radix_share` of the rate of L2; of rows, a block takes `radix_key_us` for
    each key.

    Transforms along a dim whose length is a power of two are `even_passes` over the array, with the
    primes up to 7 `smooth_passes`, with others `rough_passes`. An inverse one is scaled in
    `inverse_passes` more, or in `real_inverse_passes` if it leaves real numbers.

    A convolution takes `convolution_us` beside its products. With at most `narrow_channels` to add
    up it makes `narrow_products_per_s`, and up to `narrow_filled` times as many where a group has
    several times `narrow_results` results; it takes `narrow_us`, or `narrow_gradient_us` if it is a
    gradient by a kernel, and `narrow_passes` over its arrays besides, with what changes their
    layout. A solver takes `solver_us`, `column_us` for each column
    that it factors, where each matrix of a batch adds `matrix_us`, or `row_us` for each row that it
    solves, and makes `solver_products_per_s`.
    """

    sort_tile: int
    sort_step_us: float
    sort_thread_us: float
    radix_us: float
    radix_share: float
    radix_key_us: float
    even_passes: float
    smooth_passes: float
    rough_passes: float
    inverse_passes: float
    real_inverse_passes: float
    convolution_us: float
    narrow_channels: int
    narrow_products_per_s: float
    narrow_results: int
    narrow_filled: float
    narrow_us: float
    narrow_gradient_us: float
    narrow_passes: float
    solver_us: float
    column_us: float
    row_us: float
    matrix_us: float
    solver_products_per_s: float


@dataclass(frozen=True, repr=False)
class XlaKernels(Numbers):
    """What XLA's own kernels take on the device beyond their work.

    A block of a column reduction in one pass walks down its rows; `column_us` is what an iteration
    takes for each array that it reads or writes. Sums over 512..4096 rows of 768 took 1.9 to 10.2
    us on an H200, f32 and bf16 (costmodel/reductions/h200.json).

    Normalisations reach `one_input_share` of our bandwidth with one input that is as large as the
    rows they reduce, and `more_inputs_share` with several. On an H200, 8192 rows of 4096: with two
    (residual, layer norm, GELU; bf16) 84 us of 48 at the full rate, with three (dropout's mask
    among them; f32) 171 of 104. With one, layer norm and softmax, they are about as fast as
    stitched ones.

    What scatters add up they do by atomic operations: an update of an array of `contended_elements`
    takes `contended_ns`, which falls with more of them by the power `contended_power`, and
    `most_contended_ns` where all updates meet. On an H100 65,536 updates take 24 us into 10
    elements and 6 us into 4,096; a million take 257 us into 16 and 21 us into a million
    (benchmarks/scatters.py, fc70a7f).
    """

    thread_us: float
    access_us: float
    step_us: float
    branch_us: float
    reduced_us: float
    padded_us: float
    again_us: float
    column_us: float
    one_input_share: float
    more_inputs_share: float
    contended_ns: float
    contended_elements: int
    contended_power: float
    most_contended_ns: float
    narrow_updates: float
