"""Where blocks wait for each other by counters, each read of what another block wrote happens after
the write, nothing is written over that another block may still read, and every wait has an end.

All blocks run at once (`residency.py`). A counter is an integer of the kernel's scratch, which is
zeroed before any block comes to it. For the threads of one block arrivals and waits are barriers,
and `hazards.py` sees to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusionstitch.codegen.ir.blocks import BARRIERS, Steps, Unknown, steps_of
from fusionstitch.codegen.ir.counters import arrivals, has_counters, may_count
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.order import Order, begun_early
from fusionstitch.codegen.ir.program import Program
from fusionstitch.codegen.ir.reach import Reach, Stuck
from fusionstitch.codegen.ir.verifier.fault import Fault


def check(kernel: Lowered) -> None:
    """Raises Fault where blocks do not wait for what they need, or wait for ever."""
    if not has_counters(kernel):
        return
    counters = _counters(kernel)
    try:
        program = Program(kernel, _memory(kernel, counters))
        steps = [steps_of(program, block) for block in range(kernel.grid)]
    except Unknown as unknown:
        raise Fault(str(unknown), unknown.at) from unknown
    reach = Reach([one.syncs for one in steps])
    stuck = reach.stuck()
    if stuck is not None:
        raise Fault(_waits_for_ever(stuck), stuck.sync.at)
    given = {buffer.by.output for buffer in kernel.buffers if buffer.by is not None}
    for name in dict.fromkeys(one.buffer for own in steps for one in own.touched):
        if name not in counters:
            _in_order(Order(name, steps, reach), given=name in given)
    for buffer in kernel.buffers:
        if buffer.name in counters:
            _begins_at_zero(buffer, steps, reach)


def _in_order(order: Order, given: bool) -> None:
    """What blocks do with a buffer has an order; one that is not `given` is written first."""
    found = order.unordered()
    if found is not None:
        does = "writes" if found.other.writes else "reads"
        raise Fault(
            f"block {found.block} writes {order.name}, block {found.other_block} {does} it, and "
            "neither waits for the other",
            found.other.at,
        )
    early = None if given else order.unwritten()
    if early is not None:
        block, read = early
        raise Fault(f"block {block} reads {order.name} before anything is written there", read.at)


def _begins_at_zero(counters: Buffer, steps: Sequence[Steps], reach: Reach) -> None:
    """Counters are set to zero, and nothing else is done with them, before blocks come to them."""
    name = counters.name
    for own in steps:
        for one in own.touched:
            if one.buffer == name and not (one.writes and one.zeroes):
                raise Fault(f"{name} are counters, and not for this", one.at)
        for sync in own.syncs:
            if sync.counter[0] == name and not 0 <= sync.counter[1] < counters.size:
                raise Fault(f"{name} has {counters.size} elements, not {sync.counter[1]}", sync.at)
    for block, sync, zero in begun_early(name, steps, reach):
        if zero is None:
            raise Fault(f"element {sync.counter[1]} of {name} does not begin at zero", sync.at)
        raise Fault(f"{name} may be set to zero after block {block} came to it", zero.at)


def _counters(kernel: Lowered) -> list[str]:
    """The buffers of counters: those at whose elements blocks arrive, by that name or another."""
    buffers = {buffer.name: buffer for buffer in kernel.buffers}
    for one in arrivals(kernel):
        buffer = buffers.get(one.counter)
        if buffer is not None and not may_count(buffer):
            raise Fault(f"{one.counter} is no buffer of counters", one)
    own = {one.counter for one in arrivals(kernel)}
    if own <= buffers.keys():
        return [name for name in buffers if name in own]
    return [name for name, buffer in buffers.items() if may_count(buffer)]


def _memory(kernel: Lowered, counters: Sequence[str]) -> Mapping[str, str]:
    """The buffers that blocks write and read, by the memory that they lie in."""
    own = (Memory.OUTPUT, Memory.SCRATCH)
    found = {b.name: b.name for b in kernel.buffers if b.memory in own}
    for one in kernel.buffers:
        if one.by is not None:
            found[one.name] = found[one.by.output] = one.by.output
    return {**found, **{name: name for name in counters}}


def _waits_for_ever(stuck: Stuck) -> str:
    counter, element = stuck.sync.counter
    if counter == BARRIERS:
        return f"{stuck.arrived} blocks come to a barrier of the grid, but not block {stuck.block}"
    return (
        f"block {stuck.block} waits until {stuck.sync.value} have arrived at element {element} of "
        f"{counter}, where {stuck.arrived} do"
    )
