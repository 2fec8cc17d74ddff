"""How large floats can be: bounds on their magnitude that hold whatever the parameters are.

A softmax, exp(x - max) / sum(exp(x - max)), has powers of at most 1 over a sum of at least 1.
What is known of nothing is 0 and infinity. NaN is no number here, and has no size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fusionstitch.hlo.graph import FLOATS, Op
from fusionstitch.hlo.rewrite import splat

#: Ops that are looked through from a value to what bounds it.
MOST_STEPS = 8
#: The value by which masks replace numbers that do not count is at most this.
MASKED = -1e4
#: Functions whose results are at most 1.
_AT_MOST_ONE = frozenset({"logistic", "tanh", "erf", "sine", "cosine", "sign"})
_NEVER_NEGATIVE = frozenset({"exponential", "logistic", "sqrt", "rsqrt", "abs"})
#: Ops that give elements of their operand, or the same with another sign or type.
_MOVES = frozenset({"broadcast", "reshape", "transpose", "slice"})
_SAME_SIZE = _MOVES | {"negate", "abs", "convert"}


def most(op: Op, steps: int = MOST_STEPS) -> float:
    """A number that no element of `op` exceeds in magnitude."""
    constant = splat(op)
    if constant is not None:
        return abs(float(constant))
    if not steps or op.dtype not in FLOATS:
        return 1.0 if op.dtype == "pred" else math.inf
    if op.opcode in _AT_MOST_ONE or _is_power_of_at_most_zero(op):
        return 1.0
    sizes = [most(x, steps - 1) for x in _parts(op)]
    if op.opcode in _SAME_SIZE or op.opcode == "select":
        return max(sizes)
    if op.opcode == "multiply":
        return _product(*sizes)
    if op.opcode == "divide":
        return _quotient(sizes[0], least(op.operands[1], steps - 1))
    if op.opcode == "rsqrt":
        return _quotient(1.0, math.sqrt(least(op.operands[0], steps - 1)))
    return math.inf


def least(op: Op, steps: int = MOST_STEPS) -> float:
    """A number that every element of `op` reaches in magnitude."""
    constant = splat(op)
    if constant is not None:
        return abs(float(constant))
    if not steps or op.dtype not in FLOATS:
        return 0.0
    if op.attrs.get("reducer") == "add":
        return 1.0 if _reaches_one(op.operands[0], op) else 0.0
    sizes = [least(x, steps - 1) for x in _parts(op)]
    if op.opcode in _SAME_SIZE:
        return sizes[0]
    if op.opcode == "select":
        return min(sizes)
    if op.opcode == "multiply":
        return sizes[0] * sizes[1]
    if op.opcode == "add" and all(never_negative(x) for x in op.operands):
        return max(*sizes, float(_reach_one(*op.operands)))
    return 0.0


def never_negative(op: Op, steps: int = MOST_STEPS) -> bool:
    """Whether no element of `op` is below 0."""
    constant = splat(op)
    if constant is not None:
        return bool(constant >= 0)
    if op.opcode in _NEVER_NEGATIVE or not steps:
        return op.opcode in _NEVER_NEGATIVE
    if op.opcode == "multiply" and op.operands[0] is op.operands[1]:
        return True
    passed = op.opcode in _MOVES or op.opcode in ("convert", "multiply", "divide", "add", "select")
    if passed or op.attrs.get("reducer") == "add":
        return all(never_negative(x, steps - 1) for x in _parts(op))
    return False


def _parts(op: Op) -> tuple[Op, ...]:
    return op.operands[1:] if op.opcode == "select" else op.operands


def _product(x: float, y: float) -> float:
    return 0.0 if not x or not y else x * y


def _quotient(x: float, y: float) -> float:
    if not y:
        return math.inf if x else 0.0
    return x / y


# ---- differences from a maximum ------------------------------------------------------------------


def _is_power_of_at_most_zero(op: Op) -> bool:
    if op.opcode != "exponential":
        return False
    return any(_tops(op.operands[0])) or _greater(op.operands[0]) is not None


def _greater(exponent: Op) -> Op | None:
    """The maximum of x and another that is subtracted from x, if that is what an exponent is."""
    if exponent.opcode != "subtract":
        return None
    x, top = exponent.operands
    return top if top.opcode == "maximum" and x in top.operands else None


def _reach_one(left: Op, right: Op) -> bool:
    """Whether a sum of powers and another power reach 1 together: of differences from the maximum
    of all of them, as where a softmax has an element beside those of its row."""
    left, right = (_unmoved(x, frozenset({"reshape"})) for x in (left, right))
    for total, power in ((left, right), (right, left)):
        if total.attrs.get("reducer") != "add" or power.opcode != "exponential":
            continue
        top = _greater(power.operands[0])
        if top is not None:
            x = power.operands[0].operands[0]
            rows = [_unmoved(one) for one in top.operands if one is not x]
            if len(rows) == 1 and _reaches_one(total.operands[0], total, (rows[0], top)):
                return True
    return False


def _unmoved(value: Op, moves: frozenset[str] = _MOVES) -> Op:
    while value.opcode in moves:
        value = value.operands[0]
    return value


def _reaches_one(value: Op, total: Op, joined: tuple[Op, Op] | None = None) -> bool:
    """Whether a sum is of powers of differences from the maximum of what it sums along: one of
    them is 1, and none is negative. `joined`: such a maximum, and what may be subtracted
    instead."""
    power, masks = _unmasked(value, 0)
    if power.opcode != "exponential" or not never_negative(value):
        return False
    summed = set(total.attrs["dimensions"])
    return any(
        (not top.is_joined or joined == (top.maximum, _unmoved(power.operands[0].operands[-1])))
        and set(top.maximum.attrs["dimensions"]) <= summed
        and masks <= _unmasked(top.maximum.operands[0], MASKED)[1]
        for top in _tops(power.operands[0])
    )


@dataclass(frozen=True)
class _Top:
    """A maximum of values that is subtracted from them; `is_joined`: or something greater is."""

    maximum: Op
    is_joined: bool = False


def _tops(exponent: Op) -> Iterator[_Top]:
    """The maxima in (x - max(x)) * c, for a c above 0: those below which x is known to be."""
    while exponent.opcode in ("convert", "multiply"):
        scale = 1.0 if exponent.opcode == "convert" else splat(exponent.operands[1])
        if scale is None or not scale > 0:
            return
        exponent = exponent.operands[0]
    if exponent.opcode != "subtract":
        return
    x, subtracted = exponent.operands
    core, masks = _unmasked(x, MASKED)
    for top in _maxima(subtracted):
        source, without = _unmasked(top.maximum.operands[0], MASKED)
        if source is core and without <= masks:
            yield top


def _maxima(value: Op) -> Iterator[_Top]:
    """The maxima of rows that `value` is nowhere below."""
    todo = [_Top(value)]
    for _ in range(MOST_STEPS):
        if not todo:
            return
        top = todo.pop()
        op, operands = top.maximum, top.maximum.operands
        if op.attrs.get("reducer") == "maximum":
            yield top
        elif op.opcode in _MOVES or op.opcode == "convert" or _is_guard(op):
            todo.append(_Top(operands[op.opcode == "select"], top.is_joined))
        elif op.opcode == "maximum":
            for one, other in (operands, operands[::-1]):
                todo.append(_Top(one, top.is_joined or splat(other) != -math.inf))


def _is_guard(op: Op) -> bool:
    """Whether an op is a maximum where that is a number, and a constant elsewhere."""
    if op.opcode != "select" or splat(op.operands[2]) is None:
        return False
    where, top, _ = op.operands
    return where.opcode == "is-finite" and where.operands[0] is top


def _unmasked(value: Op, largest: float) -> tuple[Op, set[Op]]:
    """What a value is where no mask puts a constant of at most `largest`; and those masks."""
    masks: set[Op] = set()
    while value.opcode in ("convert", "select"):
        if value.opcode == "select":
            constant = splat(value.operands[2])
            if constant is None or not constant <= largest:
                break
            masks.add(value.operands[0])
        value = value.operands[value.opcode == "select"]
    return value, masks
