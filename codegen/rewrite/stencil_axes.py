"""Stencil axes: dims along which values are read beside each other.

Dims that follow each other from op to op (`shifts.py`) are one axis, whatever elements are shifted
by. Of interest are those along which something is shifted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.rewrite.shifts import moves, rolled
from fusionstitch.hlo.graph import Graph, Op

#: Elements of an axis from which on it is cut into tiles.
LEAST_EXTENT = 9

_Node = tuple[Op, int]


@dataclass(frozen=True)
class Axis:
    """A stencil axis: the dim of each op that has it. Its `extent` is the longest of an output, or
    of what is summed up. On a `periodic` one the first element follows the last."""

    dims: Mapping[Op, int]
    extent: int
    periodic: bool

    def __contains__(self, op: Op) -> bool:
        return op in self.dims


class _Classes:
    """Dims of ops that were found to be the same axis (union-find)."""

    def __init__(self) -> None:
        self.links: dict[_Node, _Node] = {}

    def first(self, node: _Node) -> _Node:
        """The node that stands for all of its class."""
        links = self.links
        while (link := links.setdefault(node, node)) != node:
            links[node] = links.setdefault(link, link)
            node = link
        return node

    def members(self) -> tuple[dict[_Node, dict[Op, int]], set[_Node]]:
        """The dims of each class by op; and the classes that some op has twice, as x + x.T does."""
        found: dict[_Node, dict[Op, int]] = {}
        twice: set[_Node] = set()
        for op, dim in list(self.links):
            own = self.first((op, dim))
            dims = found.setdefault(own, {})
            if op in dims:
                twice.add(own)
            dims[op] = dim
        return found, twice


def stencil_axes(graph: Graph) -> list[Axis]:
    """The axes of the outputs of a region along which something is shifted, the major ones of the
    largest output first. No value is rolled along an axis that ends elsewhere."""
    classes = _Classes()
    nodes = [(op, dim) for op in graph.ops[:-1] for dim in range(op.shape.rank)]
    rolls = {node for node in nodes if rolled(*node)}
    # the two slices that a rolled value is joined from
    parts = {
        (part, dim)
        for op, dim in rolls
        for part in op.operands
        if all((user, dim) in rolls for user in graph.users[part.id])
    }
    ended: set[_Node] = set()
    for node in nodes:
        classes.first(node)
        for move in moves(*node) or ():
            if move.dim is not None:
                classes.links[classes.first((move.value, move.dim))] = classes.first(node)
                if move.shift and node not in rolls and node not in parts:
                    ended.add(node)
    members, twice = classes.members()
    periodic = set(map(classes.first, rolls))
    candidates = (periodic ^ set(map(classes.first, ended))) - twice
    summed = [op.operands[0] for op in graph.ops[:-1] if op.opcode == "reduce"]
    whole = [*_largest_first(graph.root.operands), *_largest_first(summed)]
    found: dict[_Node, Axis] = {}
    for op in whole:
        for dim in range(op.shape.rank):
            own = classes.first((op, dim))
            if own in candidates and own not in found:
                dims = members[own]
                extent = max(one.dims[dims[one]] for one in whole if one in dims)
                found[own] = Axis(dims, extent, own in periodic)
    return [axis for axis in found.values() if axis.extent >= LEAST_EXTENT]


def _largest_first(ops: Sequence[Op]) -> list[Op]:
    return sorted(ops, key=lambda op: -op.shape.size)
