"""A kernel as a whole: what it is given, what it does, and how it is launched."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import For, Function, Statement, While
from fusionstitch.codegen.ir.types import Record, Scalar


@dataclass(frozen=True)
class Overwriting:
    """The buffer of an output that may lie in an input's memory, and `among` whom: what threads of
    that scope read of the input, only they write over."""

    output: str
    among: Scope


@dataclass(frozen=True)
class Buffer:
    """`size` elements of a type, that in memory. An input is `overwritten` where an output
    may lie in the same memory. Of a table of integers all are known."""

    name: str
    type: Scalar | Record
    size: int
    memory: Memory
    overwritten: bool = False
    #: what may be written over an input when all threads are done with it
    by: Overwriting | None = None
    integers: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Iterations:
    """How a kernel runs its loops over iterations: threads of a `scope` go through each iteration
    together, and each has so many `registers` left for what iterations share. These loops stand
    right in the body, and are those without a counter or with one of the `counters`."""

    scope: Scope
    registers: int
    counters: frozenset[str]

    def are(self, one: Statement) -> bool:
        """Whether a statement right in the body is one of these loops."""
        counted = isinstance(one, For) and one.variable in self.counters
        return counted or isinstance(one, While)


@dataclass(frozen=True)
class Lowered:
    """A kernel after lowering: its buffers in the order of its parameters, its tables, its own
    functions and its statements. Then the launch: threads of a block, blocks of a cluster and of
    the grid, bytes of shared memory. Registers must suffice for `per_sm` blocks on a multiprocessor
    (0: no limit). Then how its loops over iterations run, if threads run them together. A
    `cooperative` launch runs all blocks at once, so that each may wait for any other."""

    name: str
    buffers: tuple[Buffer, ...]
    functions: tuple[Function, ...]
    body: tuple[Statement, ...]
    block: int
    cluster: int
    grid: int
    shared: int
    per_sm: int = 0
    iterations: Iterations | None = None
    cooperative: bool = False

    @property
    def bodies(self) -> tuple[tuple[Statement, ...], ...]:
        """The statements of its functions, then its own."""
        return (*(function.body for function in self.functions), self.body)

    @property
    def bounds(self) -> str:
        """The launch bounds."""
        return f"{self.block}, {self.per_sm}" if self.per_sm else f"{self.block}"
