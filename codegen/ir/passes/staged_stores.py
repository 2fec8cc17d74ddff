"""Records that threads store go through shared memory, so that a warp stores neighbors at once.

    if (row < count) {                        if (row < count) {
      out[row * 12] = a;                        staged[row * 13] = a;
      out[row * 12 + 1] = b;         ->         staged[row * 13 + 1] = b; ...
      ...                                     }
    }                                         __syncthreads();
                                              for (i = threadIdx.x; i < count * 12; i += 256)
                                                out[i] = staged[i + i / 12];

Each store of a warp goes to every line of memory that it touches. On an H200, 201 MB of records of
12 floats took 490 us one float at a time, 115 us in vectors of four, and 60 us like this
(benchmarks/records.py). Records of few bytes are joined by the hardware, and stay as they are. The
rows in shared memory have an odd length, so that threads find them in different banks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fusionstitch.codegen.index_maps.index import Index, Var, substituted, variable
from fusionstitch.codegen.ir.expressions import (
    THREAD,
    Expr,
    Infix,
    Integer,
    Load,
    Name,
    infix,
    least,
    number,
)
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.passes.uses import changing, depends_on_thread, unread_outputs
from fusionstitch.codegen.ir.statements import (
    Body,
    For,
    Group,
    If,
    Leave,
    Let,
    Shared,
    Skip,
    Statement,
    Store,
    StoreVector,
)
from fusionstitch.codegen.ir.types import INT, IndexType, Scalar
from fusionstitch.codegen.ir.walk import every, names, statements

#: Bytes of shared memory that a block may have, on any device.
MOST_SHARED = 64 * 1024
#: Bytes of a record that the hardware joins: of any, and of one that is stored 16 bytes at a time.
JOINED, JOINED_VECTORS = 24, 32
#: Bytes that a staged array begins at multiples of.
UNIT = 16


def stage_stores(kernel: Lowered, named: Names) -> Lowered:
    """The kernel that stores records through shared memory, as far as a block has any."""
    nodes = list(every(kernel.body))
    overwritten = {(b.type, b.size) for b in kernel.buffers if b.overwritten or b.by is not None}
    outputs = {
        name: b
        for name, b in unread_outputs(kernel).items()
        if isinstance(b.type, Scalar) and (b.type, b.size) not in overwritten
    }
    stager = _Stager(kernel, outputs, changing(nodes), depends_on_thread(nodes), named)
    body = stager.body(kernel.body)
    if not stager.staged:
        return kernel
    return replace(kernel, body=(*stager.staged, *body), shared=stager.shared)


@dataclass(frozen=True)
class _Rows:
    """A frame whose threads take rows: row `variable` of `limit`, in passes of a block or at
    once."""

    variable: str
    type: IndexType
    limit: Expr
    body: Body
    passes: bool


@dataclass(frozen=True)
class _Records:
    """What is stored of an output: the record of row 0 begins at `start`, each has `length`
    elements, and `stores` has the position of each store in its record."""

    buffer: Buffer
    start: Index
    length: int
    stores: Mapping[Store, int]

    @property
    def pitch(self) -> int:
        """Elements from one record to the next in shared memory."""
        return self.length | 1


@dataclass(eq=False)
class _Stager:
    """`outputs` that nothing reads, variables that are `changing` and those `of_threads`, and the
    identifiers in use; then what is declared, and shared memory in use."""

    kernel: Lowered
    outputs: Mapping[str, Buffer]
    changing: set[str]
    of_threads: set[str]
    named: Names
    staged: list[Shared] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shared = self.kernel.shared

    def body(self, items: Sequence[Statement]) -> Body:
        """The same statements, where all threads of a block come to them."""
        if any(isinstance(one, (Skip, Leave)) for one in statements(items)):
            return tuple(items)
        return tuple(new for one in items for new in self.statement(one))

    def statement(self, one: Statement) -> Iterator[Statement]:
        rows = self.rows(one)
        if rows is not None:
            yield from self.stored(one, rows)
        elif (
            isinstance(one, Group)
            or (isinstance(one, For) and self.is_common(one))
            or (isinstance(one, If) and self.is_common_branch(one))
        ):
            yield replace(one, body=self.body(one.body))
        else:
            yield one

    def is_common(self, one: For) -> bool:
        return self.same(one.start) and self.same(one.stop)

    def is_common_branch(self, one: If) -> bool:
        return one.given is None and not one.others and self.same(one.condition)

    def same(self, expr: Expr) -> bool:
        """Whether a value is the same for all threads of a block."""
        loads = any(isinstance(part, Load) for part in every([expr]))
        return not loads and self.of_threads.isdisjoint(names(expr))

    def rows(self, one: Statement) -> _Rows | None:
        """The rows of a frame in which thread number `row` of the block, or of a pass, takes row
        `row`."""
        if isinstance(one, For):
            whole = one.step == self.kernel.block and not one.down and one.start == THREAD
            if not whole or not self.same(one.stop):
                return None
            return _Rows(one.variable, one.type, one.stop, one.body, True)
        if not isinstance(one, If) or one.others or one.given is None:
            return None
        given, condition = one.given, one.condition
        if given.value != THREAD or not isinstance(given.type, IndexType):
            return None
        if not isinstance(condition, Infix) or condition.operator != "<":
            return None
        row, limit = condition.operands
        if row != Name(given.name) or not self.same(limit):
            return None
        return _Rows(given.name, given.type, limit, one.body, False)

    def stored(self, one: Statement, rows: _Rows) -> Iterator[Statement]:
        """A frame of rows, and what stores the records that it leaves in shared memory."""
        chosen = list(self.chosen(rows))
        if not chosen:
            yield one
            return
        place = self.named.new("place") if rows.passes else rows.variable
        instead: dict[int, Store] = {}
        copies: list[tuple[_Records, str]] = []
        for records in chosen:
            name = self.named.new(f"{records.buffer.name}_staged")
            size = self.kernel.block * records.pitch
            offset = -(-self.shared // UNIT) * UNIT
            kind = records.buffer.type
            self.staged.append(Shared(kind, name, offset, size))
            self.shared = offset + size * kind.bytes
            copies.append((records, name))
            own = variable(place, self.kernel.block) * records.pitch
            for store, position in records.stores.items():
                instead[id(store)] = Store(name, Integer(own + position), store.value)
        body = tuple(_replaced(rows.body, instead))
        if not rows.passes:
            assert isinstance(one, If)
            yield replace(one, body=body)
            yield from (self.copy(r, name, rows.limit, Index()) for r, name in copies)
            return
        assert isinstance(one, For)
        base = self.named.new(f"{rows.variable}_base")
        at = infix("+", Name(base), Name(place))
        row = Let(rows.type, rows.variable, at)
        inner = If(infix("<", at, rows.limit), Let(rows.type, place, THREAD), (row, *body))
        left = least(None, self.kernel.block, infix("-", rows.limit, Name(base)))
        count = self.named.new("count")
        begin = variable(base, 1 << 31)
        yield For(
            rows.type,
            base,
            number(0),
            rows.limit,
            step=self.kernel.block,
            body=(
                inner,
                Let(rows.type, count, left),
                *(self.copy(r, name, Name(count), begin) for r, name in copies),
            ),
        )

    def copy(self, records: _Records, name: str, rows: Expr, base: Index) -> For:
        """What stores the records of `rows` from row `base` on."""
        length, buffer = records.length, records.buffer
        item = variable(self.named.new("i"), self.kernel.block * length)
        near = item if records.pitch == length else item + item // length
        at = records.start + base * length + item
        store = Store(buffer.name, Integer(at), Load(Name(name), Integer(near)))
        stop = infix("*", rows, length)
        [(term, _)] = item.terms
        assert isinstance(term, Var)
        return For(INT, term.name, THREAD, stop, step=self.kernel.block, body=(store,))

    def chosen(self, rows: _Rows) -> Iterator[_Records]:
        """The records that are worth it, the longest first, as far as shared memory goes."""
        left = MOST_SHARED - self.shared
        found = sorted(self.records(rows), key=lambda r: -r.length * r.buffer.type.bytes)
        for records in found:
            bytes_ = UNIT + self.kernel.block * records.pitch * records.buffer.type.bytes
            if bytes_ <= left:
                left -= bytes_
                yield records

    def records(self, rows: _Rows) -> Iterator[_Records]:
        """The outputs of which a frame stores whole records, one after the other by row."""
        inner = {one.name for one in every(rows.body) if isinstance(one, Let)}
        known: dict[str, Index] = {}
        stores: dict[str, list[tuple[Store, Index | None]]] = {}
        for one in _always(rows.body):
            if isinstance(one, Let) and isinstance(one.value, Integer):
                known[one.name] = _by(one.value.index, known)
            elif isinstance(one, Store) and one.buffer in self.outputs:
                index = _by(one.address.index, known) if isinstance(one.address, Integer) else None
                stores.setdefault(one.buffer, []).append((one, index))
        everywhere = (s for s in statements(rows.body) if isinstance(s, (Store, StoreVector)))
        writes = Counter(one.buffer for one in everywhere)
        for name, found in stores.items():
            if writes[name] == len(found) and (
                made := self.record(name, found, rows.variable, inner)
            ):
                yield made

    def record(
        self,
        name: str,
        found: Sequence[tuple[Store, Index | None]],
        row: str,
        inner: set[str],
    ) -> _Records | None:
        """What stores to an output write, if these are records."""
        length, buffer, bases = len(found), self.outputs[name], set[Any]()
        positions: dict[Store, int] = {}
        for store, index in found:
            if index is None:
                return None
            own = [(t, step) for t, step in index.terms if row in _names(t)]
            rest = tuple((t, step) for t, step in index.terms if row not in _names(t))
            by_row = len(own) == 1 and isinstance(own[0][0], Var) and own[0][1] == length
            used = {n for t, _ in rest for n in _names(t)}
            if not by_row or used & (inner | self.of_threads | self.changing):
                return None
            bases.add(rest)
            positions[store] = index.const
        first = min(positions.values())
        whole = sorted(positions.values()) == list(range(first, first + length))
        if len(bases) > 1 or not whole or not _is_worth_it(buffer, length, first, bases):
            return None
        places = {store: at - first for store, at in positions.items()}
        [rest] = bases
        return _Records(buffer, Index(rest, first), length, places)


def _is_worth_it(buffer: Buffer, length: int, first: int, bases: Iterable[Any]) -> bool:
    """Whether the hardware would not join the stores of a warp."""
    size = length * buffer.type.bytes
    vector = max(1, UNIT // buffer.type.bytes)
    steps = (step for terms in bases for _, step in terms)
    aligned = not any(n % vector for n in (length, first, *steps))
    return size > (JOINED_VECTORS if aligned else JOINED)


def _by(index: Index, known: Mapping[str, Index]) -> Index:
    """An index by what is known outside of a frame."""
    values = {v: known[v.name] for v in index.variables if v.name in known}
    return substituted(index, values) if values else index


def _names(term: Any) -> set[str]:
    """The variables of a term of an index."""
    return {v.name for v in Index(((term, 1),)).variables}


def _always(body: Iterable[Statement]) -> Iterator[Statement]:
    """The statements that every row comes to once."""
    for one in body:
        if isinstance(one, Group):
            yield from _always(one.body)
        else:
            yield one


def _replaced(body: Iterable[Statement], instead: Mapping[int, Store]) -> Iterator[Statement]:
    for one in body:
        if isinstance(one, Group):
            yield replace(one, body=tuple(_replaced(one.body, instead)))
        else:
            yield instead.get(id(one), one) if isinstance(one, Store) else one
