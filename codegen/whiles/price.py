"""How long loops take in a kernel whose threads run their rows alone.

An iteration takes as long as its longest chain of dependent instructions, or as the instructions of
all warps of a multiprocessor take to issue, whichever is longer.
"""

from __future__ import annotations

import math

from fusionstitch.codegen.loops.stages import inner_extents
from fusionstitch.codegen.whiles.flat import Flat, Loop, made_of
from fusionstitch.codegen.whiles.rows import LATENCY, Rows
from fusionstitch.codegen.whiles.trips import counter
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of

#: Iterations of a loop whose number the data decides, as priced on both sides.
UNKNOWN_TRIPS = 100
#: Cycles that a library routine waits beyond other instructions, and one load of an input.
SPECIAL, LOAD = 30, 300
#: Cycles a second, and warps that issue at once in a multiprocessor.
CLOCK, ISSUE = 1.7e9, 4


def trips_of(flat: Flat, loop: Loop) -> int:
    """Iterations of a loop, a usual number where the data decides."""
    found = counter(flat, loop)
    return UNKNOWN_TRIPS if found is None else found.trips


def turns(flat: Flat, loops: tuple[Loop, ...]) -> tuple[object, ...]:
    """How often loops turn: for each (turns, those of the loops in it, whether the program says how
    often)."""
    return tuple(
        (trips_of(flat, loop), turns(flat, loop.inner), counter(flat, loop) is not None)
        for loop in loops
    )


def loop_us(flat: Flat, rows: Rows, device: Device) -> float:
    """Microseconds of the whole kernel."""
    return (
        device.launch_us
        + sum(_cycles(flat, loop, rows, device) for loop in flat.loops) / CLOCK * 1e6
    )


def _cycles(flat: Flat, loop: Loop, rows: Rows, device: Device) -> float:
    inside = _members(flat, loop)
    ready: dict[int, int] = {}
    work = 0
    for op in inside:
        begin = max((ready.get(o.id, 0) for o in op.operands), default=0)
        reads = any(o.opcode == "parameter" and o.attrs["index"] < flat.inputs for o in op.operands)
        picks = op.opcode in ("dynamic-slice", "gather") and reads
        ready[op.id] = begin + _latency(op, rows) + LOAD * picks
        work += rows.work(op)
    warps = -(-rows.count // 32)
    issued = work * math.ceil(warps / (device.sm_count * ISSUE))
    own = max(max(ready.values(), default=0), issued)
    return trips_of(flat, loop) * (own + sum(_cycles(flat, i, rows, device) for i in loop.inner))


def _members(flat: Flat, loop: Loop) -> list[Op]:
    """The ops of an iteration, loops in it left out."""
    wanted = [flat.root(c.next) for c in loop.carried] + [flat.root(loop.condition)]
    wanted += [flat.root(c.first) for i in loop.inner for c in i.carried]
    return made_of(wanted)


def _latency(op: Op, rows: Rows) -> int:
    kind = kind_of(op.opcode)
    if kind in (Kind.REDUCTION, Kind.DOT):
        return LATENCY * math.prod(inner_extents(op))
    if kind is not Kind.ELEMENTWISE:
        return 0
    spec = spec_of(op.opcode)
    return LATENCY * max(1, spec.flops) + SPECIAL * spec.special
