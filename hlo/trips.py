"""How often a `while` runs, where the program says so: HLO gives no trip counts."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.hlo.graph import Op


@dataclass(frozen=True)
class Counted:
    """A loop that counts element `index` of what it carries: `start`, `start + step`, ..., in all
    `trips` times."""

    index: int
    start: int
    step: int
    trips: int


def counted(loop: Op) -> Counted | None:
    """What counts the iterations of a `while` up to a constant in constant steps, else None."""
    condition, body = loop.called
    root = condition.root
    if root.opcode != "compare" or root.attrs["direction"] != "LT":
        return None
    index, limit = carried(root.operands[0]), _scalar(root.operands[1])
    if index is None or limit is None or body.root.opcode != "tuple":
        return None
    step = _step(body.root.operands[index], index)
    init = loop.operands[0]
    start = _scalar(init.operands[index]) if init.opcode == "tuple" else None
    if start is None or step is None or step <= 0:
        return None
    return Counted(index, start, step, max(0, -(-(limit - start) // step)))


def carried(op: Op) -> int | None:
    """The index i when `op` is element i of its graph's parameter."""
    if op.opcode == "get-tuple-element" and op.operands[0].opcode == "parameter":
        index: int = op.attrs["index"]
        return index
    return None


def _step(op: Op, index: int) -> int | None:
    if op.opcode != "add":
        return None
    for counter, step in (op.operands, op.operands[::-1]):
        if carried(counter) == index:
            return _scalar(step)
    return None


def _scalar(op: Op) -> int | None:
    while op.opcode in ("copy", "convert", "reshape", "broadcast") and op.shape.size == 1:
        op = op.operands[0]
    if op.opcode != "constant" or op.shape.size != 1 or op.dtype[0] not in "su":
        return None
    return int(op.attrs["value"].reshape(()))
