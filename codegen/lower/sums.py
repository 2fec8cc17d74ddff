"""What sums start from, and what joins two parts of one."""

from __future__ import annotations

from fusionstitch.codegen.ir.expressions import Number
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.rewrite.monoids import joins
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.hlo.graph import Op


def zero_of(op: Op) -> Number:
    """Nothing, of the type that an op is computed in."""
    return Number(literal(0, op.dtype))


def start_of(stage: Stage) -> Number:
    """What a sum starts from."""
    if stage.op.opcode == "dot":
        return zero_of(stage.op)
    return Number(joins(stage.op)[0])


def functor_of(stage: Stage) -> str:
    """The function object that joins two partial results."""
    if stage.op.opcode == "dot":
        return "FsAdd"
    return joins(stage.op)[1]
