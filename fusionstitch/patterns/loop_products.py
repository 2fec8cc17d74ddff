"""Products in a loop that do not wait for its state, as one product before the loop.

    for t: h = f(dot(x[t], w), h)    ->    p = dot(x, w)
                                           for t: h = f(p[t], h)

What a recurrent network makes of its inputs is such a product. Inside the loop it is a small one
many times, one behind the other, and a kernel of the loop has to hold its weights, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import FLOATS, Module, Op
from fusionstitch.hlo.hoisting import Hoisted, LoopProducts
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.patterns.open_loops import OpenLoop, open_loops

#: Ops that give a stack's parts what they give the stack.
_ALONG = frozenset({"convert", "copy"})
#: Kinds of ops that are as good around the loop.
_PURE = frozenset({Kind.SOURCE, Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.REDUCTION, Kind.DOT})
#: How many times the bytes that a loop streams anyway its products may take: a recurrent cell makes
#: up to four gates of an input. And the bytes that any GPU has to spare.
_GATES, _SPARE = 4, 1 << 30
#: Types in which a sum may be added up in two parts.
_EXACT = frozenset({"f32", "f64"})


def loop_products(module: Module, device: Device) -> list[LoopProducts]:
    """The products of floats that are worth it, of loops whose number of iterations is known."""
    found = []
    for loop in open_loops(module):
        if loop.count is not None and loop.count.trips > 1:
            products = tuple(_products(loop, loop.count.trips, device))
            if products:
                found.append(LoopProducts(loop.graph, loop.op, loop.count.trips, products))
    return found


def _products(loop: OpenLoop, trips: int, device: Device) -> Iterator[Hoisted]:
    room = max(min(_GATES * loop.streamed(trips), _SPARE), device.l2_bytes)
    for op in loop.body:
        if op.opcode != "dot" or op.dtype not in FLOATS or not loop.body.users[op.id]:
            continue
        one = _hoisted(loop, op, 0) or _hoisted(loop, op, 1)
        if one is not None and trips * op.shape.bytes <= room and _pays(one, trips, device):
            room -= trips * op.shape.bytes
            yield one


def _hoisted(loop: OpenLoop, dot: Op, side: int) -> Hoisted | None:
    """The product as one of a stack's part, its operand `side`, and of what stays the same."""
    batched = dot.attrs["lhs_batch"] or not dot.attrs["lhs_contract"]
    if batched or not _stays(loop, dot.operands[1 - side]):
        return None
    operand = dot.operands[side]
    if (found := _part(loop, operand)) is not None:
        return Hoisted(dot, side, *found)
    contracted = dot.attrs[("lhs_contract", "rhs_contract")[side]]
    # the sum of two is rounded twice
    if operand.opcode == "concatenate" and contracted == (operand.attrs["dimension"],):
        for number, one in enumerate(operand.operands) if dot.dtype in _EXACT else ():
            if (found := _part(loop, one)) is not None:
                return Hoisted(dot, side, *found, joined=number)
    return None


def _part(loop: OpenLoop, op: Op) -> tuple[tuple[Op, ...], int, Op] | None:
    """The ops that make `op` of a stack's part, the stack and the part's place."""
    path = list[Op]()
    while op.opcode in _ALONG:
        path.append(op)
        op = op.operands[0]
    read = loop.read(op)
    return None if read is None else (tuple(reversed(path)), read.index, read.place)


def _stays(loop: OpenLoop, op: Op) -> bool:
    """Whether an op is the same in each iteration, and made of what is there before the loop."""
    if loop.is_handed_on(op):
        return True
    return kind_of(op.opcode) in _PURE and all(_stays(loop, operand) for operand in op.operands)


def _pays(one: Hoisted, trips: int, device: Device) -> bool:
    """Whether the loop is to gain more than the product before it takes. In the loop, each block
    multiplies its rows, for which it reads the weights. Before it, the product is written, to be
    read by the loop, and multiplied as fast."""
    contracted = math.prod(one.part.dims[d] for d in one.contracted)
    rows = max(1, one.part.shape.size // contracted)
    blocks = min(device.sm_count, rows)
    flops = 2 * contracted * one.dot.shape.size
    share = contracted * one.dot.shape.size / (rows * one.weights.shape.size)
    inside = max(
        flops / device.fp32_flops * device.sm_count / blocks,
        blocks * share * one.weights.shape.bytes / device.l2_bytes_per_s,
    )
    moved = 2 * trips * one.dot.shape.bytes / device.dram_bytes_per_s
    before = device.launch_us * 1e-6 + moved + trips * flops / device.fp32_flops
    return trips * inside > before
