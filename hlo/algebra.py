"""What rules that change values are made of: rows of a table, and what they ask of ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusionstitch.hlo.graph import Op, Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES, only_element
from fusionstitch.hlo.rewrite import Make, Rule, splat

#: The numbers of a version of jaxlib, whose XLA it is.
Version = tuple[int, ...]


@dataclass(frozen=True)
class ValueRule:
    """One row of a table.

    Attributes:
        name: the rule's
        says: `before -> after`
        opcode: of the ops that it applies to, whose first operand is of one of the `FLOATS`
        apply: what it makes of an op
        before: the first version of jaxlib whose XLA does not have it, None if each has
        alone: the operands of the op, by number, that no other op may read
    """

    name: str
    says: str
    opcode: str
    apply: Rule
    before: Version | None = None
    alone: tuple[int, ...] = ()


class Table:
    """Rows in the order of their declaration."""

    def __init__(self) -> None:
        self.rows: list[ValueRule] = []

    def rule(
        self, *opcodes: str, before: Version | None = None, alone: tuple[int, ...] = ()
    ) -> Callable[[Rule], Rule]:
        """Declares a rule for some opcodes; its docstring reads `before -> after`."""

        def declare(function: Rule) -> Rule:
            says = " ".join((function.__doc__ or "").split())
            name = getattr(function, "__name__", "")
            self.rows += [ValueRule(name, says, o, function, before, alone) for o in opcodes]
            return function

        return declare

    def of(self, version: Version) -> dict[str, tuple[ValueRule, ...]]:
        """The rules that XLA of a jaxlib has, by opcode."""
        found: dict[str, tuple[ValueRule, ...]] = {}
        for row in self.rows:
            if row.before is None or version < row.before:
                found[row.opcode] = (*found.get(row.opcode, ()), row)
        return found


def uniform(op: Op) -> Any | None:
    """The one value that all elements of a constant expression have, else None."""
    if op.opcode == "constant":
        return only_element(op.attrs["value"])
    return splat(op)


def scalar(value: Any, dtype: str) -> Make:
    """A constant of one element."""
    number = np.array(value, NUMPY_DTYPES[dtype])
    number.flags.writeable = False
    return Make("constant", (), {"value": number}, Shape(dtype))


def spread(one: Make, shape: Shape) -> Make:
    """An array whose elements are all a scalar."""
    return Make("broadcast", (one,), {"dimensions": ()}, shape) if shape.dims else one


def full(value: Any, shape: Shape) -> Make:
    """A constant whose elements are all `value`."""
    return spread(scalar(value, shape.dtype), shape)


def is_constant(op: Op) -> bool:
    """Whether XLA sees a constant, of whatever elements."""
    while op.opcode == "reshape":
        op = op.operands[0]
    return op.opcode in ("constant", "opaque-constant")


def is_nonnegative(op: Op) -> bool:
    """Whether XLA takes values for 0 or more; it does not think of NaN."""
    x = op.operands
    match op.opcode:
        case "multiply":
            return x[0] is x[1]
        case "exponential" | "iota" | "abs":
            return True
        case "broadcast" | "power":
            return is_nonnegative(x[0])
        case "constant":
            value = uniform(op)
            return bool(value is not None and not np.signbit(value) and not np.isnan(value))
        case "minimum":
            return is_nonnegative(x[0]) and is_nonnegative(x[1])
        case "maximum":
            return is_nonnegative(x[0]) or is_nonnegative(x[1])
        case "select":
            return is_nonnegative(x[1]) and is_nonnegative(x[2])
    return False
