"""Neighboring elements that a thread reads or writes one by one become vector accesses.

    const float left = boxes[row * 4];          const auto box = fs_load_vec<float, 4>(boxes + ...);
    const float top = boxes[row * 4 + 1];  ->   const float left = box[0];
    ...                                         const float top = box[1]; ...

The fields of boxes lie so, as do pairs that are rotated and the states of many systems. Loops over
the elements of a value become vector accesses as they are lowered (`lower/access.py`); here each
thread has all fields of one record. A read moves up to the first one of its vector; only inputs
that nothing writes are read so. A write moves down to the last one; only buffers that the kernel
never reads are written so. What all threads of a warp read alike takes as few sectors one by one,
and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fusionstitch.codegen.index_maps.index import Index, Quotient, Remainder, Term
from fusionstitch.codegen.index_maps.vectors import ACCESS_BYTES
from fusionstitch.codegen.ir.expressions import (
    Apply,
    Choice,
    Element,
    Expr,
    Infix,
    Integer,
    Load,
    LoadVector,
    Name,
    apply,
    number,
)
from fusionstitch.codegen.ir.intrinsics import LOAD
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.passes.uses import changing, depends_on_thread, unread_outputs
from fusionstitch.codegen.ir.statements import (
    Array,
    Assign,
    Blank,
    Body,
    Fill,
    Group,
    If,
    Leave,
    Let,
    Note,
    Skip,
    Statement,
    Store,
    StoreVector,
)
from fusionstitch.codegen.ir.types import Raw, Scalar, VectorOf
from fusionstitch.codegen.ir.walk import every, inside, mapped, names, parts, with_bodies
from fusionstitch.costmodel.devices import WARP

#: Types whose loaded vectors have elements of another type (`cuda/types.cuh`), which `LOAD` alone
#: takes.
_IN_WORDS = frozenset({Scalar("bf16")})
#: Statements over which a write may move.
_PLAIN = (Array, Assign, Blank, Fill, Let, Note, Store)


def gather_vectors(kernel: Lowered, named: Names) -> Lowered:
    """The kernel with neighbouring accesses of a thread to global memory as vectors."""
    nodes = list(every(kernel.body))
    gathered = _Gatherer(
        {b.name: b for b in kernel.buffers if b.memory is Memory.INPUT and not b.overwritten},
        unread_outputs(kernel),
        changing(nodes),
        depends_on_thread(nodes),
        named,
    )
    body = gathered.body(kernel.body)
    return replace(kernel, body=body) if gathered.found else kernel


@dataclass(frozen=True)
class _Access:
    """An access: the number of its statement, its node, and its address."""

    at: int
    node: Any
    index: Index


@dataclass(frozen=True)
class _Vector:
    """`width` elements from a multiple of that on, and the accesses to them by their number."""

    buffer: Buffer
    start: Index
    width: int
    accesses: Mapping[int, _Access]

    @property
    def first(self) -> int:
        """The number of its first statement."""
        return min(access.at for access in self.accesses.values())

    @property
    def last(self) -> int:
        return max(access.at for access in self.accesses.values())


@dataclass(eq=False)
class _Gatherer:
    """`inputs` that nothing writes, `outputs` that nothing reads, variables that are `changing` and
    those `of_threads`, and the identifiers in use."""

    inputs: Mapping[str, Buffer]
    outputs: Mapping[str, Buffer]
    changing: set[str]
    of_threads: set[str]
    named: Names
    found: bool = field(default=False)

    def body(self, items: Sequence[Statement]) -> Body:
        """The same statements, what is inside of them after what is around it."""
        gathered = self.stores(self.loads(items))
        return tuple(with_bodies(one, self.body) for one in gathered)

    # ---- reads -----------------------------------------------------------------------------------

    def loads(self, items: Sequence[Statement]) -> list[Statement]:
        """With vectors before the first of the statements that read their elements, which do so
        whatever the data is."""
        done: list[Statement] = []
        run: list[Statement] = []
        for one in items:
            run.append(one)
            if _may_leave(one):  # what follows may not run
                done += self.loaded(run)
                run = []
        return [*done, *self.loaded(run)]

    def loaded(self, run: Sequence[Statement]) -> list[Statement]:
        vectors: dict[int, list[_Vector]] = {}
        for buffer, accesses in self.reads(run).items():
            for vector in _vectors(self.inputs[buffer], accesses, _most_of_it):
                vectors.setdefault(vector.first, []).append(vector)
        if not vectors:
            return list(run)
        self.found = True
        known: dict[Expr, Expr] = {}

        def new(node: Any) -> Any:
            return known.get(node, node) if _reads(node) else node

        found: list[Statement] = []
        for at, one in enumerate(run):
            for vector in vectors.get(at, ()):
                buffer, kind = vector.buffer.name, vector.buffer.type
                name = self.named.new(f"{buffer}_vector")
                load = LoadVector(kind, vector.width, Name(buffer), Integer(vector.start))
                found.append(Let(Raw.LOADED, name, load))
                for number_, access in vector.accesses.items():
                    element: Expr = Element(Name(name), number(number_))
                    whole = isinstance(access.node, Load)
                    known[access.node] = element if whole else apply(LOAD, element)
            found.append(mapped(one, new))
        return found

    def reads(self, run: Sequence[Statement]) -> dict[str, list[_Access]]:
        """What is always read of inputs, by the name of each."""
        accesses: dict[str, list[_Access]] = {}
        for at, one in enumerate(run):
            for node, load in _always_read(one):
                buffer = load.buffer.name if isinstance(load.buffer, Name) else ""
                index = self.settled(load.at)
                if buffer in self.inputs and index is not None and self.differs(index):
                    accesses.setdefault(buffer, []).append(_Access(at, node, index))
        return accesses

    # ---- writes ----------------------------------------------------------------------------------

    def stores(self, items: Sequence[Statement]) -> list[Statement]:
        """With vectors after the last of the statements that compute their elements."""
        done: list[Statement] = []
        run: list[Statement] = []
        for one in items:
            if not isinstance(one, _PLAIN):
                done += [*self.stored(run), one]
                run = []
            else:
                run.append(one)
        return [*done, *self.stored(run)]

    def stored(self, run: Sequence[Statement]) -> list[Statement]:
        accesses: dict[str, list[_Access]] = {}
        for at, one in enumerate(run):
            if isinstance(one, Store) and one.buffer in self.outputs:
                index = self.settled(one.address)
                if index is None:
                    return list(run)  # it may be any of the others
                accesses.setdefault(one.buffer, []).append(_Access(at, one, index))
        instead: dict[int, list[Statement]] = {}
        for buffer, each in accesses.items():
            if len({access.index for access in each}) < len(each):
                continue  # the last one counts
            for vector in _vectors(self.outputs[buffer], each, _all_of_it):
                between = (p for p in each if vector.first < p.at < vector.last)
                if not {p.index.terms for p in between} <= {vector.start.terms}:
                    continue  # which may be the same elements
                self.found = True
                name = self.named.new(f"{buffer}_vector")
                for number_, access in vector.accesses.items():
                    element = Element(Name(name), number(number_))
                    instead[access.at] = [Assign(element, access.node.value)]
                kind = VectorOf(vector.buffer.type, vector.width)
                instead[vector.first].insert(0, Array(kind, name))
                store = StoreVector(buffer, Integer(vector.start), name)
                instead[vector.last].append(store)
        return [new for at, one in enumerate(run) for new in instead.get(at, (one,))]

    # ---- addresses ---------------------------------------------------------------------

    def settled(self, at: Expr) -> Index | None:
        """An address that is the same wherever it is spelled so."""
        if not isinstance(at, Integer) or not self.changing.isdisjoint(names(at)):
            return None
        return at.index

    def differs(self, index: Index) -> bool:
        """Whether threads of one warp have different indices."""
        return any(self._differs(term) for term, _ in index.terms)

    def _differs(self, term: Term) -> bool:
        if isinstance(term, Quotient):  # warps begin at multiples of their threads
            return term.divisor % WARP > 0 and self.differs(term.base)
        if isinstance(term, Remainder):
            return self.differs(term.base)
        return term.name in self.of_threads


def _may_leave(one: Statement) -> bool:
    """Whether a statement may end the iteration, or the loop, that it stands in."""
    if isinstance(one, (If, Group)):
        return any(map(_may_leave, inside(one)))
    return isinstance(one, (Skip, Leave))


def _always_read(one: Statement) -> Iterator[tuple[Expr, Load]]:
    """What a statement reads of memory whatever the data is: the node that a vector's element may
    replace, and the load in it."""
    if not isinstance(one, (Let, Assign, Store)):
        return
    todo = [*parts(one)]
    while todo:
        node = todo.pop()
        if isinstance(node, Choice):
            todo.append(node.cases[0][0])
        elif isinstance(node, Infix) and node.operator in ("&&", "||"):
            todo.append(node.operands[0])
        elif _reads(node):
            load = node if isinstance(node, Load) else node.arguments[0]
            yield node, load
        else:
            todo += parts(node)


def _reads(node: Any) -> bool:
    """Whether a node is a load that an element of a vector can replace."""
    if isinstance(node, Load):
        return True
    return (
        isinstance(node, Apply) and node.intrinsic is LOAD and isinstance(node.arguments[0], Load)
    )


def _all_of_it(buffer: Buffer, width: int, used: int) -> bool:
    """Whether so many of the elements of a vector are enough to write it."""
    return used == width


def _most_of_it(buffer: Buffer, width: int, used: int) -> bool:
    """Whether they are enough to read it. It lies inside its buffer as one of its elements does."""
    return 2 * used > width and (used == width or buffer.size % width == 0)


def _vectors(
    buffer: Buffer, accesses: Sequence[_Access], enough: Callable[[Buffer, int, int], bool]
) -> Iterator[_Vector]:
    """The widest vectors of accesses to a buffer."""
    by_terms: dict[Any, dict[int, _Access]] = {}
    for access in accesses:
        words = isinstance(access.node, Load) and buffer.type in _IN_WORDS
        if not words:
            by_terms.setdefault(access.index.terms, {}).setdefault(access.index.const, access)
    for terms, near in by_terms.items():
        width = ACCESS_BYTES // buffer.type.bytes if isinstance(buffer.type, Scalar) else 1
        while width > 1:
            fits = not any(coefficient % width for _, coefficient in terms)
            for start in sorted({const // width * width for const in near}) if fits else ():
                used = {n: near[start + n] for n in range(width) if start + n in near}
                if enough(buffer, width, len(used)):
                    yield _Vector(buffer, Index(terms, start), width, used)
                    near = {c: p for c, p in near.items() if not 0 <= c - start < width}
            width //= 2
