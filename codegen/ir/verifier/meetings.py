"""Where threads meet, all that the meeting is for take part.

A barrier of a team needs that all conditions around it are the same for the team's threads
(`ir/agreement.py`), one of the block for all of them, one of a cluster or the grid for their blocks
too; so do functions of the headers that threads call together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fusionstitch.codegen.ir.agreement import (
    SAME,
    Agreement,
    Alike,
    agrees,
    called_by,
    needed,
)
from fusionstitch.codegen.ir.expressions import Apply
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.statements import (
    Barrier,
    Call,
    For,
    Function,
    Group,
    If,
    Invoke,
    Leave,
    Skip,
    Statement,
    While,
)
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.walk import every, parts


def check(kernel: Lowered) -> None:
    """Raises Fault for a meeting that some of those who are meant do not come to."""
    functions = {function.name: function for function in kernel.functions}
    _Walk(kernel, functions, Agreement()).body(kernel.body, SAME)


@dataclass(eq=False)
class _Walk:
    kernel: Lowered
    functions: Mapping[str, Function]
    agreement: Agreement
    #: what the calls of each function that were walked through agreed in
    called: set[tuple[str, Alike, tuple[Alike, ...]]] = field(default_factory=set)

    def body(self, body: Iterable[Statement], here: Alike) -> None:
        for one in body:
            if isinstance(one, (Skip, Leave)):  # the rest of the iteration is for the others
                self.meet(one.condition, here, one)
                here &= self.agreement.alike(one.condition)
            else:
                self.statement(one, here)

    def statement(self, one: Statement, here: Alike) -> None:
        if isinstance(one, Group):
            self.body(one.body, here)
        elif isinstance(one, If):
            if one.given:
                self.statement(one.given, here)
            here &= self.agreement.alike(one.condition)
            self.body(one.body, here)
            for other in one.others:
                here &= self.agreement.alike(other.condition) if other.condition else SAME
                self.body(other.body, here)
        elif isinstance(one, For):
            here &= self.agreement.turns(one)
            self.body(one.body, here)
        elif isinstance(one, While):
            before = here & self.agreement.turns(one)
            self.body(one.body, before)
            after = here & self.agreement.turns(one)
            if after != before:  # what decides is known only now
                self.body(one.body, before & after)
        elif isinstance(one, Barrier):
            self.come(needed(one, self.kernel.cluster), here, one)
        else:
            self.simple(one, here)

    def simple(self, one: Statement, here: Alike) -> None:
        for part in parts(one):
            self.meet(part, here, one)
        self.agreement.note(one, here)
        if isinstance(one, Call):
            self.come(called_by(one, self.kernel.cluster), here, one)
        elif isinstance(one, Invoke):
            self.invoke(one, here)

    def invoke(self, one: Invoke, here: Alike) -> None:
        function = self.functions[one.function]
        given = tuple(map(self.agreement.alike, one.arguments))
        key = one.function, here, given
        if key in self.called:
            return
        self.called.add(key)
        own = {n: a for (_, n), a in zip(function.parameters, given, strict=True)}
        _Walk(self.kernel, self.functions, Agreement(own), self.called).body(function.body, here)

    def meet(self, expr: Any, here: Alike, at: Statement) -> None:
        """The meetings of functions that an expression calls."""
        for part in every([expr]):
            if isinstance(part, Apply):
                self.come(called_by(part, self.kernel.cluster), here, at)

    def come(self, wanted: Alike, here: Alike, at: Statement) -> None:
        for most, own, who in (
            (wanted.threads, here.threads, "threads"),
            (wanted.blocks, here.blocks, "blocks"),
        ):
            if not agrees(own, most):
                meant = f"{most} {who}" if most else f"all {who}"
                raise Fault(f"{meant} meet where conditions part them by {own}", at)
