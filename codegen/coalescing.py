"""How well neighbouring threads share memory lines, for the two ways a dot can use them."""

from __future__ import annotations

from codegen.index import Index, Var, linearize
from codegen.stages import Stage

#: Lines of memory that 32 neighbouring threads touch: one, or one for every few threads.
TOGETHER, APART = 1, 8


def line_costs(stage: Stage) -> tuple[int, int]:
    """Memory lines per access summed over what the stage reads: with neighbouring threads along
    the last dim of the result, and along the last summed dim."""
    last = next((i for i in reversed(stage.dims) if i.terms), Index())
    inner = next((i for i in reversed(stage.inner) if i.terms), Index())
    along_row = along_inner = 0
    for op, index in (*stage.loads, *((p.op, at) for p, at in stage.reads)):
        address = linearize(index, op.dims)
        along_row += _cost(address, last)
        along_inner += _cost(address, inner)
    return along_row, along_inner


def _cost(address: Index, along: Index) -> int:
    """Lines that threads touch whose `along` differs by one."""
    for term, _ in along.terms:
        assert isinstance(term, Var)
        if term not in address.variables:
            return TOGETHER
        stride = dict(address.terms).get(term)
        return TOGETHER if stride == 1 else APART
    return TOGETHER
