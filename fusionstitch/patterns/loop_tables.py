"""Values that depend only on the iteration number, computed for all iterations before the loop.

    for n: k = fold_in(key, n); x = f(x, k)    ->    ks = fold_in(key, [0, 1, ...])
                                                     for n: x = f(x, ks[n])

All rows use the same keys, and each would compute them again. The same holds for a learning rate
schedule, and for keys that come from a stack and are split. A table before the loop has each once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Module, Op
from fusionstitch.hlo.lifting import Steps, is_liftable
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of
from fusionstitch.hlo.tabulating import LoopTables, Table
from fusionstitch.hlo.trips import carried
from fusionstitch.hlo.tuples import unhindered
from fusionstitch.patterns.loop_costs import SPARE_BYTES, moved_s
from fusionstitch.patterns.open_loops import OpenLoop, open_loops

#: The most elements per iteration in a table: a thread reads them one by one.
MOST_ELEMENTS = 16


@dataclass(frozen=True)
class _Order:
    """The order of iterations in a table: that of the parts of a stack at `position`, or iteration
    order if that is None. `direction` says whether the first iteration comes first (1), last (-1),
    or anywhere (0)."""

    position: Op | None = None
    direction: int = 1


class _Loop:
    """What the body of a loop computes from the iteration number and from parts of stacks."""

    def __init__(self, loop: OpenLoop):
        self.loop = loop

    @cached_property
    def orders(self) -> Mapping[int, _Order | None]:
        """The ops that do not depend on the state, and are small or in a stack, by id: the order of
        their table, or None if they are the same in each iteration."""
        loop, found = self.loop, dict[int, _Order | None]()
        for op in loop.body:
            if carried(op) in loop.steps:
                found[op.id] = _Order()
            elif op.id in loop.reads:
                found[op.id] = self._order(loop.reads[op.id].position)
            elif loop.is_handed_on(op):
                found[op.id] = None
            elif op.opcode not in ("parameter", "tuple", "get-tuple-element"):
                operands = [unhindered(operand).id for operand in op.operands]
                if all(operand in found for operand in operands):
                    orders = [found[operand] for operand in operands]
                    order, varies = _joined(orders), [one is not None for one in orders]
                    if (order or not any(varies)) and is_liftable(op, varies):
                        found[op.id] = order
            large = op.shape.size > MOST_ELEMENTS and op.id not in loop.reads
            if large and found.get(op.id) is not None:
                del found[op.id]
        return found

    def tables(self, device: Device) -> LoopTables | None:
        """The tables, if the loop gains more than they cost."""
        loop, tabled, saved = self.loop, dict[Op, _Order](), 0.0
        for op in loop.body:
            order = self.orders.get(op.id)
            if order is not None and self._is_read(op):
                work = sum(map(_work, self._made_of(op, tabled)))
                if work > device.table_cycles:
                    tabled[op] = order
                    saved += work - device.table_cycles
        size = loop.trips * sum(op.shape.bytes for op in tabled)
        before_us = device.launch_us + moved_s(size, device) * 1e6
        rows = max((op.shape.size for op in loop.results if not loop.is_stack(op)), default=1)
        cycles = saved * max(1.0, rows / device.sm_count / device.lanes)
        if not tabled or size > SPARE_BYTES:
            return None
        if loop.trips * cycles / device.cycles_per_us < before_us:
            return None
        found = []
        for order in dict.fromkeys(tabled.values()):
            ops = tuple(op for op in tabled if tabled[op] == order)
            found.append(Table(ops, order.position, loop.cone(ops, steps=self._steps(order))))
        return LoopTables(loop.graph, loop.op, loop.count, tuple(found))

    def _order(self, position: Op) -> _Order:
        numbers, forwards = self.loop.evaluated(position), np.arange(self.loop.trips)
        if numbers is None:
            return _Order(position, 0)
        ways = {1: forwards, -1: forwards[::-1]}
        return _Order(position, next((w for w, o in ways.items() if np.array_equal(numbers, o)), 0))

    def _steps(self, order: _Order) -> dict[int, Steps]:
        elements = ((op, carried(op)) for op in self.loop.body)
        return {
            op.id: Steps(index, self.loop.steps[index], backwards=order.direction < 0)
            for op, index in elements
            if index is not None and index in self.loop.steps
        }

    def _is_read(self, op: Op) -> bool:
        """Whether an op that cannot be in a table reads this op."""
        return any(self.orders.get(user.id) is None for user in self.loop.users.get(op, ()))

    def _made_of(self, op: Op, tabled: Mapping[Op, _Order]) -> Iterator[Op]:
        """The op and what it is computed from in each iteration, without the ops in `tabled`."""
        seen, wanted = {op}, [op]
        while wanted:
            yield (one := wanted.pop())
            for operand in map(unhindered, () if one.id in self.loop.reads else one.operands):
                if self.orders.get(operand.id) and operand not in seen and operand not in tabled:
                    seen.add(operand)
                    wanted.append(operand)


def loop_tables(module: Module, device: Device) -> list[LoopTables]:
    """The tables of loops that are not nested in another loop."""
    found = []
    for loop in open_loops(module):
        # the number from another counter might overflow its type
        if loop.graph is module.entry and loop.count.index in loop.steps and _fits(loop):
            found.append(_Loop(loop).tables(device))
    return [tables for tables in found if tables is not None]


def _fits(loop: OpenLoop) -> bool:
    """Whether the counter's type holds all its values from its start on."""
    limits = np.iinfo(NUMPY_DTYPES[loop.results[loop.count.index].dtype])
    count = loop.count
    return limits.min <= count.step and limits.min <= count.step * count.trips <= limits.max


def _joined(orders: Collection[_Order | None]) -> _Order | None:
    """The common order of operands with these orders; None if there is none."""
    known = [order for order in dict.fromkeys(orders) if order is not None]
    if len(known) < 2:
        return known[0] if known else None
    positioned = [order for order in known if order.position is not None]
    directions = {order.direction for order in positioned}
    return positioned[0] if directions in ({1}, {-1}) else None


def _work(op: Op) -> int:
    """Approximate number of instructions that a thread spends on an op."""
    if kind_of(op.opcode) is not Kind.ELEMENTWISE:
        return 0
    return op.shape.size * spec_of(op.opcode).instructions
