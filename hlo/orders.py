"""What a sort sorts by: the key that its comparator compares, and in which direction.

    (a, b) -> canonical(a) < canonical(b)    ->    key 0, ascending, canonical

JAX compares floats by a canonical value, in which -0 is 0 and all NaNs are one, and by their total
order. XLA's own sorts compare the values as they are. XLA's GPU compiler writes the total order of
floats as that of integers, and lets the elements' numbers decide where keys are equal, before it
shows the program to passes:

    (a, b) -> select(integer(a) < integer(b) == integer(b) < integer(a), i < j, integer(a) < ...)
    integer(a)  ->  select(bits(a) < 0, 0x7fffffff ^ bits(a), bits(a))
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusionstitch.hlo.graph import FLOATS, Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Ops of a comparator that are looked at.
MOST_OPS = 64
#: What JAX's key of a float has one value for: -0 and 0, and every NaN.
CANONICAL = frozenset({"NaN", "zero"})


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
    if len(body) > MOST_OPS:
        return None
    root = _without_ties(sort, body.root)
    if root.opcode != "compare":
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
    key = _float_of(left)
    if key is left and left.dtype in FLOATS and not root.attrs["total_order"]:
        return None
    descending = (root.attrs["direction"] == "GT") != (numbers[0] % 2 == 1)
    return Order(numbers[0] // 2, first, _as_narrow(key), descending)


def _without_ties(sort: Op, root: Op) -> Op:
    """The comparison of keys in a comparator that lets the elements' numbers decide where keys are
    equal, as they do in ours; any other root as it is."""
    if root.opcode != "select":
        return root
    equal, tie, less = root.operands
    both = (equal, tie, less)
    if any(op.opcode != "compare" for op in both) or equal.attrs["direction"] != "EQ":
        return root
    if less not in equal.operands or tie.attrs["direction"] != "LT":
        return root
    more = equal.operands[equal.operands[0] is less]
    mirrored = more.opcode == "compare" and more.operands == less.operands[::-1]
    if not mirrored or more.attrs != less.attrs:
        return root
    if any(op.opcode != "parameter" for op in tie.operands):
        return root
    first, second = (op.attrs["index"] for op in tie.operands)
    numbers = sort.operands[first // 2]
    counted = numbers.opcode == "iota" and numbers.attrs["dimension"] == sort.attrs["dimension"]
    return less if counted and second == first + 1 and not first % 2 else root


def _float_of(key: Op) -> Op:
    """The float in whose total order an integer of its bits is; any other key as it is."""
    if key.opcode != "select":
        return key
    negative, flipped, bits = key.operands
    if bits.opcode != "bitcast-convert" or bits.operands[0].dtype not in FLOATS:
        return key
    if negative.opcode != "compare" or negative.attrs["direction"] != "LT":
        return key
    if negative.operands[0] is not bits or not is_all(negative.operands[1], 0):
        return key
    if flipped.opcode != "xor" or bits not in flipped.operands:
        return key
    mask = flipped.operands[flipped.operands[0] is bits]
    all_but_sign = (1 << 8 * bits.shape.bytes - 1) - 1
    return bits.operands[0] if is_all(mask, all_but_sign) else key


def _as_narrow(key: Op) -> Op:
    """The float that a key is a wider copy of, in the same order; any other key as it is."""
    if key.opcode == "convert" and key.dtype == "f32" and key.operands[0].dtype in ("f16", "bf16"):
        return key.operands[0]
    return key


def folded(order: Order) -> frozenset[str] | None:
    """Of `CANONICAL`, that for which the key has one value, where it is the element otherwise;
    None where it is another value of the element."""
    x, key = order.element, order.key
    seen = set[str]()
    while key is not x:
        if key.opcode != "select":
            return None
        condition, special, key = key.operands
        if condition.opcode != "compare":
            return None
        kind = condition.attrs["direction"]
        if kind == "NE" and condition.operands == (x, x) and is_all(special, math.nan):
            seen.add("NaN")
        elif kind == "EQ" and is_all(special, 0) and _compares_zero(condition, x):
            seen.add("zero")
        else:
            return None
    return frozenset(seen)


def is_all(op: Op, value: float) -> bool:
    """Whether `value` is what all elements of `op` are."""
    while op.opcode in ("broadcast", "reshape"):
        [op] = op.operands
    if op.opcode != "constant":
        return False
    found = op.attrs["value"]
    return bool(((found != found) if value != value else (found == value)).all())


def _compares_zero(condition: Op, x: Op) -> bool:
    return condition.operands[0] is x and is_all(condition.operands[1], 0)


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
