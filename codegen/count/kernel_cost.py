"""What was counted of a kernel, as the cost that the model prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fusionstitch.codegen.count.tally import Phase, Tally
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.costmodel.kernel_cost import KernelCost, PhaseCost


def cost(tally: Tally, lowered: Lowered) -> KernelCost:
    """The cost of a kernel."""
    touched: dict[str, int] = {}
    for phase in tally.phases:
        for name, one in (*phase.read.items(), *phase.written.items()):
            touched[name] = max(touched.get(name, 0), one.bytes)
    return KernelCost(
        phases=tuple(_phases(tally, lowered)),
        blocks=lowered.grid,
        threads=lowered.block,
        registers=tally.registers,
        shared_bytes=tally.shared,
        footprint=sum(touched.values()),
        spilled=tally.spilled,
        spilled_bytes=tally.spilled_bytes,
        steps=tally.steps,
    )


def _phases(tally: Tally, lowered: Lowered) -> Iterator[PhaseCost]:
    """An input comes from DRAM once, and an output goes there once; scratch stays in L2."""
    far = {b.name for b in lowered.buffers if b.memory in (Memory.INPUT, Memory.OUTPUT)}
    going = Counter(step for own in tally.steps for step in set(own) if isinstance(step, int))
    for number, phase in enumerate(tally.phases):
        both = (*phase.read.items(), *phase.written.items())
        outside = sum(one.bytes for name, one in both if name in far)
        yield _phase(phase, outside, going[number])
        far -= {name for name, _ in both}


def _phase(phase: Phase, outside: int, blocks: int) -> PhaseCost:
    accesses = (*phase.loads.items(), *phase.stores.items())
    own = phase.instructions
    visited = (*phase.read.values(), *phase.written.values())
    return PhaseCost(
        path=phase.path,
        outside=outside,
        moved=sum(one.moved for one in visited),
        again=tuple(again for one in visited for again in one.again),
        accesses=sum(one.accesses for (memory, _), one in accesses if not memory.is_near),
        sectors=sum(one.sectors for _, one in accesses),
        lines=sum(one.lines for one in phase.loads.values()),
        lines_stored=sum(one.lines for one in phase.stores.values()),
        near=sum(one.accesses for (memory, _), one in accesses if memory.is_near),
        ops=own.flops + own.int_ops,
        records=own.records,
        special=own.special,
        divisions=own.divisions,
        shuffles=phase.shuffles,
        kept=phase.kept,
        flops64=own.flops64,
        tensor_flops=own.tensor_flops,
        products=own.products,
        iterations=phase.iterations,
        grid_barriers=phase.barriers.get(Scope.GRID, 0),
        blocks=blocks,
    )
