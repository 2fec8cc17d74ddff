"""For how many neighbouring threads of a block, and blocks of the grid, a value is the same.

That decides who may meet at a barrier: all whom it is for must agree in the conditions around it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Apply,
    Element,
    Expr,
    Infix,
    Integer,
    Name,
    Named,
    Number,
)
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    Barrier,
    Call,
    Fill,
    For,
    Group,
    Leave,
    Let,
    Statement,
    While,
)
from fusionstitch.codegen.ir.walk import parts
from fusionstitch.costmodel.devices import WARP


@dataclass(frozen=True)
class Alike:
    """A value is the same for each `threads` neighbours in a block and each `blocks` in the grid,
    counted from the first; 0: for all. It `counts` threads or blocks where it is their number,
    which begins again after `period` of them (0: never)."""

    threads: int = 0
    blocks: int = 0
    counts: str = ""
    period: int = 0

    def __and__(self, other: Alike) -> Alike:
        if other is SAME and not self.counts:
            return self
        return Alike(math.gcd(self.threads, other.threads), math.gcd(self.blocks, other.blocks))

    def holds(self, needed: Alike) -> bool:
        """Whether all that `needed` counts agree."""
        return agrees(self.threads, needed.threads) and agrees(self.blocks, needed.blocks)


SAME = Alike()
OWN = Alike(1, 1)
NUMBERS = {THREAD.name: Alike(1, 0, "threads"), BLOCK.name: Alike(0, 1, "blocks")}


def needed(barrier: Barrier, cluster: int) -> Alike:
    """Who must agree in the conditions around a barrier; `cluster` blocks are one."""
    return together(barrier.scope, barrier.threads, cluster)


def called_by(call: Call | Apply, cluster: int) -> Alike:
    """Who must agree in the conditions around the call of an intrinsic."""
    scope = call.intrinsic.together
    team = call.intrinsic.team(call.template) if scope is Scope.TEAM else 0
    return together(scope, team, cluster)


def together(scope: Scope, team: int, cluster: int) -> Alike:
    """Those who do something together, in teams of so many threads, clusters of so many blocks."""
    if scope is Scope.TEAM:
        return Alike(team, 1)
    return Alike(0, cluster) if scope is Scope.CLUSTER else _TOGETHER[scope]


_TOGETHER = {
    Scope.THREAD: OWN,
    Scope.WARP: Alike(WARP, 1),
    Scope.BLOCK: Alike(0, 1),
    Scope.GRID: SAME,
}


class Agreement:
    """What is known of the variables of a kernel, or of one of its functions, while its statements
    are walked. A value is examined only when a condition needs it: few do."""

    def __init__(self, known: dict[str, Alike] | None = None):
        self._known = {**NUMBERS, **(known or {})}
        #: by variable, what it was given so far, and for whom the conditions around that were alike
        self._given: dict[str, list[tuple[Any, Alike]]] = {}

    def iterations(self, one: For | While) -> Alike:
        """For whom a loop takes as many iterations; its variable is then the same for them as
        well."""
        if isinstance(one, While):
            return self._left(one.body)
        found = self.alike(one.start) & self.alike(one.stop)
        self._known[one.variable] = found
        return found & self._left(one.body) if _may_end(one.body) else found

    def _left(self, body: Iterable[Statement]) -> Alike:
        """For whom a loop ends together, by what its statements define."""
        found = SAME
        for one in body:
            if isinstance(one, Leave):
                found &= self.alike(one.condition)
            elif isinstance(one, Group):
                found &= self._left(one.body)
            else:
                self.note(one, SAME)
        return found

    def note(self, one: Statement, here: Alike) -> None:
        """Takes in what a statement without others inside of it defines, under conditions that
        are alike for `here`."""
        if isinstance(one, Let):
            self._given[one.name] = [(one.value, SAME)]
            self._known.pop(one.name, None)
        elif isinstance(one, Assign) and isinstance(one.target, Name):
            self._given.setdefault(one.target.name, []).append((one.value, here))
            self._known.pop(one.target.name, None)
        elif isinstance(one, Array):
            self._known[one.name] = OWN
        elif isinstance(one, Fill):
            self._known[one.array] = OWN
        elif isinstance(one, Call):
            for argument in one.intrinsic.changes.of(one.arguments):
                if isinstance(argument, Name):
                    self._known[argument.name] = OWN

    def alike(self, expr: Any) -> Alike:
        """For how many threads and blocks the value of an expression is the same."""
        if isinstance(expr, Name):
            return self._variable(expr.name)
        if isinstance(expr, Number):
            return SAME
        if isinstance(expr, Integer):
            return self._all_of(self._variable(v.name) for v in expr.index.variables)
        if isinstance(expr, Named):
            return self._all_of(map(self._variable, expr.parts))
        if isinstance(expr, Infix) and len(expr.operands) == 2:
            found = self._counted(expr.operator, *expr.operands)
            if found is not None:
                return found
        if isinstance(expr, Element):
            return OWN
        if isinstance(expr, Apply):
            own = expr.intrinsic.alike_over(expr.template)
            if own is not None:
                return Alike(own, 1)
        return self._all_of(map(self.alike, parts(expr)))

    def _variable(self, name: str) -> Alike:
        found = self._known.get(name)
        if found is not None:
            return found
        self._known[name] = SAME  # while it is computed: a value may be made of the one before
        first, *others = self._given.get(name) or [(Number("0"), SAME)]
        found = self.alike(first[0])  # a number of threads stays one
        if others or first[1] != SAME:
            found = self._all_of(self.alike(value) & here for value, here in (first, *others))
        self._known[name] = found
        return found

    def _counted(self, operator: str, left: Expr, right: Expr) -> Alike | None:
        """What is made of a number of threads or blocks and a constant."""
        own = self.alike(left)
        if not own.counts or not (isinstance(right, Number) and right.text.isdigit()):
            return None
        by, period = int(right.text), own.period
        if by == 0 or (period and period % by):
            return None
        if operator == "%":
            return Alike(own.threads, own.blocks, own.counts, by)
        if operator in ("/", "<"):
            return Alike(by, own.blocks) if own.counts == "threads" else Alike(own.threads, by)
        return None

    def _all_of(self, found: Iterable[Alike]) -> Alike:
        joined = SAME
        for one in found:
            joined &= one
        return joined


def _may_end(body: Iterable[Statement]) -> bool:
    """Whether a loop may end in its body."""
    return any(
        isinstance(one, Leave) or (isinstance(one, Group) and _may_end(one.body)) for one in body
    )


def agrees(own: int, needed: int) -> bool:
    """Whether what is the same for each `own` neighbours is so for each `needed` (0: for all)."""
    return own == 0 if needed == 0 else own % needed == 0
