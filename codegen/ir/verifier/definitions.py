"""Every name is declared before it is used, in a frame around its use, and once there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fusionstitch.codegen.ir.expressions import BLOCK, SHARED, THREAD
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.statements import Fill, For, Group, If, Statement
from fusionstitch.codegen.ir.verifier.fault import Fault
from fusionstitch.codegen.ir.visitor import Visitor
from fusionstitch.codegen.ir.walk import conditions, declared, names


def check(kernel: Lowered) -> None:
    """Raises Fault for a name that is not known where it is used."""
    tables = {buffer.name for buffer in kernel.buffers}
    known = {THREAD.name, BLOCK.name, *tables}
    if kernel.shared:
        known.add(SHARED.name)
    _Scopes(known).body(kernel.body)
    for function in kernel.functions:
        own = {name for _, name in function.parameters}
        _Scopes({THREAD.name, BLOCK.name, *own, *tables}).body(function.body)


class _Scopes(Visitor):
    """The names that are declared in the frames around a statement, and in the others before it."""

    def __init__(self, known: set[str]):
        self.scopes: list[set[str]] = [known]

    def body(self, body: Iterable[Statement]) -> None:
        self.scopes.append(set())
        super().body(body)
        self.scopes.pop()

    def group(self, one: Group) -> None:
        for inner in one.body:  # no frame of its own in C
            self.statement(inner)

    def counted(self, one: For) -> None:
        self.used(conditions(one), one)
        self.scopes.append({one.variable})
        self.body(one.body)
        self.scopes.pop()

    def branches(self, one: If) -> None:
        self.scopes.append(set())
        if one.given:
            self.statement(one.given)
        self.used([one.condition], one)
        self.body(one.body)
        for other in one.others:
            self.used([other.condition] if other.condition else [], one)
            self.body(other.body)
        self.scopes.pop()

    def simple(self, one: Statement) -> None:
        self.used([one], one)
        for name in declared(one):
            if name in self.scopes[-1]:
                raise Fault(f"{name} is declared twice", one)
            self.scopes[-1].add(name)

    def used(self, nodes: Iterable[Any], at: Statement) -> None:
        for name in (name for node in nodes for name in names(node)):
            if isinstance(at, Fill) and name == "i":
                continue
            if not any(name in scope for scope in self.scopes):
                raise Fault(f"{name} is not known", at)
