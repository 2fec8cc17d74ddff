"""Where threads meet, all that the meeting is for take part.

Of every integer and condition it is known for how many neighbouring threads of a block, and blocks
of the grid, it is the same. A barrier of a team needs that of all conditions around it for the
team's threads, one of the block for all of them, one of a cluster or the grid for their blocks too;
so do functions of the headers that threads call together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    Barrier,
    Call,
    Fill,
    For,
    Function,
    Group,
    If,
    Let,
    Scope,
    Skip,
    Statement,
)
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.walk import every, parts

WARP = 32


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
        return Alike(math.gcd(self.threads, other.threads), math.gcd(self.blocks, other.blocks))


SAME = Alike()
_OWN = Alike(1, 1)
_NUMBERS = {THREAD.name: Alike(1, 0, "threads"), BLOCK.name: Alike(0, 1, "blocks")}


def check(kernel: Lowered) -> None:
    """Raises Fault for a meeting that some of those who are meant do not come to."""
    functions = {function.name: function for function in kernel.functions}
    _Walk(kernel, functions, dict(_NUMBERS)).body(kernel.body, SAME)


@dataclass(eq=False)
class _Walk:
    kernel: Lowered
    functions: Mapping[str, Function]
    known: dict[str, Alike]
    #: what the calls of each function that were walked through agreed in
    called: set[tuple[str, Alike, tuple[Alike, ...]]] = field(default_factory=set)

    def body(self, body: Iterable[Statement], here: Alike) -> None:
        for one in body:
            if isinstance(one, Skip):  # the rest of the iteration is for the others
                self.meet(one.condition, here, one)
                here &= self.alike(one.condition)
            else:
                self.statement(one, here)

    def statement(self, one: Statement, here: Alike) -> None:
        if isinstance(one, Group):
            self.body(one.body, here)
        elif isinstance(one, If):
            if one.given:
                self.statement(one.given, here)
            here &= self.alike(one.condition)
            self.body(one.body, here)
            for other in one.others:
                here &= self.alike(other.condition) if other.condition else SAME
                self.body(other.body, here)
        elif isinstance(one, For):
            turns = self.alike(one.start) & self.alike(one.stop)
            self.known[one.variable] = turns
            here &= turns
            self.body(one.body, here)
        elif isinstance(one, Barrier):
            self.come(_needed(one, self.kernel), here, one)
        else:
            self.simple(one, here)

    def simple(self, one: Statement, here: Alike) -> None:
        for part in parts(one):
            self.meet(part, here, one)
        if isinstance(one, Let):
            self.known[one.name] = self.alike(one.value)
        elif isinstance(one, Assign) and isinstance(one.target, Name):
            known = self.known.get(one.target.name, SAME)
            self.known[one.target.name] = known & self.alike(one.value) & here
        elif isinstance(one, (Array, Fill)):
            self.known[one.name if isinstance(one, Array) else one.array] = _OWN
        elif isinstance(one, Call):
            self.call(one, here)

    def call(self, one: Call, here: Alike) -> None:
        needed = _meeting(one.function, self.kernel)
        if needed is not None:
            self.come(needed, here, one)
            for argument in one.arguments:  # what was joined
                if isinstance(argument, Name):
                    self.known[argument.name] = _OWN
        function = self.functions.get(one.function)
        if function is None:
            return
        given = tuple(map(self.alike, one.arguments))
        key = one.function, here, given
        if key in self.called:
            return
        self.called.add(key)
        own = dict(_NUMBERS)
        own |= {n: a for (_, n), a in zip(function.parameters, given, strict=True)}
        _Walk(self.kernel, self.functions, own, self.called).body(function.body, here)

    def meet(self, expr: Any, here: Alike, at: Statement) -> None:
        """The meetings of functions that an expression calls."""
        for part in every([expr]):
            if isinstance(part, Apply):
                needed = _meeting(part.function, self.kernel)
                if needed is not None:
                    self.come(needed, here, at)

    def come(self, needed: Alike, here: Alike, at: Statement) -> None:
        for wanted, own, who in (
            (needed.threads, here.threads, "threads"),
            (needed.blocks, here.blocks, "blocks"),
        ):
            met = own == 0 if wanted == 0 else own % wanted == 0
            if not met:
                whom = f"{wanted} {who}" if wanted else f"all {who}"
                raise Fault(f"{whom} meet where conditions part them by {own}", at)

    def alike(self, expr: Any) -> Alike:
        """For how many threads and blocks the value of an expression is the same."""
        if isinstance(expr, Name):
            return self.known.get(expr.name, SAME)
        if isinstance(expr, Number):
            return SAME
        if isinstance(expr, Integer):
            return self.all_of(self.known.get(v.name, SAME) for v in expr.index.variables)
        if isinstance(expr, Named):
            return self.all_of(self.known.get(piece, SAME) for piece in expr.pieces)
        if isinstance(expr, Infix) and len(expr.operands) == 2:
            found = self.counted(expr.operator, *expr.operands)
            if found is not None:
                return found
        if isinstance(expr, Element):
            return _OWN
        if isinstance(expr, Apply) and expr.function.startswith("fs_reduce_lanes<"):
            return Alike(int(_first(expr.function)), 1)
        if isinstance(expr, Apply) and expr.function.startswith("__all_sync"):
            return Alike(WARP, 1)
        return self.all_of(map(self.alike, parts(expr)))

    def counted(self, operator: str, left: Expr, right: Expr) -> Alike | None:
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

    def all_of(self, found: Iterable[Alike]) -> Alike:
        joined = SAME
        for one in found:
            joined &= one
        return joined


def _needed(barrier: Barrier, kernel: Lowered) -> Alike:
    """What a barrier's threads and blocks must agree in."""
    return {
        Scope.TEAM: Alike(barrier.threads, 1),
        Scope.BLOCK: Alike(0, 1),
        Scope.CLUSTER: Alike(0, kernel.cluster),
        Scope.GRID: Alike(0, 0),
    }[barrier.scope]


def _meeting(function: str, kernel: Lowered) -> Alike | None:
    """Who calls a function of the headers together; None for one that anybody may call."""
    name = function.partition("<")[0]
    if name in ("fs_reduce_block", "fs_reduce_teams", "fs_join_parts", "fs_reduce_strided"):
        return Alike(0, 1)
    if name == "fs_reduce_cluster":
        return Alike(0, kernel.cluster)
    if name == "fs_reduce_team":
        return Alike(WARP * int(_first(function)), 1)
    if name in ("fs_reduce_lanes", "fs_scatter_lanes", "__all_sync") or name.startswith("fs_mma"):
        return Alike(WARP, 1)
    return None


def _first(function: str) -> str:
    """The first template argument of a function."""
    return function.partition("<")[2].partition(",")[0]
