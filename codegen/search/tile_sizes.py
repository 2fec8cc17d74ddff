"""Sizes of tiles with a halo that are tried for a region."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from fusionstitch.codegen.rewrite.few_terms import with_few_terms
from fusionstitch.codegen.rewrite.stencil_axes import Axis, stencil_axes
from fusionstitch.codegen.rewrite.tile_needs import tiles
from fusionstitch.hlo.graph import Graph, Op

Sizes = tuple[int, ...]
#: Sizes by the number of axes, and by the most elements that an output has side by side after the
#: last of them. Tiles are large enough for their margin, and small enough for several to fit in
#: shared memory.
SIZES: Mapping[int, tuple[tuple[int, tuple[Sizes, ...]], ...]] = {
    1: ((1, ((1024,), (2048,))), (8, ((256,), (512,))), (32, ((64,), (128,)))),
    2: ((1, ((16, 64), (32, 32), (32, 64))), (8, ((24, 32), (16, 64))), (32, ((8, 16), (16, 16)))),
    3: ((1, ((8, 8, 32), (8, 8, 64))), (32, ((4, 4, 8),))),
}
#: Elements of a line of memory: more beside each other count as so many.
LINE = 32


def tile_sizes(graph: Graph) -> Iterator[Sizes]:
    """Sizes of tiles to be tried along the stencil axes of a region, if it has some."""
    graph = with_few_terms(graph)
    axes = stencil_axes(graph)
    if len(axes) not in SIZES:
        return
    beside = min(LINE, max(_beside(op, axes) for op in graph.root.operands))
    for sizes in next(tried for most, tried in SIZES[len(axes)] if beside <= most):
        even = tuple(_even(axis.extent, size) for axis, size in zip(axes, sizes, strict=True))
        if tiles(graph, axes, even) is not None:
            yield even


def _beside(op: Op, axes: Sequence[Axis]) -> int:
    """Elements of an output after the last of its stencil axes."""
    last = max((axis.dims[op] for axis in axes if op in axis), default=op.shape.rank)
    return math.prod(op.dims[last + 1 :])


def _even(extent: int, size: int) -> int:
    """`size`, or about that where the last tile would have less than half of it."""
    if extent % size == 0 or extent % size >= size / 2:
        return min(extent, size)
    return -(-extent // max(1, extent // size))
