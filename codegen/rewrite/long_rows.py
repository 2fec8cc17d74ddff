"""Rows that no block has as a whole: sorted in parts that are merged, or whose first ones compete.

    sort-rows(x[R, N])          ->    sort-rows of parts; then of two, four, ... of these the
                                      smaller elements before the larger, each part sorted again
    sort-rows(x[R, N], first=8) ->    sort-rows(the first 8 of each part, first=8)

It is one bitonic network. Its steps between elements of a part are taken by the block that has the
part (`merged`), the others by elements, where the parts are read.
"""

from __future__ import annotations

from fusionstitch.codegen.annotations import annotated
from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.rewrite.selected_rows import LEAST_OF_EACH
from fusionstitch.hlo.graph import ITEM_BYTES, Graph, Op

#: Elements of a row that a block has, at most; of one whose first compete.
MOST_OF_BLOCK, MOST_COMPETING = 16_384, 4_096
#: Elements of a part, which are a block's; of one whose first compete, which are a warp's.
PART, SELECTED_PART = 8_192, 512
#: Steps between parts that are taken where an element is read: each doubles what that reads.
MOST_AT_ONCE = 2


def divide_rows(graph: Graph) -> Graph:
    """A region in which a block has each of the rows that are sorted."""
    while any(_is_long(op) for op in graph):  # those that compete may be as many
        graph = rewrite(graph, lambda op: _divided(op) if _is_long(op) else None)
    return graph


def _is_long(op: Op) -> bool:
    most = MOST_COMPETING if "first" in op.attrs else MOST_OF_BLOCK
    return op.opcode == "sort-rows" and op.operands[0].dims[1] > most


def _divided(op: Op) -> list[Op]:
    chain, [rows] = Chain(op), op.operands
    count, elements = rows.dims
    first = op.attrs.get("first")
    if first is None:
        parts = 1 << (-(-elements // PART) - 1).bit_length()
        _merged(chain, _in_parts(chain, rows, parts, PART), parts)
        rows = chain.make("reshape", op.dtype, (count, parts * PART), chain.ops[-1])
        chain.part(rows, 1, 0, elements)
        return chain.done()
    size = max(SELECTED_PART, LEAST_OF_EACH << (first - 1).bit_length())
    parts = -(-elements // size)
    rows = _in_parts(chain, rows, parts, size)
    rows = chain.make("sort-rows", op.dtype, (count * parts, first), rows, first=first)
    rows = chain.make("reshape", op.dtype, (count, parts * first), rows)
    chain.make("sort-rows", op.dtype, (count, first), rows, first=first)
    return chain.done()


def _in_parts(chain: Chain, rows: Op, parts: int, size: int) -> Op:
    """Rows as so many parts of a size; what is missing comes after all else."""
    count, elements = rows.dims
    last = chain.scalar((1 << 8 * ITEM_BYTES[rows.dtype]) - 1, rows.dtype)
    rows = chain.extended(rows, 1, 0, parts * size - elements, last)
    return chain.make("reshape", rows.dtype, (count * parts, size), rows)


def _merged(chain: Chain, rows: Op, parts: int) -> None:
    """Parts, sorted, and so many of them at a time merged."""
    dims = rows.dims
    rows = chain.like(rows, "sort-rows", rows)
    size = 1
    while size < parts:
        steps = [size >> n for n in range(size.bit_length())]
        at_once = -(-len(steps) // -(-len(steps) // MOST_AT_ONCE))
        for number, apart in enumerate(steps):
            if number and number % at_once == 0:
                chain.ops[-1] = rows = annotated(rows, once=True)
            rows = _compared(chain, rows, apart, mirrored=apart == size)
        rows = chain.make("reshape", rows.dtype, dims, rows)
        rows = chain.like(rows, "sort-rows", rows, merged=True)
        size *= 2


def _compared(chain: Chain, rows: Op, apart: int, mirrored: bool = False) -> Op:
    """The smaller of two elements that are so many parts apart in the place of the first, the
    larger in that of the second; `mirrored`, the second is as far from the end."""
    pairs = (rows.shape.size // (2 * apart * PART), 2, apart * PART)
    rows = chain.make("reshape", rows.dtype, pairs, rows)
    low, high = (chain.part(rows, 1, i, i + 1) for i in (0, 1))
    if mirrored:
        high = chain.like(high, "reverse", high, dimensions=(2,))
    both = chain.like(low, "minimum", low, high), chain.like(low, "maximum", low, high)
    return chain.make("concatenate", rows.dtype, pairs, *both, dimension=1)
