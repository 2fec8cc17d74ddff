"""Loops whose rows could stop separately, but whose iteration count is read after them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fusionstitch.codegen.generate import CodegenOptions
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.while_loops.in_rows import in_rows
from fusionstitch.codegen.while_loops.ragged import own_condition
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.counting import Counted
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.extract import instruction_of
from fusionstitch.hlo.graph import Graph, Module, Op
from fusionstitch.hlo.row_counts import COUNT
from fusionstitch.hlo.simplify import simplify_module
from fusionstitch.hlo.trips import stepped
from fusionstitch.hlo.tuples import resolved
from fusionstitch.patterns.loop_asks import flat_loop
from fusionstitch.patterns.open_loops import editable_loops, is_element


def loop_counts(module: Module, device: Device) -> list[Counted]:
    """The loops whose rows can stop separately once each row counts its own iterations."""
    if not any(_joins(loop) for _, loop in editable_loops(module)):
        return []
    simple = simplify_module(module)
    settings = Settings(device, CodegenOptions())
    found = (
        _counted(graph, loop, settings)
        for graph, loop in editable_loops(simple)
        if graph is simple.entry and _joins(loop)
    )
    return [one for one in found if one is not None]


def _joins(loop: Op) -> bool:
    """Whether the condition of a loop depends on all rows."""
    return any(op.opcode == "reduce" for op in loop.called[0])


def _counted(graph: Graph, loop: Op, settings: Settings) -> Counted | None:
    steps = dict(_counters(loop.called[1]))
    read = [op for op in graph.users[loop.id] if op.attrs.get("index") in steps]
    if not read:
        return None
    try:
        flat = flat_loop(graph, loop, settings, unread=read)
        [whole] = flat.loops
        own = own_condition(flat, whole)
        if own is None or in_rows(flat, settings).rows.count < 2:
            return None
    except CodegenError:  # it stays with XLA
        return None
    done = own.every.opcode == "not"
    asks = own.every.operands[0] if done else own.every
    mask = asks.operands[0]
    if not (own.going is mask or (own.going.opcode == "not" and own.going.operands[0] is mask)):
        return None  # rows stop by another mask, which may end earlier
    ends = [op for op in loop.called[0] if op.name == asks.name]
    if len(ends) != 1:
        return None
    counters = {op.attrs["index"]: steps[op.attrs["index"]] for op in read}
    return Counted(graph, loop, instruction_of(ends[0], {}), done, tuple(sorted(counters.items())))


def _counters(body: Graph) -> Iterator[tuple[int, int]]:
    """The elements that only count iterations, with their steps."""
    for index, after in enumerate(map(resolved, body.root.operands)):
        if after.dtype == COUNT and not after.shape.rank:
            step = stepped(after, partial(is_element, index))
            if step is not None:
                yield index, step
