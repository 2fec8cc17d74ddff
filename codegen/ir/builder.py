"""Statements as they are written: the chain of open frames, and what each already computed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fusionstitch.codegen.ir.expressions import Expr
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.statements import (
    Branch,
    For,
    Frame,
    Group,
    If,
    Let,
    Note,
    Statement,
    While,
)
from fusionstitch.codegen.ir.types import Type
from fusionstitch.hlo.errors import CodegenError


@dataclass(eq=False)
class Open:
    """A frame whose statements are being written. `memo` maps a value to what reads it. `ordered`
    ones stand after what the kernel itself wrote; `pinned` ones, besides, run conditionally, so
    nothing that reads memory may move out of them. Where most elements come from one operand, what
    is inside of the frame for it (`chosen`) may, if it lies inside its buffer anyway and a loop is
    spared the read.
    """

    frame: Frame = field(default_factory=Group)
    pinned: bool = False
    ordered: bool = False
    chosen: bool = False
    items: list[Statement] = field(default_factory=list)
    memo: dict[Any, Expr] = field(default_factory=dict)

    def closed(self) -> Frame:
        return replace(self.frame, body=tuple(self.items))


class Writer:
    """The chain of open frames, outermost first, and the depth at which each variable lives."""

    def __init__(self) -> None:
        self.chain: list[Open] = [Open()]
        self.depth_of: dict[str, int] = {}
        self.names = Names()
        self._written = 0
        self._most: float = math.inf

    @property
    def depth(self) -> int:
        return len(self.chain) - 1

    @property
    def block(self) -> Open:
        return self.chain[-1]

    def add(self, statement: Statement, depth: int | None = None) -> None:
        """Adds a statement to the frame at `depth` (the innermost by default)."""
        self._written += 1
        if self._written > self._most:
            raise CodegenError(
                "A loop would compute values again in so many branches that its text could not be "
                "compiled: leave it to XLA."
            )
        self.chain[self.depth if depth is None else depth].items.append(statement)

    def note(self, text: str, stages: tuple[str, ...] = ()) -> None:
        self.add(Note(text, stages))

    def let(self, kind: Type, name: str, value: Expr, depth: int | None = None) -> None:
        """A variable that keeps its value."""
        self.add(Let(kind, name, value), depth)

    def declare(self, variable: str) -> str:
        """Records that an index variable is defined in the innermost frame."""
        self.depth_of[variable] = self.depth
        return variable

    @contextmanager
    def nested(
        self, frame: Frame, pinned: bool = False, ordered: bool = False, chosen: bool = False
    ) -> Iterator[Open]:
        """Opens a frame; statements hoisted to outer ones until it closes precede it."""
        opened = Open(frame, pinned, ordered or pinned, chosen)
        self.chain.append(opened)
        try:
            yield opened
        finally:
            self.chain.pop()
            self.block.items.append(opened.closed())

    @contextmanager
    def bounded(self, most: int) -> Iterator[None]:
        """So many statements may be added inside: for more, CodegenError is raised."""
        before, self._most = self._most, self._written + most
        try:
            yield
        finally:
            self._most = before

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Nothing that was computed before is known inside, and nothing of what is after: ops of
        other graphs have the same numbers."""
        before = [opened.memo for opened in self.chain]
        for opened in self.chain:
            opened.memo = {}
        with self.nested(Group(), pinned=True):
            yield
        for opened, memo in zip(self.chain, before, strict=True):
            opened.memo = memo

    @contextmanager
    def otherwise(self, condition: Expr | None = None, chosen: bool = False) -> Iterator[None]:
        """What runs where `condition` holds, and that of the `If` just written and of what was
        added to it did not, like that `chosen` or not; statements hoisted to outer frames until
        it closes precede all of it."""
        opened = Open(Group(), pinned=True, ordered=True, chosen=chosen)
        written = len(self.block.items) - 1
        self.chain.append(opened)
        try:
            yield
        finally:
            self.chain.pop()
            before = self.block.items.pop(written)
            assert isinstance(before, If)
            branch = Branch(condition, tuple(opened.items))
            self.block.items.append(replace(before, others=(*before.others, branch)))

    @property
    def ordered_depth(self) -> int:
        """The innermost frame that reads of the kernel's own results must not leave."""
        return max((d for d, b in enumerate(self.chain) if b.ordered), default=0)

    @property
    def pinned_depth(self) -> int:
        """The innermost frame that runs conditionally: loads stay at or inside it."""
        return max((d for d, b in enumerate(self.chain) if b.pinned), default=0)

    def reading_depth(self, known: int) -> int:
        """The depth from which on an element of an input is read, inside its buffer at a place that
        is known from `known` on: before the loops that it does not depend on, and else where it is
        needed."""
        floor = max((d for d, b in enumerate(self.chain) if b.pinned and not b.chosen), default=0)
        floor = max(floor, known)
        between = self.chain[floor + 1 : self.pinned_depth]
        repeats = any(isinstance(opened.frame, (For, While)) for opened in between)
        return floor if repeats else max(known, self.pinned_depth)

    def inside_condition(self, depth: int) -> int:
        """The same depth, or that of the frame right inside that runs conditionally."""
        conditional = depth < self.depth and self.chain[depth + 1].pinned
        return depth + 1 if conditional else depth

    def find(self, key: Any) -> tuple[Expr, int] | None:
        """A value computed in an open frame: what reads it, and that frame's depth."""
        for depth in range(self.depth, -1, -1):
            found = self.chain[depth].memo.get(key)
            if found is not None:
                return found, depth
        return None

    def name(self, hint: str) -> str:
        """A C identifier like `hint` that is not used yet in this kernel."""
        return self.names.new(hint)

    @property
    def body(self) -> tuple[Statement, ...]:
        """All that was written, once every frame is closed."""
        (outermost,) = self.chain
        return tuple(outermost.items)
