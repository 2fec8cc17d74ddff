"""What XLA saves when it no longer has to compute some ops: the worth of a pattern.

XLA's kernels reach across a pattern's border, so the yardstick is a difference: its kernels for
the whole graph, less what it needs once the pattern's values come from elsewhere.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from itertools import chain

from fusionstitch.costmodel.xla_fusions import XlaPlan, xla_fusions
from fusionstitch.costmodel.xla_kernels import kernel_time_us
from fusionstitch.hlo.graph import ids


def covers_kernel(plan: XlaPlan, bits: int) -> bool:
    """Whether `bits` take all that at least one of XLA's kernels writes."""
    outside = ~bits
    return any(not plan.kernels[number].written & outside for number in touched(plan, bits))


def touched(plan: XlaPlan, bits: int) -> list[int]:
    """The indices of XLA's kernels that compute any of `bits`."""
    homes = filter(None, map(plan.homes.get, ids(bits)))
    return list(dict.fromkeys(chain.from_iterable(homes)))


def saved_us(plan: XlaPlan, bits: int) -> float:
    """Microseconds XLA saves when the ops `bits` are computed elsewhere."""
    return sum(saved_by_kernel(plan, bits).values())


def saved_by_kernel(plan: XlaPlan, bits: int) -> dict[int, float]:
    """What XLA saves on each of its kernels (by index) that computes any of `bits`.

    Kernels wholly inside `bits` are saved. Of others a remainder stays: what their results and the
    inputs of `bits` still need; it takes two kernels if `bits` wait for some of what it writes and
    it waits for them. Never negative for a kernel's share that vanishes, but a pattern that makes
    XLA write a value it kept on chip may save less than nothing.
    """
    graph = plan.graph
    numbers = touched(plan, bits)
    read, operands = 0, plan.works.operands
    for i in ids(bits):
        read |= operands[i]
    read &= ~bits
    above, rest = 0, bits
    while rest:  # the last op depends on most of the others
        above |= graph.reach[rest.bit_length() - 1]
        rest = bits & ~above
    below, rest = 0, bits
    while rest:
        below |= graph.dependents[(rest & -rest).bit_length() - 1]
        rest = bits & ~below
    # values that XLA writes anyway cost nothing more
    reread = read & plan.bits & ~plan.works.spread
    whole = {number for number in numbers if not plan.kernels[number].written & ~bits}
    for i in ids(reread):
        if any(number not in whole for number in plan.writers.get(i, ())):
            reread ^= 1 << i
    saved: dict[int, float] = {}
    for number in numbers:
        kernel = plan.kernels[number]
        rest = kernel.bits & ~bits
        if not rest:
            saved[number] = kernel.us
            continue
        if kernel.bits in plan.works.unrolled:
            # XLA might fuse what is left of a loop, but no pattern is there to have XLA do it
            saved[number] = kernel.us * (1 - rest.bit_count() / kernel.bits.bit_count())
            continue
        needed = (kernel.written | reread) & rest
        reread &= ~needed
        saved[number] = kernel.us - _remainder_us(plan, number, rest, needed, below, above)
    return saved


def saved_together(plan: XlaPlan, sets: Sequence[int]) -> list[float]:
    """Microseconds that XLA saves by each of several disjoint sets of ops, all of them computed
    elsewhere: of each kernel no more than its time, however many sets claim a part of it.

    What several sets spare a kernel is looked at once, and shared as their claims are: each alone
    may claim the same reads, where any of them makes the kernel read one value instead of many.
    """
    claims = [saved_by_kernel(plan, bits) for bits in sets]
    everything = functools.reduce(operator.or_, sets, 0)
    shares = [0.0] * len(sets)
    for number, us in saved_by_kernel(plan, everything).items():
        claimed = {i: max(0.0, each[number]) for i, each in enumerate(claims) if number in each}
        total = sum(claimed.values())
        for i, claim in claimed.items():
            shares[i] += us * (claim / total if total else 1 / len(claimed))
    return shares


def saved_by_fusing_again(
    plan: XlaPlan, bits: int, others: int, most_ops: int
) -> tuple[float, float]:
    """`saved_us`, and kernels, by those that XLA would make around `bits`: closer, and slower.

    The ops of the kernels that hold `bits`, and of those that these read, are fused once with and
    once without `bits`. A pattern in the middle of kernels may keep apart what XLA joined, which
    the pieces of one kernel alone do not show. `others` are computed elsewhere either way. Infinite
    where there are more than `most_ops`.
    """
    near, read = 0, 0
    for number in touched(plan, bits):
        near |= plan.kernels[number].bits
    for i in ids(near | bits):
        read |= plan.works.operands[i]
    for kernel in plan.kernels:
        if kernel.written & read:
            near |= kernel.bits
    near &= ~others
    if near.bit_count() > most_ops:
        return math.inf, math.inf
    before, after = xla_fusions(plan.works, near), xla_fusions(plan.works, near & ~bits)
    return before.us - after.us, len(before.kernels) - len(after.kernels)


def _remainder_us(
    plan: XlaPlan, number: int, rest: int, needed: int, below: int, above: int
) -> float:
    """Time of the kernels that still compute `needed` out of `rest`, what is left of kernel
    `number` around a pattern that `below` depend on and that depends on `above`."""
    after = rest & below
    key = number, rest, needed, after, above & rest
    if key not in plan.remainders:
        plan.remainders[key] = _split_us(plan, rest, needed, after, above & rest)
    return plan.remainders[key]


def _split_us(plan: XlaPlan, rest: int, needed: int, after: int, above: int) -> float:
    operands, live = plan.works.operands, needed
    waiting = needed
    while waiting:
        i = waiting.bit_length() - 1
        live |= operands[i] & rest
        waiting = (waiting ^ 1 << i) | (operands[i] & rest)
    after &= live
    before = live & ~after
    if not after or not before & needed & above:
        # nothing that `bits` wait for comes from here: all of it can run after them
        return kernel_time_us(plan.works, live, needed)
    operand_bits = 0
    for i in ids(after):
        operand_bits |= operands[i]
    first = kernel_time_us(plan.works, before, (needed | operand_bits) & before)
    return first + kernel_time_us(plan.works, after, needed & after)
