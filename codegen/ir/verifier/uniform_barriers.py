"""All threads that a barrier is for reach it.

All conditions around a barrier of a team must be the same for the team's threads
(`ir/uniformity.py`). Around one of a block they must be the same for its threads, and around one of
a cluster or the grid for its blocks as well. The same holds for header functions that threads call
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fusionstitch.codegen.ir.expressions import Apply
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Arrive,
    Barrier,
    Call,
    For,
    Function,
    If,
    Invoke,
    Leave,
    Skip,
    Statement,
    Wait,
    While,
)
from fusionstitch.codegen.ir.uniformity import (
    SAME,
    Agreement,
    Alike,
    agrees,
    called_by,
    needed,
    together,
)
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.visitor import Visitor
from fusionstitch.codegen.ir.walk import every, parts


def check(kernel: Lowered) -> None:
    """Raises Fault for a meeting that some of those who are meant do not come to."""
    functions = {function.name: function for function in kernel.functions}
    _Walk(kernel, functions, Agreement(), SAME).body(kernel.body)


@dataclass(eq=False)
class _Walk(Visitor):
    """A walk; the conditions around the statement that it is at are alike for `here`."""

    kernel: Lowered
    functions: Mapping[str, Function]
    agreement: Agreement
    here: Alike
    #: what the calls of each function that were walked through agreed in
    called: set[tuple[str, Alike, tuple[Alike, ...]]] = field(default_factory=set)

    def body(self, body: Iterable[Statement]) -> None:
        before = self.here
        super().body(body)
        self.here = before

    def branches(self, one: If) -> None:
        before = self.here
        if one.given:
            self.statement(one.given)
        self.here &= self.agreement.alike(one.condition)
        self.body(one.body)
        for other in one.others:
            self.here &= self.agreement.alike(other.condition) if other.condition else SAME
            self.body(other.body)
        self.here = before

    def counted(self, one: For) -> None:
        self.iterations(one)

    def repeated(self, one: While) -> None:
        self.iterations(one)

    def iterations(self, one: For | While) -> None:
        outer = self.here
        before = outer & self.agreement.iterations(one)
        self.here = before
        self.body(one.body)
        after = outer & self.agreement.iterations(one)
        if after != before:  # what decides is known only now
            self.here = before & after
            self.body(one.body)
        self.here = outer

    def simple(self, one: Statement) -> None:
        if isinstance(one, (Skip, Leave)):  # the rest of the iteration is for the others
            self.meet(one.condition, one)
            self.here &= self.agreement.alike(one.condition)
        elif isinstance(one, Barrier):
            self.come(needed(one, self.kernel.cluster), one)
        elif isinstance(one, (Arrive, Wait)):
            self.arrive(one)
        else:
            for part in parts(one):
                self.meet(part, one)
            self.agreement.note(one, self.here)
            if isinstance(one, Call):
                self.come(called_by(one, self.kernel.cluster), one)
            elif isinstance(one, Invoke):
                self.invoke(one)

    def arrive(self, one: Arrive | Wait) -> None:
        """A block arrives or waits as a whole, at one counter."""
        block = together(Scope.BLOCK, 0, self.kernel.cluster)
        self.come(block, one)
        if not all(self.agreement.alike(part).holds(block) for part in parts(one)):
            raise Fault(f"threads of a block differ in what they mean of {one.counter}", one)

    def invoke(self, one: Invoke) -> None:
        function = self.functions[one.function]
        given = tuple(map(self.agreement.alike, one.arguments))
        key = one.function, self.here, given
        if key in self.called:
            return
        self.called.add(key)
        own = {n: a for (_, n), a in zip(function.parameters, given, strict=True)}
        inner = _Walk(self.kernel, self.functions, Agreement(own), self.here, self.called)
        inner.body(function.body)

    def meet(self, expr: Any, at: Statement) -> None:
        """The meetings of functions that an expression calls."""
        for part in every([expr]):
            if isinstance(part, Apply):
                self.come(called_by(part, self.kernel.cluster), at)

    def come(self, needed: Alike, at: Statement) -> None:
        for most, own, who in (
            (needed.threads, self.here.threads, "threads"),
            (needed.blocks, self.here.blocks, "blocks"),
        ):
            if not agrees(own, most):
                meant = f"{most} {who}" if most else f"all {who}"
                raise Fault(f"{meant} meet where conditions part them by {own}", at)
