"""Replaces a question that iterations ask of all rows by a count made before the loop.

    while any(p(s)): s = f(s, any(m))    ->    n = how often any row has m, once lost always lost
                                               while any(p(s)): s = f(s, n > 0); n = n - 1

Independent rows can stop separately. Solvers ask such questions, for example whether any system has
yet to take its first step. A copy of the loop makes the count; its rows run only as long as they
have m.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from fusionstitch.codegen.generate import CodegenOptions
from fusionstitch.codegen.passes import rewritten
from fusionstitch.codegen.rewrite.region import rebuilt, region, with_root
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.watch import NOBODY
from fusionstitch.codegen.while_loops.flat import Flat, flatten, invariant_elements
from fusionstitch.codegen.while_loops.in_rows import in_rows
from fusionstitch.codegen.while_loops.ragged import any_of, own_condition
from fusionstitch.codegen.while_loops.unchanged_rows import holds_only_with, preserves
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.extract import instruction_of
from fusionstitch.hlo.graph import Graph, Module, Op, inside
from fusionstitch.hlo.row_queries import RowQuery
from fusionstitch.hlo.simplify import simplify_module
from fusionstitch.patterns.open_loops import editable_loops
from fusionstitch.patterns.pattern import Pattern, loop_bits


def loop_asks(module: Module, device: Device) -> list[RowQuery]:
    """The loops whose rows can stop separately once the answers are known."""
    if not any(any_of(op) for _, loop in editable_loops(module) for op in loop.called[1]):
        return []
    simple = simplify_module(module)
    found = [
        _asked(graph, loop, device)
        for graph, loop in editable_loops(simple)
        if graph is simple.entry and any(map(any_of, loop.called[1]))
    ]
    written = {op.origin: op for _, loop in editable_loops(module) for op in inside(loop)}
    return [one for one in found if one is not None and _is_as_written(one, written)]


def _is_as_written(one: RowQuery, written: Mapping[int | None, Op]) -> bool:
    """Whether the question in the condition has the shape of the mask in the original module as
    well."""
    return written[one.ends].operands[0].shape == one.loop.shape.elements[one.mask]


def flat_loop(graph: Graph, loop: Op, settings: Settings, unread: Collection[Op] = ()) -> Flat:
    """A loop as a flat region, as kernels use it, without the results in `unread`. Raises
    CodegenError for a loop that stays with XLA."""
    pattern = Pattern(graph, loop_bits(graph, loop), "loop")
    ops = [op for op in pattern.ops if op not in unread]
    outputs = [op for op in pattern.outputs if op not in unread]
    if not outputs:
        raise CodegenError("The loop has no other results.")
    flat = flatten(region("loop", ops, pattern.inputs, outputs))
    return replace(flat, graph=rewritten(flat.graph, settings, None, NOBODY))


def _asked(graph: Graph, loop: Op, device: Device) -> RowQuery | None:
    settings = Settings(device, CodegenOptions())
    try:
        return _question(graph, loop, flat_loop(graph, loop, settings), settings)
    except CodegenError:  # it stays with XLA
        return None


def _question(graph: Graph, loop: Op, flat: Flat, settings: Settings) -> RowQuery | None:
    """The loop's question, if a count can answer it. It must be about one carried mask that rows
    can only lose, and that stopped rows keep; and nothing else may prevent rows from running
    separately."""
    condition, body = loop.called
    [whole], invariant = flat.loops, invariant_elements(body)
    numbers = [n for n in range(len(loop.shape.elements)) if n not in invariant]
    inside = [flat.parameter(c.inside) for c in whole.carried]
    elements = dict(zip(inside, numbers, strict=True))
    asks = {op: mask for op in flat.graph.ops[:-1] if (mask := any_of(op)) in elements}
    masks = set(asks.values())
    own = own_condition(flat, whole)
    if own is None or own.every in asks or masks & {own.going} or len(masks) != 1:
        return None
    [mask] = masks
    carried = whole.carried[inside.index(mask)]
    falls = holds_only_with(flat.root(carried.next), mask)
    if own.going.shape != mask.shape or not (falls and preserves(flat, carried, own.going)):
        return None
    answered = in_rows(_with(flat, asks), settings)
    dealt = answered.rows.dealt(answered.flat.parameter(mask.attrs["index"]))
    if answered.rows.count < 2 or not all(
        d or n == 1 for d, n in zip(dealt, mask.dims, strict=True)
    ):
        return None
    ends, found = _named(condition, [own.every]), _named(body, asks)
    if len(ends) != 1 or len(found) != len(asks):
        return None
    ids = frozenset(ident for op in found for ident in _instructions(body, op))
    end = instruction_of(ends[0], {})
    return RowQuery(graph, loop, ids, elements[mask], end, elements.get(own.going))


def _named(graph: Graph, ops: Collection[Op]) -> list[Op]:
    """The ops of a graph that ops of the flat loop were copied from."""
    names = {op.name for op in ops}
    return [op for op in graph if op.name in names]


def _instructions(graph: Graph, op: Op) -> set[int]:
    """The ids of the instructions that an op represents."""
    found = {instruction_of(op, {})}
    while more := {i for i, stands in graph.aliases.items() if stands in found} - found:
        found |= more
    return found


def _with(flat: Flat, asks: Collection[Op]) -> Flat:
    """The loops with the answer to the question assumed to be yes."""
    copies: dict[Op, Op] = {}
    yes = np.asarray(True)
    for op in flat.graph.ops[:-1]:
        operands = [copies[o] for o in op.operands]
        answered = op in asks
        copies[op] = (
            Op("constant", op.shape, attrs={"value": yes}) if answered else rebuilt(op, operands)
        )
    roots = [copies[op] for op in flat.graph.root.operands]
    graph = with_root(flat.graph.name, list(copies.values()), roots)
    return Flat(graph, flat.inputs, flat.outputs, flat.loops)
