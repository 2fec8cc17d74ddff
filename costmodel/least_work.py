"""The operations that ops cannot do without, as microseconds of each unit at its peak.

These are not the instructions of today's kernels, as `work.py` counts them: of each function the
cheapest form there is, of an array that was spread each value once, of an index nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.prices import APPROXIMATE
from fusionstitch.costmodel.work import computed_elements, dot_flops
from fusionstitch.hlo.attributes import REPLACE
from fusionstitch.hlo.convolutions import products
from fusionstitch.hlo.graph import FLOATS, FLOATS8, Graph, Op, of_graph
from fusionstitch.hlo.semantics import READ_WHOLES, Kind, kind_of
from fusionstitch.hlo.trips import carried, counted
from fusionstitch.hlo.tuples import resolved

#: The units that compute, by the names that reports show.
F32, F64, INTEGER, SPECIAL, TENSOR = "f32", "f64", "integers", "special functions", "tensor cores"
#: Microseconds by unit.
Units = dict[str, float]

#: What an operand or a result can be for nothing: a modifier of an instruction, or what is read.
FREE = frozenset({"copy", "convert", "bitcast-convert", "negate", "abs", "reduce-precision"})
#: The types that tensor cores multiply, as `tensor_shares` of a profile names them.
TENSOR_TYPES: Mapping[str, str] = {
    **{name: name for name in ("f16", "bf16", "f32")},
    **dict.fromkeys(FLOATS8, "f8"),
    **dict.fromkeys(("s8", "u8", "pred"), "s8"),
}
#: Products in TF32 that make one of f32 with all its bits.
TF32_PRODUCTS = 3
#: Operations that an element of a running or sliding reduction takes along one dim at most:
#: prefixes and suffixes of blocks, and what joins them.
SLIDING = 3
#: What the parts of complex numbers are.
PARTS = {"c64": "f32", "c128": "f64"}
#: Ops that run graphs.
RUN = frozenset({"while", "conditional", "call"})


def least_units(
    graph: Graph,
    ops: Sequence[Op],
    outputs: Sequence[Op],
    device: Device,
    known: Collection[Op] = (),
) -> Units:
    """What `ops` of a graph (topological) take of each unit, where only their `outputs` are needed
    and those that are `known` need not be computed. Loops count as often as they iterate, once
    where the data decides; of branches the cheaper one."""
    # what libraries read they read whole
    whole = [*outputs, *(op for op in ops if kind_of(op.opcode) in READ_WHOLES)]
    counts = computed_elements(ops, whole)
    total: Units = {}
    differing = differing_dims(graph)
    for op in ops:
        if op in known:
            continue
        if op.opcode in RUN:
            _add(total, _of_graphs(op, device))
        elif rule := RULES.get(kind_of(op.opcode)):
            distinct = math.prod(op.dims[d] for d in differing[op])
            _add(total, rule(op, min(counts[op], distinct), device))
    return total


def _add(total: Units, more: Units, times: float = 1.0) -> None:
    for unit, us in more.items():
        total[unit] = total.get(unit, 0.0) + us * times


@of_graph
def differing_dims(graph: Graph) -> Mapping[Op, frozenset[int]]:
    """By op the dims along which its elements may differ."""
    found: dict[Op, frozenset[int]] = {}
    for op in graph:
        if op.opcode == "broadcast":
            inside = found[op.operands[0]]
            found[op] = frozenset(n for d, n in enumerate(op.attrs["dimensions"]) if d in inside)
        elif op.opcode == "transpose":
            inside = found[op.operands[0]]
            found[op] = frozenset(d for d, n in enumerate(op.attrs["dimensions"]) if n in inside)
        elif op.opcode == "iota":
            found[op] = frozenset({op.attrs["dimension"]})
        elif kind_of(op.opcode) is Kind.ELEMENTWISE:
            found[op] = frozenset().union(*(found[o] for o in op.operands if o.dims == op.dims))
        else:
            found[op] = frozenset(range(op.shape.rank))
    return found


def _elementwise(op: Op, count: int, device: Device) -> Units:
    if op.opcode in FREE:
        return {}
    dtype = op.operands[0].dtype if op.operands else op.dtype
    dtype = PARTS.get(dtype, dtype)
    short = dtype in FLOATS - {"f64"} and op.opcode in device.instructions.fewer_bits
    one = device.instructions.price(op.opcode, APPROXIMATE if short else dtype)
    rates = (
        (F32, one.flops, device.fp32_flops),
        (F64, one.flops64, device.fp64_flops),
        (SPECIAL, one.special, device.special_per_s),
        (INTEGER, one.int_ops, device.int32_ops),
    )
    return {unit: n * count / rate * 1e6 for unit, n, rate in rates if n}


def _joined(dtype: str, times: int, device: Device) -> Units:
    """So many values are added, or the like."""
    if dtype == "f64":
        return {F64: times / device.fp64_flops * 1e6}
    if dtype in FLOATS or dtype in FLOATS8:
        return {F32: times / device.fp32_flops * 1e6}
    return {
        INTEGER: device.instructions.price("add", dtype).int_ops * times / device.int32_ops * 1e6
    }


def _reduction(op: Op, count: int, device: Device) -> Units:
    source, results = op.operands[0], max(1, (op.shape.elements or (op.shape,))[0].size)
    share = 1.0 if op.shape.is_tuple else count / results
    return _joined(source.dtype, int(max(0, source.shape.size - results) * share), device)


def _window(op: Op, count: int, device: Device) -> Units:
    result = (op.shape.elements or (op.shape,))[0]
    sizes = op.attrs["size"] if op.opcode == "reduce-window" else (2,)
    steps = sum(min(n - 1, SLIDING) for n in sizes)
    return _joined(result.dtype, result.size * steps, device)


def _update(op: Op, count: int, device: Device) -> Units:
    if op.opcode != "scatter" or op.shape.is_tuple or op.attrs["reducer"] == REPLACE:
        return {}
    return _joined(op.dtype, op.operands[-1].shape.size, device)


def _dot(op: Op, count: int, device: Device) -> Units:
    return _multiplied(op, dot_flops(op) * count / max(1, op.shape.size), device)


def _convolution(op: Op, count: int, device: Device) -> Units:
    return _multiplied(op, 2 * products(op) * count / max(1, op.shape.size), device)


def _multiplied(op: Op, flops: float, device: Device) -> Units:
    """On tensor cores where they multiply such operands, else a multiply-add each."""
    dtype = op.operands[0].dtype
    shares = device.tensor_shares
    rate = shares[TENSOR_TYPES[dtype]] * device.tensor_bf16_flops if dtype in TENSOR_TYPES else 0.0
    if dtype == "f64":
        return {F64: flops / device.fp64_flops / _f64_products(device) * 1e6}
    if dtype != "f16" and not device.float_tensors:
        rate = 0.0
    if dtype == "f32" and op.attrs.get("precision") == "highest":
        rate = max(rate / TF32_PRODUCTS, device.fp32_flops)
    if rate:
        return {TENSOR: flops / max(rate, device.fp32_flops) * 1e6}
    if dtype in FLOATS or dtype in FLOATS8:
        return {F32: flops / device.fp32_flops * 1e6}
    return {INTEGER: flops / 2 / device.int32_ops * 1e6}


def _f64_products(device: Device) -> float:
    return device.tensor_shares["f64"] if device.float_tensors else 1.0


#: Operations of an op of which so many elements are computed, by kind; other kinds have none.
RULES: Mapping[Kind, Callable[[Op, int, Device], Units]] = {
    Kind.ELEMENTWISE: _elementwise,
    Kind.REDUCTION: _reduction,
    Kind.WINDOW: _window,
    Kind.UPDATE: _update,
    Kind.DOT: _dot,
    Kind.CONVOLUTION: _convolution,
}


# ---- graphs that ops run ------------------------------------------------------------------------


def iterations(loop: Op) -> int | None:
    """How often a loop iterates; None where the data decides."""
    found = counted(loop)
    return None if found is None else found.trips


def live(graph: Graph) -> list[Op]:
    """What a graph's result depends on, in order; of a graph that ops run or of a program."""
    needed = graph.reach[graph.root.id]
    return [op for op in graph if needed >> op.id & 1]


def results(graph: Graph) -> tuple[Op, ...]:
    """The values that a graph gives."""
    given = graph.root.operands if graph.root.opcode == "tuple" else (graph.root,)
    return tuple(map(resolved, given))


def invariant_elements(loop: Op) -> frozenset[int]:
    """The elements of what a loop carries that no iteration changes."""
    given = results(loop.called[1])
    return frozenset(i for i, op in enumerate(given) if carried(op) == i)


def _of_graphs(op: Op, device: Device) -> Units:
    if op.opcode == "while":
        condition, body = op.called
        trips = 1 if (found := iterations(op)) is None else found
        total: Units = {}
        for graph in (body, condition):
            given = graph, live(graph), results(graph)
            still = unchanging(graph, invariant_elements(op))
            _add(total, least_units(*given, device, still), trips - 1)
            _add(total, least_units(*given, device))
        return total
    found_units = [least_units(g, live(g), results(g), device) for g in op.called]
    if not found_units:
        return {}
    units = dict.fromkeys(unit for one in found_units for unit in one)
    return {unit: min(one.get(unit, 0.0) for one in found_units) for unit in units}


def unchanging(graph: Graph, invariant: Collection[int]) -> frozenset[Op]:
    """The ops of a loop's body or condition that are the same in every iteration: they need be
    computed once, before it."""
    still: set[Op] = set()
    for op in graph:
        element = carried(op)
        if element is not None:
            same = element in invariant
        else:
            same = op.opcode != "parameter" and all(o in still for o in op.operands)
        if same:
            still.add(op)
    return frozenset(still)
