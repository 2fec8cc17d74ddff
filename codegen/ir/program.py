"""What statements do with memory that blocks share, and in which of them blocks synchronise: what
does not depend on which block it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fusionstitch.codegen.ir.expressions import Address, Apply, Expr, Load, LoadVector, Name
from fusionstitch.codegen.ir.intrinsic import Step
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Array,
    Arrive,
    Assign,
    Barrier,
    Call,
    For,
    Group,
    If,
    Invoke,
    Statement,
    Store,
    StoreVector,
    Swap,
    Wait,
    While,
)
from fusionstitch.codegen.ir.types import VectorOf
from fusionstitch.codegen.ir.walk import every, names, parts, statements


@dataclass(frozen=True)
class Accessed:
    """What a statement does with a buffer, or with what a pointer points to."""

    buffer: str
    at: Expr | None
    width: int = 1
    writes: bool = False
    value: Expr | None = None


class Program:
    """A kernel whose blocks are followed. `same` names the memory that a buffer lies in: buffers
    without such are of no interest."""

    def __init__(self, kernel: Lowered, same: Mapping[str, str]):
        self.kernel, self.same = kernel, same
        self.functions = {function.name: function for function in kernel.functions}
        #: frames, and calls, in which blocks synchronise or buffers change names
        self.syncing: set[int] = set()
        self.widths: dict[str, int] = {}
        self.changing: set[str] = set()
        self._accesses: dict[int, list[Accessed]] = {}
        for body in kernel.bodies:
            self._look(body)
            for one in statements(body):
                if isinstance(one, Array) and isinstance(one.type, VectorOf):
                    self.widths[one.name] = one.type.width
                elif isinstance(one, Assign) and isinstance(one.target, Name):
                    self.changing.add(one.target.name)

    def _look(self, body: Iterable[Statement]) -> bool:
        """Whether blocks synchronise at statements, or at those inside of them."""
        found = False
        for one in body:
            if self._syncs(one):
                self.syncing.add(id(one))
                found = True
        return found

    def _syncs(self, one: Statement) -> bool:
        if isinstance(one, If):
            found = [self._look(body) for body in (one.body, *(o.body for o in one.others))]
            return any(found)
        if isinstance(one, (Group, For, While)):
            return self._look(one.body)
        if isinstance(one, Invoke):
            return self._look(self.functions[one.function].body)
        if isinstance(one, Barrier):
            return one.scope is Scope.GRID
        return isinstance(one, (Arrive, Wait, Swap))

    def accesses(self, one: Statement) -> list[Accessed]:
        """What a statement without others inside of it reads and writes."""
        found = self._accesses.get(id(one))
        if found is None:
            found = self._accesses[id(one)] = list(self._of(one))
        return found

    def _of(self, one: Statement) -> Iterator[Accessed]:
        yield from self.reads(parts(one))
        if isinstance(one, Store):
            yield Accessed(one.buffer, one.address, writes=True, value=one.value)
        elif isinstance(one, StoreVector):
            yield Accessed(one.buffer, one.address, self.widths.get(one.values, 1), writes=True)
        elif isinstance(one, Call):
            yield from self._arguments(one)

    def reads(self, nodes: Iterable[Any]) -> Iterator[Accessed]:
        """What expressions read."""
        for part in every(nodes):
            if isinstance(part, (Load, LoadVector, Address)):
                width = part.width if isinstance(part, LoadVector) else 1
                whole = not isinstance(part.buffer, Name)
                for name in names(part.buffer):
                    yield Accessed(name, None if whole else part.at, width)
            elif isinstance(part, Apply) and part.intrinsic.through is not None:
                yield from self._arguments(part)

    def _arguments(self, call: Call | Apply) -> Iterator[Accessed]:
        """Accesses of a function to memory passed to it: to any of it."""
        for number, argument in enumerate(call.arguments):
            steps = call.intrinsic.steps if number == call.intrinsic.through else ()
            writes = any(isinstance(step, Step) and step.writes for step in steps)
            for name in names(argument):
                yield Accessed(name, None, writes=writes)
