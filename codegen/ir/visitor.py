"""A walk over the statements of a kernel, in the order of the program."""

from __future__ import annotations

from collections.abc import Iterable

from fusionstitch.codegen.ir.statements import For, Group, If, Statement, While


class Visitor:
    """Visits statements and those inside of them. A subclass says what happens at the kinds of
    frames that matter to it, and at statements without others inside."""

    def body(self, body: Iterable[Statement]) -> None:
        for one in body:
            self.statement(one)

    def statement(self, one: Statement) -> None:
        if isinstance(one, Group):
            self.group(one)
        elif isinstance(one, For):
            self.counted(one)
        elif isinstance(one, While):
            self.repeated(one)
        elif isinstance(one, If):
            self.branches(one)
        else:
            self.simple(one)

    def group(self, one: Group) -> None:
        self.body(one.body)

    def counted(self, one: For) -> None:
        self.body(one.body)

    def repeated(self, one: While) -> None:
        self.body(one.body)

    def branches(self, one: If) -> None:
        if one.given:
            self.statement(one.given)
        self.body(one.body)
        for other in one.others:
            self.body(other.body)

    def simple(self, one: Statement) -> None:
        """A statement without others inside of it."""
