"""Chains of two dots, whose values in between may be too many to hold: streamed, block by block.

    s[R, C] = a[R, k] b[C, k]    p = f(s), elementwise ops and reductions along C    p[R, C] v[C, n]

A block of threads has rows of `a` and of the result in registers. It walks along C. The next few
columns of `b` and `v` go to shared memory, their part of s is computed, and the results of its
reductions and of the second dot are added up (codegen/dots/online.py). Nothing of the size of s is
ever stored; every op in between is computed once per element, and what the operands are computed
from once per block of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.loops.stream import Stream
from fusionstitch.codegen.rewrite.extents import reduced_size
from fusionstitch.codegen.text.types import C_TYPES
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Columns from which on a row is streamed: of shorter ones, half of a step on tensor cores and more
#: would be empty.
LEAST_COLUMNS = 16
#: Elements summed into one of s, and results per row, that fit into registers.
MOST_DEPTH = MOST_RESULTS = 128
#: Rows per multiprocessor from which on a warp for every 16 of them takes less than teams of lanes.
MANY_ROWS = 4


@dataclass(frozen=True)
class Chain:
    """A dot that sums along elements given by others: the ids of those, and of the ops between."""

    dot: Op
    products: frozenset[int]
    between: frozenset[int]


def find_chains(graph: Graph, device: Device) -> list[Chain]:
    """The dots of `graph` that sum along elements which dots give, and can be streamed: by tensor
    cores."""
    found: list[Chain] = []
    if not device.float_tensors:
        return found
    given: set[int] = set()
    for op in graph.ops[:-1]:
        if not _sums(op) or op.id in given:
            continue
        for operand in op.operands:
            products, passed = _made_of(operand)
            enough = operand.shape.size >= MANY_ROWS * device.sm_count * reduced_size(op)
            if products and enough:
                found.append(Chain(op, frozenset(products), frozenset(passed)))
                given |= products
                break
    return found


def find_streams(graph: Graph, device: Device) -> Stream:
    """All chains of `graph` as one."""
    chains = find_chains(graph, device)
    none = frozenset[int]()
    return Stream(
        none.union(*(chain.products for chain in chains)),
        frozenset(chain.dot.id for chain in chains),
        none.union(*(chain.between for chain in chains)),
    )


def _sums(op: Op) -> bool:
    return _multiplies_floats(op) and reduced_size(op) >= LEAST_COLUMNS


def _multiplies_floats(op: Op) -> bool:
    if op.opcode != "dot" or op.attrs.get("precision") == "highest":
        return False
    kinds = [C_TYPES.get(x.dtype) for x in (op, *op.operands)]  # complex ones have none
    return all(kind is not None and kind.compute == "float" for kind in kinds)


def _made_of(operand: Op) -> tuple[set[int], set[int]]:
    """The dots of which an operand of a dot holds the elements, and the ops on the way."""
    products: set[int] = set()
    passed: set[int] = set()
    todo = [operand]
    while todo:
        op = todo.pop()
        if op.id in passed or op.id in products:
            continue
        kind = kind_of(op.opcode)
        if kind is Kind.DOT:
            if op.shape.size != operand.shape.size:
                continue
            if not _multiplies_floats(op) or reduced_size(op) > MOST_DEPTH:
                return set(), set()
            products.add(op.id)
        elif kind in (Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.REDUCTION):
            if kind is not Kind.REDUCTION:
                passed.add(op.id)
            todo.extend(op.operands)
    return products, passed
