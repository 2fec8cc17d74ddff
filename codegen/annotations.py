"""What code generation knows of values beside the ops that compute them: annotations.

HLO's attributes say what an op computes, and regions have no others. What passes find out or decide
of a value goes with its op from pass to pass as one typed value that does not change: who gives an
op another one makes a new op. Where an op is replaced its annotations go with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fusionstitch.codegen.index_maps.index import Index
from fusionstitch.hlo.graph import Op


@dataclass(frozen=True)
class Annotations:
    """What is known of one value.

    Attributes:
        rounded: whether it is rounded to its type at once, whatever the numerics, since something
            is decided by it (`rewrite/roundings.py`)
        alike: whether all loops that compute it must get the same bits, since it is compared with
            an extremum of such values (`rewrite/comparisons.py`)
        matches: whether it sums up those of a few updates that match an element: every element is
            compared with all of them (`rewrite/scatter_sums.py`)
        once: whether it is computed once, whatever that takes: much depends on each of its elements
            (`rewrite/scan_pieces.py`)
        item: whether it joins components that have most of their computation in common, so that one
            thread has all of them (`rewrite/sorts.py`)
        tile: whether it is computed in tiles, with what they share with their neighbours
            (`rewrite/halo_tiles.py`)
        tf32: whether a dot rounds its f32 operands to TF32 on tensor cores, as XLA's libraries do
            (`rewrite/rounded_products.py`)
        counts: of a parameter without memory: the integer that it stands for, such as the number of
            an iteration (`while_loops/trips.py`) or the first row of a block (`dealt.py` there)
        part_of: of partial sums that have a part of the device to themselves: the number of the sum
            that was split into them, in the region before that (`schedule/split.py`)
    """

    rounded: bool = False
    alike: bool = False
    matches: bool = False
    once: bool = False
    item: bool = False
    tile: bool = False
    tf32: bool = False
    counts: Index | None = None
    part_of: int | None = None


NOTHING = Annotations()


@dataclass(eq=False, slots=True)
class _Annotated(Op):
    """An op of a region of whose value more is known."""

    annotations: Annotations = NOTHING


def annotations_of(op: Op) -> Annotations:
    """What is known of the value of an op."""
    return op.annotations if isinstance(op, _Annotated) else NOTHING


def alike_but_for_parts(one: Op, other: Op) -> bool:
    """Whether the same is known of two values, partial sums of one sum or of several."""
    first, second = (replace(annotations_of(op), part_of=None) for op in (one, other))
    return first == second


def annotated(op: Op, **known: Any) -> Op:
    """`op` with these annotations, and those that it has of other names."""
    return _with(op, replace(annotations_of(op), **known))


def like(made: Op, op: Op) -> Op:
    """What is `made` of an op, with the annotations of that op."""
    return _with(made, op.annotations) if isinstance(op, _Annotated) else made


def _with(op: Op, known: Annotations) -> Op:
    if known == NOTHING:
        return op
    fields = op.opcode, op.shape, op.operands, op.attrs, op.name, op.origin, op.called, op.source
    return _Annotated(*fields, annotations=known)
