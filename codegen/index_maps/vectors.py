"""Vector accesses: which loops may move 16 bytes at a time.

A loop over `V` consecutive elements per thread becomes an unrolled loop over `v`. An access whose
address is a multiple of V plus v then becomes one vector load before, or one vector store after it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import Index, Var

#: Bytes one thread moves with one instruction.
ACCESS_BYTES = 16


@dataclass(frozen=True)
class Vector:
    """`width` consecutive elements, the variable that runs over them, the depth of the block
    around that loop."""

    width: int
    lane: Var
    depth: int

    def base(self, address: Index) -> Index | None:
        """The address of element 0, if `address` runs through one aligned vector."""
        return aligned_base(address, self.lane, self.width)


def aligned_base(address: Index, lane: Var, width: int) -> Index | None:
    """`address` - lane, if that is a multiple of `width` and free of `lane`."""
    rest = []
    found = False
    for term, coefficient in address.terms:
        if term == lane and coefficient == 1:
            found = True
        elif coefficient % width or lane in Index(((term, 1),)).variables:
            return None
        else:
            rest.append((term, coefficient))
    if not found or address.const % width:
        return None
    return Index(tuple(rest), address.const)
