"""Products with a small matrix, as sums of a few terms.

    dot(reshape(x[h, w, 3]), m[3, 3])    ->    reduce(x[h, w, 1, 3] * m[1, 1, 3, 3])

For such a product XLA makes one dim of all but the last. Here the dims stay apart, so that elements
can be followed along each (`stencil_axes.py`).
"""

from __future__ import annotations

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.extents import INLINE_REDUCE
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.hlo.graph import Graph, Op

#: Elements of the matrix, at most.
MOST_FACTORS = 64


def is_of_few_terms(dot: Op) -> bool:
    """Whether a dot multiplies rows of a few elements each with a small matrix."""
    attrs = dot.attrs
    if attrs["lhs_batch"] or len(attrs["lhs_contract"]) != 1:
        return False
    x, matrix = dot.operands
    [summed] = attrs["lhs_contract"]
    few = x.dims[summed] <= INLINE_REDUCE and matrix.shape.size <= MOST_FACTORS
    return few and summed == x.shape.rank - 1


def with_few_terms(graph: Graph) -> Graph:
    """The region with such products replaced by sums; the same if it has none."""
    return rewrite(rewrite(graph, _summed), _reshaped_once)


def _summed(op: Op) -> list[Op] | None:
    if op.opcode != "dot" or not is_of_few_terms(op):
        return None
    x, matrix = op.operands
    terms, [of] = x.dims[-1], op.attrs["rhs_contract"]
    if x.opcode == "reshape" and x.operands[0].dims[-1:] == (terms,):
        [x] = x.operands
    chain, leading = Chain(op), x.shape.rank - 1
    results = tuple(n for d, n in enumerate(matrix.dims) if d != of)
    dims = (*x.dims[:-1], *results, terms)
    rest = iter(range(leading, leading + len(results)))
    order = tuple(len(dims) - 1 if d == of else next(rest) for d in range(matrix.shape.rank))
    factors = []
    for value, dimensions in ((x, (*range(leading), len(dims) - 1)), (matrix, order)):
        factor = chain.make("broadcast", value.dtype, dims, value, dimensions=dimensions)
        if value.dtype != op.dtype:
            factor = chain.make("convert", op.dtype, dims, factor)
        factors.append(factor)
    product, zero = chain.make("multiply", op.dtype, dims, *factors), chain.scalar(0, op.dtype)
    last = (len(dims) - 1,)
    total = chain.make("reduce", op.dtype, dims[:-1], product, zero, dimensions=last, reducer="add")
    chain.make("reshape", op.dtype, op.dims, total)
    return chain.done()


def _reshaped_once(op: Op) -> list[Op] | None:
    """A reshape of a reshape as one."""
    if op.opcode != "reshape" or op.operands[0].opcode != "reshape":
        return None
    chain = Chain(op)
    chain.make("reshape", op.dtype, op.dims, op.operands[0].operands[0])
    return chain.done()
