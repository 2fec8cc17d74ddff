"""What is known at a statement of a loop's iterations before the loop runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fusionstitch.codegen.index_maps.index import Index, constant, substituted, variable
from fusionstitch.codegen.ir.expressions import Expr, Infix, Integer, Name, Not, Number
from fusionstitch.codegen.ir.passes.sites import Unrolled
from fusionstitch.codegen.ir.statements import Let

#: No integer of a kernel's addresses is as large, as far as nothing else is known.
ANY = 1 << 62


@dataclass
class Frame:
    """What is known at a statement: integers by name (None: they change from iteration to
    iteration), the conditions and the loops around it. In an `unsure` one nothing is held."""

    known: dict[str, Index | None]
    conditions: tuple[Expr, ...] = ()
    loops: tuple[Unrolled, ...] = ()
    bounds: tuple[Let, ...] = ()
    unsure: bool = False

    def inner(self, condition: Expr | None = None, **changes: Any) -> Frame:
        """A frame inside of this one, where a condition holds."""
        frame = replace(self, known=dict(self.known), **changes)
        frame.where(condition)
        return frame

    def where(self, condition: Expr | None) -> None:
        """From here on a condition holds."""
        if condition is None:
            return
        found = self.resolved(condition)
        if found is None:
            self.unsure = True
        else:
            self.conditions += (found,)

    def resolved(self, expr: Expr) -> Expr | None:
        """A condition, evaluated before the loop; None for one that iterations change."""
        if isinstance(expr, Not):
            condition = self.resolved(expr.condition)
            return None if condition is None else Not(condition)
        if isinstance(expr, Infix):
            found = [self.resolved(operand) for operand in expr.operands]
            known = tuple(operand for operand in found if operand is not None)
            return Infix(expr.operator, known) if len(known) == len(found) else None
        index = self.index(expr)
        return None if index is None else Integer(index)

    def index(self, expr: Expr) -> Index | None:
        """An integer, by what is known before the loop."""
        if isinstance(expr, Number):
            return constant(int(expr.text)) if expr.text.isdigit() else None
        if isinstance(expr, Name):
            return self.known.get(expr.name, variable(expr.name, ANY))
        if isinstance(expr, Integer):
            return self._substituted(expr.index)
        if isinstance(expr, Infix) and len(expr.operands) == 2:
            left, right = map(self.index, expr.operands)
            return _combined(expr.operator, left, right)
        return None

    def _substituted(self, index: Index) -> Index | None:
        if index.fetched:
            return None
        values: dict[Any, Index] = {}
        for v in index.variables:
            if v.name not in self.known:
                continue
            found = self.known[v.name]
            if found is None:
                return None
            values[v] = found
        return substituted(index, values)


def _combined(operator: str, left: Index | None, right: Index | None) -> Index | None:
    if left is None or right is None:
        return None
    if operator in ("+", "-"):
        return left + right if operator == "+" else left - right
    if operator == "*" and not (left.terms and right.terms):
        return left * right.const if left.terms else right * left.const
    if operator in ("/", "%") and left.lo >= 0 and not right.terms and right.const > 0:
        return left // right.const if operator == "/" else left % right.const
    return None
