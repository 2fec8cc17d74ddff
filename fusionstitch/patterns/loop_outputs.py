"""Moves the computation of stacked outputs out of a loop, to after it. This is done where the
computation mixes rows that are otherwise independent, or multiplies by weights that only it needs.

    for t: h = f(h); ys[t] = mean(h)    ->    for t: h = f(h); hs[t] = h
                                              ys = mean(hs)            per iteration
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.while_loops.flat import flatten
from fusionstitch.codegen.while_loops.rows import Axes
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.deciding import chosen_by, picked
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Module, Op, inside
from fusionstitch.hlo.lifting import is_liftable
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.hlo.stacking import AfterLoop, StackWrite
from fusionstitch.hlo.trips import carried
from fusionstitch.hlo.tuples import resolved, unhindered
from fusionstitch.patterns.loop_costs import SPARE_BYTES, Product, moved_s, product
from fusionstitch.patterns.open_loops import OpenLoop, open_loops


def loop_outputs(module: Module, device: Device) -> list[AfterLoop]:
    """The outputs worth moving, of one position in stacks per loop."""
    found = (_outputs(loop, device) for loop in open_loops(module))
    return [after for after in found if after is not None]


def _outputs(loop: OpenLoop, device: Device) -> AfterLoop | None:
    found = [w for i in range(len(loop.results)) if (w := loop.write(i)) is not None]
    written = [w for w in found if w.position is found[0].position]
    alone = _only_for(loop, written)
    mixers, products = _mixers(loop, alone), _products(loop, alone)
    moved = _moved(loop, mixers | products.keys(), alone) or _moved(loop, mixers, alone)
    if not moved:
        return None
    position, stacks = written[0].position, {w.op: w.index for w in written}
    new = _frontier(loop, moved, position, stacks)
    for op in reversed(new):
        if op in alone and _is_liftable(loop, op):
            more = _frontier(loop, {*moved, op}, position, stacks)
            if set(more) < set(new):  # it is recomputed from what is stacked
                moved, new = {*moved, op}, more
    size = loop.trips * sum(op.shape.bytes for op in new)
    multiplied = [products[op] for op in moved if op in products]
    if size > SPARE_BYTES or not _pays(size, bool(mixers), multiplied, loop.trips, device):
        return None
    gone = tuple(w for w in written if w.op in moved)
    left = [op for op in stacks if op not in moved]
    known = {op.id: stacks[op] for op in left}
    known |= {op.id: len(loop.results) + number for number, op in enumerate(new)}
    cone = loop.cone([w.op for w in gone], known)
    again = {op for op in cone.ops if carried(op) is None} - moved
    if _are_chosen_among((*left, *new), again):
        return None
    return AfterLoop(loop.graph, loop.op, loop.trips, position, tuple(new), cone, written=gone)


def _are_chosen_among(ops: Iterable[Op], again: Collection[Op]) -> bool:
    """Whether some ops select among numbers that are recomputed (`again`) and may then round
    differently: comparisons would reveal it."""
    computed = {op for op in again if kind_of(op.opcode) is not Kind.SOURCE}
    found = (picked(op) for op in ops)
    return any(chosen_by(passed) and not numbers.isdisjoint(computed) for numbers, passed in found)


def _products(loop: OpenLoop, alone: Collection[Op]) -> dict[Op, Product]:
    """The ops that multiply by weights, which are the same in each iteration."""
    found = {}
    for dot in alone:
        if dot.opcode != "dot" or dot.attrs["lhs_batch"] or not dot.attrs["lhs_contract"]:
            continue
        for side, contracted in enumerate((dot.attrs["lhs_contract"], dot.attrs["rhs_contract"])):
            part, weights = (unhindered(dot.operands[s]) for s in (side, 1 - side))
            if loop.ahead.get(weights.id, weights) is None:
                found[dot] = product(dot, part, contracted, weights)
    return found


def _moved(loop: OpenLoop, heads: Collection[Op], alone: Collection[Op]) -> set[Op]:
    """The ops to be computed after the loop: `heads`, and what depends on them. Empty if one of
    them must stay."""
    found: set[Op] = set()
    for op in loop.body:
        reads = any(unhindered(operand) in found for operand in op.operands)
        if op in alone and (op in heads or reads):
            if not _is_liftable(loop, op):
                return set()
            found.add(op)
    return found


def _is_liftable(loop: OpenLoop, op: Op) -> bool:
    operands = map(unhindered, op.operands)
    return is_liftable(op, [loop.ahead.get(o.id, o) is not None for o in operands])


def _frontier(
    loop: OpenLoop, moved: Collection[Op], position: Op, stacks: Collection[Op]
) -> list[Op]:
    """What iterations must stack for the ops after the loop, in addition to their present
    stacks."""
    operands = (unhindered(operand) for op in loop.body if op in moved for operand in op.operands)
    left = [o for o in dict.fromkeys(operands) if o not in moved and o not in stacks]
    return [o for o in left if loop.ahead.get(o.id, o) not in (None, position)]


def _only_for(loop: OpenLoop, written: Collection[StackWrite]) -> set[Op]:
    """The ops of the body that only the written values need."""
    updates = {resolved(loop.results[w.index].operands[1]) for w in written}
    found: set[Op] = set()
    for op in reversed(loop.body.ops):
        users = loop.users.get(op)
        if users and op not in updates and all(u in found or u in updates for u in users):
            found.add(op)
    return found


def _mixers(loop: OpenLoop, alone: Collection[Op]) -> set[Op]:
    """The ops that alone mix rows along the longest otherwise independent axis of the loop."""
    if not alone or not all(map(_is_plain, inside(loop.op))):
        return set()
    start, results = loop.op.operands[0], list(loop.graph.users[loop.op.id])
    inputs = list(dict.fromkeys(start.operands))
    try:
        flat = flatten(region("loop", [start, loop.op, *results], inputs, results))
        axes = Axes(flat)
    except CodegenError:  # it stays with XLA
        return set()
    names = {op.name: op for op in alone}
    dead = {op.name for op in loop.body if op not in loop.users}
    longest, found = max((n for _, n in axes.surviving(flat)), default=1), set[Op]()
    for c in flat.loops[0].carried:
        value = flat.parameter(c.inside)
        for dim, extent in enumerate(value.dims):
            mixers = {op.name for op in axes.mixers(axes.find((value.id, dim)))} - dead
            if extent > longest and mixers and mixers <= names.keys():
                longest, found = extent, {names[name] for name in mixers}
    return found


def _is_plain(op: Op) -> bool:
    """Whether the op itself shows which elements depend on which."""
    if op.opcode in ("while", "conditional", "call"):
        return True  # its callees show it
    parted = op.opcode == "reduce" and op.shape.is_tuple
    return not parted and kind_of(op.opcode) not in (Kind.PARTITION, Kind.WINDOW, Kind.SORT)


def _pays(
    size: int, mixed: bool, products: Collection[Product], trips: int, device: Device
) -> bool:
    """Whether the new stacks of `size` bytes and the products after the loop take less time than
    they save: the products in the loop and, if it has `mixed` rows, the waits of blocks for each
    other."""
    after = device.launch_us * 1e-6 + moved_s(size, device)
    after += trips * sum(one.around_s(device) for one in products)
    inside = sum(one.inside_s(device) for one in products)
    return after < trips * (inside + device.grid_barrier_us * 1e-6 * mixed)
