"""Sorts of rows, and the largest elements of them, by comparators of two elements.

    sort(x[..., 3])    ->    c = bits of x[i], and i;    low, high = min(c0, c1), max(c0, c1); ...
    sort(x[..., 300])  ->    c = bits of x[i], and i;    sort-rows(c)

An element of a row becomes an unsigned integer. Its upper bits are ordered as the keys are, and its
lower ones are the element's number, which keeps equal keys in their order and says which elements
of other operands belong to them. A network of comparators (K. E. Batcher, Sorting networks and
their applications, 1968) sorts these integers. One thread has a short row in registers, as it has a
small matrix (`small_matrices.py`). Threads share a longer one, `sort-rows`, an op of regions alone:
each row of an array [R, N] in ascending order (`codegen/lower/sorts.py`, `long_rows.py`).

Where nothing but keys is sorted, equal ones need no numbers: by default -0 comes before 0, which
JAX leaves in their order, and takes half as many bits.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence

from fusionstitch.codegen.annotations import annotated
from fusionstitch.codegen.rewrite.bodies import counts
from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.hlo.graph import FLOATS, Graph, Op
from fusionstitch.hlo.orders import Order, folded, order_of
from fusionstitch.hlo.radix_sorts import Sorted, sorted_by
from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Elements of a row that one thread has, at most, and of the longest row.
MOST_ELEMENTS, LONGEST = 16, 1 << 20
#: Elements at one end of a row that are found without sorting it, at most.
MOST_SELECTED = 256
#: Opcodes of sorts, and of what finds the largest elements.
SORTS = ("sort", "topk", "radix-sort")
#: Bits of keys, by type.
BITS = {
    **dict.fromkeys(("pred", "s8", "u8"), 8),
    **dict.fromkeys(("s16", "u16", "f16", "bf16"), 16),
    **dict.fromkeys(("s32", "u32", "f32"), 32),
}
_UNSIGNED = frozenset({"pred", "u8", "u16", "u32"})


def sortable(op: Op) -> Verdict:
    """Whether kernels sort the rows of a `sort`, or find what a `topk` does."""
    x, found = op.operands[0], _sorted_by(op)
    if (elements := x.dims[op.attrs["dimension"]]) > LONGEST:
        return forbid("XLA sorts such long rows.", elements=elements, limit=LONGEST)
    if found is None:
        return forbid("Kernels sort by one key, in an order that says where NaN belongs.")
    if (dtype := found.order.key.dtype) not in BITS:
        return forbid("Kernels do not sort by keys of this type.", dtype=dtype)
    return allow()


def expand_sort(op: Op, strict: bool) -> list[Op] | None:
    """The ops of the only operand of a sort, sorted; None for a sort of several, or one that is not
    `sortable`. `strict`: zeros stay in their order, whatever their signs."""
    if op.shape.is_tuple or not sortable(op):
        return None
    row = _Row(op, op, numbered=strict)
    row.result(0)
    return row.chain.done()


def keys_alone(graph: Graph) -> frozenset[int]:
    """The numbers of the sorts of several operands of which nobody reads more than the keys, in
    order: as XLA's GPU compiler writes a stable sort of one."""
    found = set[int]()
    for op in graph:
        rows = _sorted_by(op) if op.opcode in SORTS else None
        if rows is not None and not rows.packed:
            parts = {user.attrs.get("index") for user in graph.users[op.id]}
            if parts == {rows.order.operand}:
                found.add(op.id)
    return frozenset(found)


def expand_sorted_part(op: Op, alone: Container[int], strict: bool) -> list[Op] | None:
    """The ops of one result of a sort that is `sortable`, of whose results it may be `alone`; None
    for every other op."""
    source, number = op.operands[0], op.attrs["index"]
    if source.opcode not in SORTS or not sortable(source):
        return None
    row = _Row(op, source, numbered=strict or source.id not in alone)
    if source.opcode == "topk":
        found = row.numbers(op.dtype) if number else row.keys()
        row.chain.part(found, row.dim, 0, source.attrs["k"])
    elif number and row.packed:
        row.words(op)
    else:
        row.result(number)
    return row.chain.done()


def _sorted_by(op: Op) -> Sorted | None:
    if op.opcode == "radix-sort":
        return sorted_by(op)
    if op.opcode == "topk":
        [x] = op.operands
        return Sorted(op.operands, Order(0, x, x, op.attrs["largest"]))
    order = order_of(op)
    return None if order is None else Sorted(op.operands, order)


def comparators(n: int) -> Iterator[tuple[int, int]]:
    """What sorts `n` elements: after each pair, the smaller of the two elements comes first."""
    p = 1
    while p < n:
        k = p
        while k:
            for start in range(k % p, n - k, 2 * k):
                for i in range(start, min(start + k, n - k)):
                    if i // (2 * p) == (i + k) // (2 * p):
                        yield i, i + k
            k //= 2
        p *= 2


class _Row:
    """The rows of a sort as integers, and the ops of its results."""

    def __init__(self, op: Op, source: Op, numbered: bool = True):
        rows = _sorted_by(source)
        assert rows is not None  # sortable
        self.chain, self.order = Chain(op), rows.order
        self.dim, self.inputs, self.packed = source.attrs["dimension"], rows.operands, rows.packed
        self.x = rows.operands[rows.order.operand]
        self.bits = BITS[rows.order.key.dtype]
        self.top = 1 << self.bits - 1
        #: of NaN and 0, for which the key has one value, if it is the element otherwise
        self.folded = folded(rows.order)
        self.numbered = numbered or self.folded is None
        #: the bits of an integer below those of the key; the lowest says that 0 is -0
        few = self.bits <= 16 and self.x.dims[self.dim] <= 1 << 15
        self.below = (16 if few else 32) if self.numbered else 0
        self.signed = self.numbered and "zero" in (self.folded or ())

    def result(self, number: int) -> Op:
        """An operand, sorted."""
        x, order = self.inputs[number], self.order
        if number == order.operand and self.folded is not None:
            return self.keys()
        counted = x.operands[0] if x.opcode == "bitcast-convert" else x
        return self.numbers(x.dtype) if counts(counted, (self.dim,)) else self._sorted(x)

    def words(self, op: Op) -> Op:
        """Elements and numbers, sorted, in words of the type of `op`."""
        chain = self.chain
        high, low = self._unsigned(self.result(1)), self.result(2)
        high, low = (chain.make("convert", op.dtype, op.dims, x) for x in (high, low))
        high = chain.like(high, "shift-left", high, chain.splat(self.packed, high))
        return chain.like(high, "or", high, low)

    def keys(self) -> Op:
        """The operand that has the keys, sorted."""
        return self._from_bits(self._sorted())

    def numbers(self, dtype: str) -> Op:
        """The numbers of the elements, sorted."""
        chain, found = self.chain, self._sorted()
        number = chain.like(found, "and", found, chain.splat((1 << self.below) - 1, found))
        if self.signed:
            number = chain.like(found, "shift-right-logical", number, chain.splat(1, found))
        return chain.make("convert", dtype, found.dims, number)

    def _sorted(self, x: Op | None = None) -> Op:
        """The integers, sorted; or `x`, with its elements where those are that have their
        numbers."""
        if self.x.dims[self.dim] > MOST_ELEMENTS:
            return self._rows_sorted() if x is None else self._taken(x)
        chain, keys = self.chain, self._elements(self._integers())
        moved = keys if x is None else self._elements(x)
        for i, j in comparators(len(keys)):
            a, b = keys[i], keys[j]
            if x is not None:
                u, v, swaps = moved[i], moved[j], chain.compare(b, "LT", a)
                moved[i] = chain.like(u, "select", swaps, v, u)
                moved[j] = chain.like(u, "select", swaps, u, v)
            keys[i], keys[j] = chain.like(a, "minimum", a, b), chain.like(a, "maximum", a, b)
        return self._joined(moved)

    def _rows_sorted(self) -> Op:
        """The integers, sorted by threads that share a row."""
        rows = self._as_rows(self._integers())
        return self._from_rows(self.chain.like(rows, "sort-rows", rows))

    def _taken(self, x: Op) -> Op:
        """The elements of `x` by their numbers, in the order of the sorted integers."""
        chain = self.chain
        rows, numbers = self._as_rows(x), self._as_rows(self.numbers("s32"))
        found = chain.like(
            rows,
            "gather",
            rows,
            numbers,
            offset_dims=(),
            collapsed_slice_dims=(1,),
            start_index_map=(1,),
            index_vector_dim=2,
            operand_batching_dims=(0,),
            start_indices_batching_dims=(0,),
            slice_sizes=(1, 1),
        )
        return self._from_rows(found)

    def _as_rows(self, x: Op) -> Op:
        """`x` as [R, N], in whose rows it is sorted."""
        elements = x.dims[self.dim]
        x = self.chain.in_order(x, self._order())
        return self.chain.make("reshape", x.dtype, (x.shape.size // elements, elements), x)

    def _from_rows(self, rows: Op) -> Op:
        """Such rows in the dims of the operands."""
        chain, order, dims = self.chain, self._order(), self.x.dims
        rows = chain.make("reshape", rows.dtype, tuple(dims[d] for d in order), rows)
        return chain.in_order(rows, tuple(order.index(d) for d in range(len(dims))))

    def _order(self) -> tuple[int, ...]:
        """The dims of the operands, that of the sort last."""
        return (*(d for d in range(self.x.shape.rank) if d != self.dim), self.dim)

    def _elements(self, x: Op) -> list[Op]:
        return [self.chain.part(x, self.dim, i, i + 1) for i in range(x.dims[self.dim])]

    def _joined(self, elements: Sequence[Op]) -> Op:
        if len(elements) == 1:
            return self.chain.part(elements[0], self.dim, 0, 1)
        first = elements[0]
        dims = tuple(len(elements) if d == self.dim else n for d, n in enumerate(first.dims))
        self.chain.make("concatenate", first.dtype, dims, *elements, dimension=self.dim)
        self.chain.ops[-1] = annotated(self.chain.ops[-1], item=True)
        return self.chain.ops[-1]

    def _integers(self) -> Op:
        """The elements as integers."""
        chain, dims = self.chain, self.x.dims
        high = self._to_bits(self._key())
        if not self.numbered:
            return high
        low = chain.make("iota", "u32", dims, dimension=self.dim)
        if self.signed:
            low = chain.like(low, "shift-left", low, chain.splat(1, low))
            raw = self._unsigned(self.x)
            negative = chain.compare(raw, "EQ", chain.splat(self.top, raw))
            low = chain.like(low, "or", low, chain.make("convert", "u32", dims, negative))
        if self.below == 32:
            low, high = (chain.make("convert", "u64", dims, one) for one in (low, high))
        high = chain.like(high, "shift-left", high, chain.splat(self.below, high))
        return chain.like(high, "or", high, low)

    def _key(self) -> Op:
        """The keys of all elements: the ops of the comparator on arrays."""
        chain, x, known = self.chain, self.x, {self.order.element: self.x}
        if self.folded is not None and not self.numbered:
            if "NaN" not in self.folded:
                return x
            unequal = chain.compare(x, "NE", x)
            return chain.like(x, "select", unequal, chain.splat(math.nan, x), x)

        def of(op: Op) -> Op:
            if op not in known:
                if op.opcode == "constant":
                    value = chain.scalar(op.attrs["value"], op.dtype)
                    known[op] = chain.make("broadcast", op.dtype, self.x.dims, value, dimensions=())
                else:
                    operands = [of(one) for one in op.operands]
                    known[op] = chain.make(op.opcode, op.dtype, self.x.dims, *operands, **op.attrs)
            return known[op]

        return of(self.order.key)

    def _unsigned(self, x: Op) -> Op:
        """The bits of `x` as integers of 32."""
        chain, own = self.chain, f"u{self.bits}"
        if x.dtype not in _UNSIGNED:
            x = chain.make("bitcast-convert", own, x.dims, x)
        return x if x.dtype == "u32" else chain.make("convert", "u32", x.dims, x)

    def _flipped(self, bits: Op, which: int) -> Op:
        """Integers with these of their bits the other way round."""
        return self.chain.like(bits, "xor", bits, self.chain.splat(which, bits))

    def _to_bits(self, key: Op) -> Op:
        """Integers of as many bits as keys have, in the order of the sort."""
        chain, bits, top, all_ = self.chain, self._unsigned(key), self.top, 2 * self.top - 1
        if key.dtype in FLOATS:
            limit = chain.splat(top, bits)
            negative, positive = (
                chain.compare(bits, "GE", limit),
                chain.like(bits, "or", bits, limit),
            )
            bits = chain.like(bits, "select", negative, self._flipped(bits, all_), positive)
        elif key.dtype not in _UNSIGNED:
            bits = self._flipped(bits, top)
        return self._flipped(bits, all_) if self.order.descending else bits

    def _from_bits(self, found: Op) -> Op:
        """The elements that were made integers."""
        chain, dtype, bits, top, all_ = self.chain, self.x.dtype, found, self.top, 2 * self.top - 1
        if self.below:
            bits = chain.like(found, "shift-right-logical", found, chain.splat(self.below, found))
        if bits.dtype != "u32":
            bits = chain.make("convert", "u32", bits.dims, bits)
        if self.order.descending:
            bits = self._flipped(bits, all_)
        if dtype in FLOATS:
            positive = chain.compare(bits, "GE", chain.splat(top, bits))
            either = self._flipped(bits, top), self._flipped(bits, all_)
            bits = chain.like(bits, "select", positive, *either)
        elif dtype not in _UNSIGNED:
            bits = self._flipped(bits, top)
        if self.signed:
            sign = chain.make("convert", "u32", found.dims, found)
            sign = chain.like(sign, "shift-left", sign, chain.splat(self.bits - 1, sign))
            sign = chain.like(sign, "and", sign, chain.splat(top, sign))
            bits = chain.like(bits, "or", bits, sign)
        own = f"u{self.bits}" if dtype != "pred" else "pred"
        if own != "u32":
            bits = chain.make("convert", own, bits.dims, bits)
        return bits if own == dtype else chain.make("bitcast-convert", dtype, bits.dims, bits)
