"""What operations take that wait for each other, however many threads there are: the longest chain,
in loops from a carried value to the next, iteration by iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence

from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.least_work import (
    FREE,
    RUN,
    invariant_elements,
    iterations,
    least_units,
    live,
    results,
    unchanging,
)
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of
from fusionstitch.hlo.trips import carried
from fusionstitch.hlo.tuples import resolved

#: Iterations that are walked; the others are like the later half of these.
WALKED = 8
#: Values that a thread joins on its own, and a warp with the registers that its lanes have.
OF_A_THREAD, OF_A_WARP = 8, 1024

#: Ops whose results do not depend on the order in which values are joined, but for rounding.
JOINED_IN_ANY_ORDER = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})

#: What an op adds to the longest chain that ends in it, after one of its operands.
Weight = Callable[[Op, Op], float]


def wait_us(loop: Op, device: Device) -> float:
    """Microseconds that a loop's iterations take one after the other: a chain of operations each,
    and one synchronisation of the scope that they need. Once for a loop that the data ends."""
    trips = 1 if (found := iterations(loop)) is None else found
    if not trips:
        return 0.0
    chain = longest(loop, trips, _cycles(loop.called[1], device)) / device.cycles_per_us

    def joins(least: int, all_of_them: bool = False) -> float:
        """Iterations in which so many values meet on the way to the next one."""

        def weight(op: Op, _: Op) -> float:
            joined = joined_values(op)
            return float(joined > least and (not all_of_them or op.shape.size == 1))

        return min(float(trips), longest(loop, trips, weight))

    everything = joins(OF_A_WARP, all_of_them=True)
    blocks = joins(OF_A_WARP) - everything
    warps = joins(OF_A_THREAD) - everything - blocks
    prices = device.prices
    alone = chain + (blocks * prices.barriers + warps * prices.shuffles) / device.cycles_per_us
    if everything <= 0:
        return alone
    each = chain / trips
    busy = max(_iteration_units(loop, device).values(), default=0.0)
    together = min(
        max(each, busy * device.sm_count / blocks) + sync for blocks, sync in _scopes(device)
    )
    return max(alone, everything * together)


def _scopes(device: Device) -> list[tuple[int, float]]:
    """How many blocks may share an iteration in which all values meet, and what a synchronisation
    of them takes, microseconds: of a block, a cluster, the grid."""
    scopes = [(1, device.prices.barriers / device.cycles_per_us)]
    if device.cluster_limit > 1:
        scopes.append((device.cluster_limit, device.prices.meetings / device.cycles_per_us))
    return [*scopes, (device.sm_count, device.grid_barrier_us)]


def _iteration_units(loop: Op, device: Device) -> dict[str, float]:
    body = loop.called[1]
    still = unchanging(body, invariant_elements(loop))
    return least_units(body, live(body), results(body), device, still)


def longest(loop: Op, trips: int, weight: Weight) -> float:
    """The weight of the longest chain through `trips` iterations of a loop. What is only added to,
    or the like, waits for nothing: such parts can be joined in any order."""
    body = loop.called[1]
    ops, given = live(body), results(body)
    sums = {op: i for i, op in enumerate(given) if op.opcode in JOINED_IN_ANY_ORDER}

    def weigh(op: Op, producer: Op) -> float:
        joined = op in sums and carried(producer) == sums[op]
        return 0.0 if joined else weight(op, producer)

    state = [0.0] * len(given)
    lengths = [0.0]
    for _ in range(min(trips, WALKED)):
        state = _passed(ops, given, state, weigh)
        lengths.append(max(state, default=0.0))
    if trips <= WALKED:
        return lengths[-1]
    half = WALKED // 2
    each = (lengths[-1] - lengths[half]) / (WALKED - half)
    return lengths[-1] + (trips - WALKED) * each


def _passed(
    ops: Sequence[Op], given: Sequence[Op], state: Sequence[float], weight: Weight
) -> list[float]:
    """When the carried values of the next iteration are there, by when those of this one were."""
    at: dict[Op, float] = {}
    for op in ops:
        element = carried(op)
        if op.opcode == "parameter":
            at[op] = state[0] if not op.shape.is_tuple else 0.0
        elif element is not None:
            at[op] = state[element]
        else:
            at[op] = max((at[o] + weight(op, o) for o in _producers(op)), default=0.0)
    return [at[op] for op in given]


def _cycles(ops: Iterable[Op], device: Device) -> Weight:
    """Cycles until the result of one of `ops` is there, once that of an operand is."""
    called = {op: _called_cycles(op, device) for op in ops if op.opcode in RUN}
    costs = device.instructions

    def cycles(op: Op, producer: Op) -> float:
        if op in called:
            return called[op]
        if kind_of(op.opcode) is Kind.ELEMENTWISE:
            fused = op.opcode in ("add", "subtract") and producer.opcode == "multiply"
            if op.opcode in FREE or fused:
                return 0.0
            special = spec_of(op.opcode).special
            return costs.special_cycles if special else costs.operation_cycles
        joined = joined_values(op)
        return costs.operation_cycles * math.ceil(math.log2(joined)) if joined > 1 else 0.0

    return cycles


def _called_cycles(op: Op, device: Device) -> float:
    if op.opcode == "while":
        return wait_us(op, device) * device.cycles_per_us
    return min((chain_cycles(graph, device) for graph in op.called), default=0.0)


def chain_cycles(graph: Graph, device: Device) -> float:
    """The longest chain of operations of a graph that runs once, with all iterations of loops."""
    start = [0.0] * max([1, *(len(op.shape.elements) for op in graph.parameters)])
    return max(_passed(live(graph), results(graph), start, _cycles(graph, device)), default=0.0)


def chain_us(ops: Collection[Op], device: Device) -> float:
    """Microseconds of the longest chain of `ops` (topological)."""
    weight = _cycles(ops, device)
    at: dict[Op, float] = {}
    for op in ops:
        at[op] = max((at.get(o, 0.0) + weight(op, o) for o in _producers(op)), default=0.0)
    return max(at.values(), default=0.0) / device.cycles_per_us


def _producers(op: Op) -> Iterable[Op]:
    """What an op reads, through tuples."""
    if (inside := resolved(op)) is not op:
        yield inside
        return
    for operand in op.operands:
        yield from _producers(operand) if operand.opcode == "tuple" else (operand,)


def joined_values(op: Op) -> int:
    """How many values come together in one of an op's results; 1 where none do."""
    kind = kind_of(op.opcode)
    if kind is Kind.REDUCTION:
        result = (op.shape.elements or (op.shape,))[0]
        return op.operands[0].shape.size // max(1, result.size)
    if kind is Kind.DOT:
        return math.prod(op.operands[0].dims[d] for d in op.attrs["lhs_contract"])
    return 1
