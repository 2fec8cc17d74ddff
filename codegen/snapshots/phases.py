"""The phases of a kernel, read off its statements: stages in their order, and who waits between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fusionstitch.codegen.ir.expressions import Apply
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import (
    Array,
    Barrier,
    Blank,
    Body,
    Group,
    If,
    Let,
    Note,
    Shared,
    Statement,
    Table,
)
from fusionstitch.codegen.ir.walk import FRAMES, every

#: Scopes that threads wait in, the widest first.
_SCOPES = (Scope.GRID, Scope.CLUSTER, Scope.BLOCK, Scope.TEAM, Scope.WARP)


@dataclass(frozen=True)
class Part:
    """Stages that threads compute without waiting in between; whether those of a narrower scope
    wait before the next part of the group."""

    stages: tuple[str, ...]
    waits: bool = False


@dataclass(frozen=True)
class Phase:
    """What runs between two waits of a kernel's widest scope.

    Attributes:
        groups: the parts of each group of loops; blocks, or tiles one after the other, take a group
            each
        ends: who waits at its end ("grid", "cluster", "block", "team", "warp"); "" for nobody
        loop: the number of the loop over iterations that it is in, None outside of them
    """

    groups: tuple[tuple[Part, ...], ...]
    ends: str = ""
    loop: int | None = None


def phases(kernel: Lowered) -> Sequence[Phase]:
    """The phases of a kernel in the order of its statements; a single one if nobody waits."""
    return _Reader(kernel).phases()


@dataclass(eq=False)
class _Reader:
    """Goes through the statements; what was read last is still open."""

    kernel: Lowered
    done: list[Phase] = field(default_factory=list)
    groups: list[list[Part]] = field(default_factory=lambda: [[]])
    stages: list[str] = field(default_factory=list)
    #: stages that were named and have done nothing yet: waits come right before what needs them
    named: list[str] = field(default_factory=list)
    loop: int | None = None
    loops: int = 0
    #: the frames around a statement, but for loops over iterations
    depth: int = 0

    def __post_init__(self) -> None:
        found = {one.scope for one in every(self.kernel.body) if isinstance(one, Barrier)}
        self.widest = next((scope for scope in _SCOPES if scope in found), None)

    def phases(self) -> Sequence[Phase]:
        self.body(self.kernel.body, outermost=True)
        self.phase("")
        return self.done

    def body(self, statements: Body, outermost: bool = False) -> None:
        iterations = self.kernel.iterations if outermost else None
        for one in statements:
            if iterations is not None and iterations.are(one):
                self.iterations(one)
            else:
                self.statement(one)

    def iterations(self, loop: Statement) -> None:
        self.phase("")
        self.loop, self.loops = self.loops, self.loops + 1
        self.body(_inside(loop))
        self.phase("")
        self.loop = None

    def statement(self, one: Statement) -> None:
        if isinstance(one, Note):
            self.named += one.stages
            return
        if isinstance(one, Barrier):
            self.barrier(one.scope)
            return
        if isinstance(one, Group):
            self.body(one.body)
            return
        if not _declares(one):
            self.begun()
        if isinstance(one, If) and one.others:
            for inside in (one.body, *(other.body for other in one.others)):
                self.group()
                self.nested(inside)
            self.group()
        elif isinstance(one, FRAMES):
            self.nested(_inside(one))

    def nested(self, statements: Body) -> None:
        self.depth += 1
        self.body(statements)
        self.depth -= 1

    def barrier(self, scope: Scope) -> None:
        """In the midst of a group only some of a block's threads, or of its tiles, come to a wait:
        it ends a part, but where all blocks of a cluster or the grid meet."""
        whole = self.depth == 0 or scope in (Scope.CLUSTER, Scope.GRID)
        if scope is self.widest and whole:
            self.phase(scope.name.lower())
        else:
            self.part(waits=True)

    def begun(self) -> None:
        self.stages += self.named
        self.named = []

    def part(self, waits: bool = False) -> None:
        if self.stages:
            self.groups[-1].append(Part(tuple(self.stages), waits))
            self.stages = []

    def group(self, ended: bool = True) -> None:
        if ended:
            self.begun()
        self.part()
        if own := self.groups[-1]:
            own[-1] = replace(own[-1], waits=False)
            self.groups.append([])

    def phase(self, ends: str) -> None:
        self.group(ended=not ends)
        groups = tuple(tuple(group) for group in self.groups if group)
        self.groups = [[]]
        if groups or (ends and not self.waited(ends)):
            self.done.append(Phase(groups, ends, self.loop))

    def waited(self, scope: str) -> bool:
        """Whether nothing happened since such a wait."""
        last = self.done[-1] if self.done else None
        return last is not None and (last.ends, last.loop) == (scope, self.loop)


def _declares(one: Statement) -> bool:
    """Whether a statement only names what is computed or read by a thread alone."""
    if isinstance(one, Let):
        return not any(isinstance(e, Apply) and e.intrinsic.steps for e in every([one]))
    return isinstance(one, (Array, Blank, Shared, Table))


def _inside(frame: Statement) -> Body:
    body: Body = getattr(frame, "body", ())
    return body
