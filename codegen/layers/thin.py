"""Products of many rows with small matrices: what layers are made of."""

from __future__ import annotations

from fusionstitch.codegen.layers.values import MOST_COLUMNS, MOST_DEPTH
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.work import dot_extents, dot_flops
from fusionstitch.hlo.graph import Graph, Op

#: Rows for each multiprocessor from which on its warps have several lots of 16 each.
LEAST_ROWS = 64


def rows_of_layer(dot: Op, device: Device) -> int:
    """How many rows a dot multiplies with a small matrix, or sums up to one; 0 where there are few,
    or is no small matrix."""
    if dot.opcode != "dot" or dot.attrs["lhs_batch"]:
        return 0
    _, left, right, depth = dot_extents(dot)
    columns, rows = sorted((left, right))
    if depth > rows:  # a sum over all rows
        rows, fits = depth, max(left, right) <= MOST_COLUMNS
    else:
        fits = columns <= MOST_COLUMNS and depth <= MOST_DEPTH
    return rows if fits and rows >= LEAST_ROWS * device.sm_count else 0


def are_layers(graph: Graph, device: Device) -> bool:
    """Whether a region has such a product that is large enough for a library."""
    return any(
        rows_of_layer(op, device) and dot_flops(op) >= device.large_gemm_flops for op in graph
    )
