"""What a sort sorts by: the key that its comparator compares, and in which direction.

    (a, b) -> canonical(a) < canonical(b)    ->    key 0, ascending, canonical

JAX compares floats by a canonical value, in which -0 is 0 and all NaNs are one, and by their total
order. XLA's own sorts compare the values as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.hlo.graph import FLOATS, Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Ops of a comparator that are looked at.
MOST_OPS = 64


@dataclass(frozen=True)
class Order:
    """Rows are sorted by `key`, a value of the scalar `element` of operand number `operand`; equal
    keys stay in the order they have."""

    operand: int
    element: Op
    key: Op
    descending: bool


def order_of(sort: Op) -> Order | None:
    """What a sort sorts by; None where its comparator is another than of one key in one direction,
    or leaves it open where NaN belongs."""
    [body] = sort.called
    root = body.root
    if root.opcode != "compare" or len(body) > MOST_OPS:
        return None
    left, right = root.operands
    first, second = _parameter(left), _parameter(right)
    if first is None or second is None or not _alike((left, right), (first, second)):
        return None
    numbers = first.attrs["index"], second.attrs["index"]
    if {number % 2 for number in numbers} != {0, 1} or numbers[0] // 2 != numbers[1] // 2:
        return None
    if root.attrs["direction"] not in ("LT", "GT"):
        return None
    if left.dtype in FLOATS and not root.attrs["total_order"]:
        return None
    descending = (root.attrs["direction"] == "GT") != (numbers[0] % 2 == 1)
    return Order(numbers[0] // 2, first, left, descending)


def is_canonical(order: Order) -> bool:
    """Whether the key is the element but for the sign of 0 and the bits of NaN."""
    x, key = order.element, order.key
    seen = set[str]()
    while key is not x:
        if key.opcode != "select":
            return False
        condition, special, key = key.operands
        if condition.opcode != "compare" or special.opcode != "constant":
            return False
        kind, value = condition.attrs["direction"], special.attrs["value"]
        if kind == "NE" and condition.operands == (x, x) and value != value:
            seen.add("NaN")
        elif kind == "EQ" and value == 0 and _compares_zero(condition, x):
            seen.add("zero")
        else:
            return False
    return seen == {"NaN", "zero"}


def _compares_zero(condition: Op, x: Op) -> bool:
    return condition.operands[0] is x and (
        condition.operands[1].opcode == "constant" and condition.operands[1].attrs["value"] == 0
    )


def _parameter(value: Op) -> Op | None:
    """The only parameter of a comparator that a value is made of."""
    found, stack, seen = set[Op](), [value], set[Op]()
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.opcode == "parameter":
            found.add(op)
        elif op.opcode != "constant" and kind_of(op.opcode) is not Kind.ELEMENTWISE:
            return None
        stack += op.operands
    return found.pop() if len(found) == 1 else None


def _alike(values: tuple[Op, Op], parameters: tuple[Op, Op]) -> bool:
    """Whether one value is of the first parameter what the other is of the second."""
    stack, seen = [values], {parameters}
    while stack:
        pair = stack.pop()
        if pair in seen:
            continue
        seen.add(pair)
        x, y = pair
        if x in parameters or y in parameters:
            return False
        if x.opcode != y.opcode or x.shape != y.shape or len(x.operands) != len(y.operands):
            return False
        if x.opcode == "constant":
            if x.attrs["value"].tobytes() != y.attrs["value"].tobytes():
                return False
        elif x.attrs != y.attrs:
            return False
        stack += zip(x.operands, y.operands, strict=True)
    return True
