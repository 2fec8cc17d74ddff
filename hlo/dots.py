"""Which dims of a dot's result belong to which of its operands."""

from __future__ import annotations

from fusionstitch.hlo.graph import Op

SIDES = ("lhs", "rhs")


def result_dims(dot: Op, side: int) -> dict[int, int]:
    """The result's dim of each dim of the left (0) or right (1) operand that is not summed over, in
    the order of the operand's."""
    batch = dot.attrs[f"{SIDES[side]}_batch"]
    gone = {*batch, *dot.attrs[f"{SIDES[side]}_contract"]}
    free = [d for d in range(dot.operands[side].shape.rank) if d not in gone]
    first = len(batch) if side == 0 else dot.shape.rank - len(free)
    found = {d: n for n, d in enumerate(batch)} | {d: n for n, d in enumerate(free, first)}
    return dict(sorted(found.items()))
