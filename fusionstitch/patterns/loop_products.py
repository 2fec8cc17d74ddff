"""Products in a loop that do not depend on its state, as one product before the loop.

    for t: h = f(dot(x[t], w), h)    ->    p = dot(x, w)
                                           for t: h = f(p[t], h)

A recurrent network's input projection is such a product. Inside the loop it is a sequence of many
small products, and a kernel of the loop must also hold its weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import FLOATS, Module, Op
from fusionstitch.hlo.hoisting import CONTRACT, Hoisted, LoopProducts
from fusionstitch.hlo.tuples import unhindered
from fusionstitch.patterns.loop_costs import SPARE_BYTES, moved_s, product
from fusionstitch.patterns.open_loops import OpenLoop, open_loops

#: Types in which a sum may be computed in two parts.
_EXACT = frozenset({"f32", "f64"})


def loop_products(module: Module, device: Device) -> list[LoopProducts]:
    """The products of floats that are worth moving."""
    found = (_products(loop, device) for loop in open_loops(module))
    return [products for products in found if products is not None]


def _products(loop: OpenLoop, device: Device) -> LoopProducts | None:
    room, products = SPARE_BYTES, dict[Op, Hoisted]()
    for one in _hoisted(loop):
        size = loop.trips * one.dot.shape.bytes
        if size <= room and _pays(one, loop.trips, device):
            room -= size
            products[one.dot] = one
    needed = tuple(products[dot] for dot in _needed(loop, products))
    if not needed:
        return None
    parts = [op for one in needed for op in (one.part, one.weights)]
    return LoopProducts(loop.graph, loop.op, loop.trips, needed, loop.cone(parts))


def _hoisted(loop: OpenLoop) -> Iterator[Hoisted]:
    """The products of values that vary by iteration with values that do not."""
    for dot in sorted(loop.users, key=lambda op: op.id):
        if dot.opcode == "dot" and dot.dtype in FLOATS and dot.attrs["lhs_contract"]:
            one = _of(loop, dot, 0) or _of(loop, dot, 1)
            if one is not None and not dot.attrs["lhs_batch"]:
                yield one


def _of(loop: OpenLoop, dot: Op, side: int) -> Hoisted | None:
    part, weights = (unhindered(dot.operands[s]) for s in (side, 1 - side))
    if loop.ahead.get(weights.id, weights) is not None:
        return None
    if (position := loop.ahead.get(part.id)) is not None:
        return Hoisted(dot, side, position)
    # a sum in two parts is rounded twice
    if part.opcode == "concatenate" and dot.dtype in _EXACT:
        for number, one in enumerate(part.operands):
            position = loop.ahead.get(unhindered(one).id)
            if position is not None and dot.attrs[CONTRACT[side]] == (part.attrs["dimension"],):
                return Hoisted(dot, side, position, number)
    return None


def _needed(loop: OpenLoop, products: Mapping[Op, Hoisted]) -> list[Op]:
    """The products that the loop reads directly, and not only through other products."""
    wanted = [op for op in loop.users if op.id not in loop.ahead]
    found = {op for op in wanted if op in products}
    seen = set(wanted)
    while wanted:
        for operand in map(unhindered, wanted.pop().operands):
            if operand in products:
                found.add(operand)
            elif operand not in seen:
                seen.add(operand)
                wanted.append(operand)
    return [dot for dot in products if dot in found]


def _pays(one: Hoisted, trips: int, device: Device) -> bool:
    """Whether the loop gains more than the product before it costs, whose result is written and
    then read by the loop."""
    made = product(one.dot, one.part, one.contracted, one.weights)
    moved = moved_s(trips * one.dot.shape.bytes, device)
    before = device.launch_us * 1e-6 + moved + trips * made.around_s(device)
    return trips * made.inside_s(device) > before
