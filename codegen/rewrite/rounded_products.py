"""Products of f32 whose operands are rounded to TF32, as XLA's libraries round them.

By default XLA multiplies matrices of f32 with 11 bits of their operands on GPUs from sm_80 on, and
a kernel that keeps more takes three products for one. What keeps all bits under XLA does so here:
products of higher precision, those that it computes in loops of its own, and those with a vector.
So does a product by which something is decided, such as the sign of a gradient or an integer: there
a rounding makes more than a small difference.
"""

from __future__ import annotations

from fusionstitch.codegen.annotations import annotated
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.rewrite.roundings import decisions, extrema, made_of
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.work import dot_extents
from fusionstitch.hlo.graph import Graph, Op


def round_products(graph: Graph, device: Device, decided: bool = False) -> Graph:
    """The region with each dot annotated as `tf32` that XLA computes from rounded operands on
    `device`, if nothing is decided by it here, or if those that something is `decided` by are
    rounded, too."""
    if not device.rounds_floats:
        return graph
    rounded = {op for op in graph if op.opcode == "dot" and _rounds(op, device)}
    if not rounded:
        return graph
    if not decided:
        # whether a number is finite does not depend on how it is rounded
        steps = decisions(op for op in graph if op.opcode != "is-finite")
        rounded -= made_of([*steps, *extrema(graph)])
    found = {op.id for op in rounded}
    return rewrite(graph, lambda op: [annotated(op, tf32=True)] if op.id in found else None)


def _rounds(dot: Op, device: Device) -> bool:
    """Whether XLA gives a dot to a library, which rounds its operands."""
    if dot.attrs.get("precision") != "default" or dot.attrs.get("algorithm", "unset") != "unset":
        return False
    if dot.dtype != "f32" or all(o.dtype != "f32" for o in dot.operands):
        return False
    _, rows, columns, depth = dot_extents(dot)
    return min(rows, columns) > 1 and (rows + columns) * depth >= device.library.loop_elements
