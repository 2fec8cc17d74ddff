"""How well neighbouring threads share memory lines, for the two ways a dot can use them."""

from __future__ import annotations

import functools

from fusionstitch.codegen.index_maps.index import Index, Var, linearize
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.loops.stages import Stage

#: Lines of memory that 32 neighbouring threads touch: one, or one for every few threads.
TOGETHER, APART = 1, 8


def line_costs(stage: Stage) -> tuple[int, int]:
    """Memory lines per access summed over what the stage reads: with neighbouring threads along
    the last dim of the result, and along the last summed dim."""
    last = next((i for i in reversed(stage.dims) if i.terms), Index())
    inner = next((i for i in reversed(stage.inner) if i.terms), Index())
    read = (*stage.loads, *((producer.op, index) for producer, index in stage.reads))
    costs = [_costs(index, op.dims, last, inner) for op, index in read]
    return sum(along for along, _ in costs), sum(along for _, along in costs)


@functools.lru_cache(maxsize=1 << 12)
def _costs(index: Indices, dims: tuple[int, ...], last: Index, inner: Index) -> tuple[int, int]:
    """Lines per access of an array of `dims` at `index`, along `last` and along `inner`."""
    address = linearize(index, dims)
    return _cost(address, last), _cost(address, inner)


def _cost(address: Index, along: Index) -> int:
    """Lines that threads touch whose `along` differs by one."""
    for term, _ in along.terms:
        assert isinstance(term, Var)
        if term not in address.variables:
            return TOGETHER
        stride = dict(address.terms).get(term)
        return TOGETHER if stride == 1 else APART
    return TOGETHER
