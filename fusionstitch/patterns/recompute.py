"""Recomputes elements of long rows, so that chains of dots need not pass them through memory.

    s = q k^T    p = f(s)    o = p v    ...    dv = p^T do    ds = g(p, do v^T)    dq = ds k

Several dots sum along the elements p, which are too many to store. Ops that sum along the same axis
and can be one kernel are a family. The first family that needs an op between the dots keeps it;
every other one gets a copy. Copies have no instruction in the module: a kernel that reads one
computes it. If no kernel does, XLA uses the original.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from fusionstitch.codegen.dots.chains import Chain, find_chains
from fusionstitch.codegen.loops.stages import closure, new_stage
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.semantics import Kind, kind_of

#: Kinds of ops followed from a sum back to the elements that it sums.
_TRACED = (Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.SOURCE)
#: The dot that produces elements, and its dim that is summed over.
Axis = tuple[int, int]


@dataclass
class _Family:
    """Dots and reductions that sum along one axis, and the ops in between that they need."""

    axis: Axis
    sums: list[Op] = field(default_factory=list)
    needs: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Recomputed:
    """`graph` with the copies; `families` are the sums of each family with all the ops they need,
    as bitsets."""

    graph: Graph
    families: tuple[int, ...]


def recomputed(graph: Graph, device: Device) -> Recomputed | None:
    """`graph` with a copy of the ops between dots for each family, if these are large. None if
    there is at most one family."""
    chains = [c for c in find_chains(graph, device) if _is_large(graph, c, device)]
    stops = frozenset(op.id for op in graph if kind_of(op.opcode) not in _TRACED)
    families = _families(graph, chains, stops)
    if len(families) < 2:
        return None
    inside = frozenset[int]().union(*(c.products | c.between for c in chains))
    inside |= _views(graph, inside, [chain.dot for chain in chains])
    inside -= frozenset(ids(free_bits(graph)))
    _add_reductions(graph, chains, families, stops)
    for family in families:
        for op in family.sums:
            _need(family, op, inside)
    return _copied(graph, families)


def _is_large(graph: Graph, chain: Chain, device: Device) -> bool:
    """Whether moving the elements takes longer than a launch; smaller ones may be stored."""
    return any(graph.ops[i].shape.bytes >= device.large_tensor_bytes for i in chain.products)


def _views(graph: Graph, inside: frozenset[int], dots: list[Op]) -> set[int]:
    """The ops that only move elements between what `inside` and `dots` read, and the ops that
    compute it."""
    found: set[int] = set()
    todo = [o for op in (*(graph.ops[i] for i in inside), *dots) for o in op.operands]
    while todo:
        op = todo.pop()
        if kind_of(op.opcode) is Kind.MOVEMENT and op.id not in inside | found:
            found.add(op.id)
            todo += op.operands
    return found


def _families(graph: Graph, chains: list[Chain], stops: frozenset[int]) -> list[_Family]:
    families: list[_Family] = []
    for chain in chains:
        axis = _axis(chain.dot, chain.products, stops)
        if axis is None:
            continue
        for family in families:
            apart = any(graph.reach[chain.dot.id] >> other.id & 1 for other in family.sums)
            if family.axis == axis and not apart:
                family.sums.append(chain.dot)
                break
        else:
            families.append(_Family(axis, [chain.dot]))
    return families


def _axis(op: Op, products: frozenset[int], stops: frozenset[int]) -> Axis | None:
    """The axis of the elements of `products` that a dot or reduction sums along."""
    stage = new_stage(op, 0)
    try:
        leaves, _ = closure(op, stage.dims, stage.inner, stops)
    except CodegenError:  # an op that only XLA can compute
        return None
    summed = {v for i in stage.inner for v in i.variables}
    for leaf, index in sorted(leaves, key=lambda found: found[0].id):
        if leaf.id in products:
            dims = [d for d, i in enumerate(index) if summed & i.variables]
            return (leaf.id, dims[0]) if len(dims) == 1 else None
    return None


def _add_reductions(
    graph: Graph, chains: list[Chain], families: list[_Family], stops: frozenset[int]
) -> None:
    """Adds every reduction of elements to the first family along its axis that depends on it."""
    products = frozenset[int]().union(*(c.products for c in chains))
    for op in graph:
        if kind_of(op.opcode) is not Kind.REDUCTION:
            continue
        axis = _axis(op, products, stops)
        for family in families:
            if family.axis == axis and any(graph.reach[s.id] >> op.id & 1 for s in family.sums):
                family.sums.append(op)
                break


def _need(family: _Family, op: Op, inside: frozenset[int]) -> None:
    todo = [o for o in op.operands if o.id in inside]
    while todo:
        op = todo.pop()
        if op.id not in family.needs:
            family.needs.add(op.id)
            todo += [o for o in op.operands if o.id in inside]


def _copied(graph: Graph, families: list[_Family]) -> Recomputed:
    owner = {i: family for family in reversed(families) for i in family.needs}
    home = {op.id: family for family in families for op in family.sums}
    copies: dict[tuple[int, int], Op] = {}
    ops: list[Op] = []

    def version(op: Op, family: _Family | None) -> tuple[int, int]:
        """Which copy of `op` a family reads."""
        own = owner.get(op.id)
        if family is not None and own is not None and own is not family and op.id in family.needs:
            return op.id, 1 + families.index(family)
        return op.id, 0

    for each in graph:
        stack: list[tuple[Op, _Family | None]] = [(each, None)]
        while stack:
            op, family = stack[-1]
            key = version(op, family)
            reader = family if key[1] else owner.get(op.id) or home.get(op.id)
            read = [version(o, reader) for o in op.operands]
            waiting = [o for o, of in zip(op.operands, read, strict=True) if of not in copies]
            if key in copies or not waiting:
                stack.pop()
            if key in copies:
                continue
            if waiting:
                stack += [(o, reader) for o in reversed(waiting)]
                continue
            copy = dataclasses.replace(op, operands=tuple(copies[of] for of in read))
            if key[1]:
                copy.origin = None
            copies[key] = copy
            ops.append(copy)
    made = Graph(graph.name, ops, copies[graph.root.id, 0], graph.proto_id, graph.aliases)
    bits = []
    for number, family in enumerate(families, 1):
        members = [copies[op.id, 0] for op in family.sums]
        members += [copies.get((i, number)) or copies[i, 0] for i in family.needs]
        bits.append(sum(1 << op.id for op in members))
    return Recomputed(made, tuple(bits))
