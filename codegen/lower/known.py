"""Values that are known by name, and how the others are read from memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.index_maps.index import Index
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.index_maps.vectors import Vector
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.expressions import Cast, Expr, Integer, Name
from fusionstitch.codegen.ir.types import IndexType, computed
from fusionstitch.hlo.graph import Op

#: A value, and the depth of the block from which on it is known.
AtDepth = tuple[Expr, int]


@dataclass(frozen=True)
class Located:
    """An element of a buffer."""

    buffer: Expr
    address: Index


class Sources(Protocol):
    """How values that live in memory are read. Of those that are `owned`, by id, a thread reads its
    own elements alone: others may have been overwritten. `vector` is what the loop is over that is
    open, if one is."""

    owned: frozenset[int]

    @property
    def vector(self) -> Vector | None: ...

    def stored(self, op: Op, index: Indices) -> AtDepth | None:
        """What reads a value, and the depth from which on it may be read; None if it is computed
        here."""

    def located(self, op: Op, index: Indices) -> Located | None:
        """In which buffer a value lies, if it lies in one."""

    def loaded_from(self, op: Op, start: str, depth: int, address: Index, aligned: bool) -> Expr:
        """What lies `address` elements after the pointer `start`, known from `depth` on."""

    def bases(self, addresses: Sequence[Index]) -> tuple[list[Index], Index]:
        """The begins of the vectors that `addresses` run through, and the index in them;
        `addresses` and 0 if not all run through vectors."""


class Elementwise:
    """The part of `Sources` about addresses in buffers, for those that read elements one by one."""

    owned: frozenset[int] = frozenset()
    vector: Vector | None = None

    def located(self, op: Op, index: Indices) -> Located | None:
        return None

    def loaded_from(self, op: Op, start: str, depth: int, address: Index, aligned: bool) -> Expr:
        raise NotImplementedError  # nothing is located

    def bases(self, addresses: Sequence[Index]) -> tuple[list[Index], Index]:
        return list(addresses), Index()


@dataclass(frozen=True)
class Known:
    """What has a name: `label` gives that of an op, `int_` is the type of indices."""

    writer: Writer
    label: Callable[[Op], str]
    int_: IndexType

    def define(self, op: Op, index: Indices, value: Expr, depth: int) -> AtDepth:
        """Names a value of `op`, which is known from `depth` on."""
        name = self.writer.name(self.label(op))
        self.writer.let(computed(op.dtype), name, value, depth)
        self.writer.chain[depth].memo[op.id, index] = Name(name)
        return Name(name), depth

    def integer(self, key: Hashable, hint: str, value: Expr, depth: int) -> str:
        """Declares an integer that is known by `key` from `depth` on; its name."""
        name = self.writer.name(hint)
        self.writer.let(self.int_, name, value, depth)
        self.writer.depth_of[name] = depth
        self.writer.chain[depth].memo[key] = Name(name)
        return name

    def counted(self, op: Op) -> AtDepth | None:
        """The number of an iteration, if that is what `op` is."""
        counts = annotations_of(op).counts
        if counts is None:
            return None
        return Cast(computed(op.dtype), Integer(counts)), self.depth_of((counts,))

    def depth_of(self, index: Indices) -> int:
        """The depth from which on an index is known."""
        depths = [self.writer.depth_of[v.name] for i in index for v in i.variables]
        return max(depths, default=0)
