"""Pieces: outputs that are joined from several values, each stored by the loop that computes it.

A loop over the whole of a concatenate checks at each element which operand it comes from, and
neighboring threads compute the operands one after the other. A loop over the elements of the
operands computes all of them at once, and what they have in common once:

    out = stack([sin(a * x), cos(a * x)], -1)     one loop over x, two stores
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import Index, delinearize, linearize
from fusionstitch.codegen.index_maps.maps import Guard, Indices
from fusionstitch.codegen.rewrite.joined import concatenate_of, is_joined
from fusionstitch.hlo.graph import Graph, Op


@dataclass(frozen=True)
class Piece:
    """The elements of `output`, or of the concatenate that it is a reshape of, from `start` on
    along its dim `axis`: those of `operand`, which is the value that is stored, or a reshape of it.
    """

    output: Op
    operand: Op
    axis: int
    start: int

    def address(self, index: Indices, value: Op) -> tuple[Index, tuple[Guard, ...]]:
        """The address in the output of element `index` of the `value`; all of them have one."""
        if value is not self.operand:
            index = delinearize(linearize(index, value.dims), self.operand.dims)
        at = [i + self.start if d == self.axis else i for d, i in enumerate(index)]
        return linearize(at, concatenate_of(self.output).dims), ()


def joined(graph: Graph) -> frozenset[int]:
    """The ids of the outputs that may be stored piece by piece: nothing else reads them, and each
    piece is computed here."""
    return frozenset(
        op.id
        for op in dict.fromkeys(graph.root.operands)
        if is_joined(graph, op)
        and all(o.opcode != "parameter" for o in concatenate_of(op).operands)
    )


def find_pieces(
    graph: Graph, outputs: Container[int], stored: Container[int]
) -> dict[int, tuple[Piece, ...]]:
    """The pieces of those `outputs`, by the id of the value whose loop stores them: an operand, or
    what it is a reshape of where that is `stored`, as it is computed once anyway."""
    found: dict[int, tuple[Piece, ...]] = {}
    for output in dict.fromkeys(graph.root.operands):
        if output.id not in outputs:
            continue
        joins = concatenate_of(output)
        axis, start = joins.attrs["dimension"], 0
        for operand in joins.operands:
            value = operand
            while value.opcode == "reshape" and value.id not in stored:
                value = value.operands[0]
            value = value if value.id in stored else operand
            found[value.id] = (*found.get(value.id, ()), Piece(output, operand, axis, start))
            start += operand.dims[axis]
    return found
