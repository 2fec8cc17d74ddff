"""What moves elements that stand for intervals: slices, pads, reshapes, reversals, broadcasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fusionstitch.codegen.rewrite.scan_facts import Array, Fact, Known, Rows, common
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.rewrite import splat

#: Runs of dims of as many elements, before and after a reshape.
Groups = list[tuple[list[int], list[int]]]


def slice_(known: Known, op: Op) -> Iterator[Fact]:
    """Elements with a stride, from a start to a limit."""
    x, attrs = op.operands[0], op.attrs
    bounds = list(zip(attrs["start"], attrs["limit"], attrs["stride"], strict=True))
    cut = [d for d, b in enumerate(bounds) if b != (0, x.dims[d], 1)]
    at = tuple(slice(*b) if d in cut else slice(None) for d, b in enumerate(bounds))

    def move(a: Array) -> Array:
        return np.asarray(a[at])

    for fact in known.of(x, *_alone(cut)):
        if fact.varies(cut):
            yield fact.moved(move, fact.rows)


def reverse(known: Known, op: Op) -> Iterator[Fact]:
    """Elements from the last one to the first."""
    dims = tuple(op.attrs["dimensions"])

    def move(a: Array) -> Array:
        return np.flip(a, dims)

    for fact in known.of(op.operands[0], *_alone(dims)):
        if fact.varies(dims):
            yield fact.moved(move, fact.rows)


def pad(known: Known, op: Op) -> Iterator[Fact]:
    """Elements with a value before, after and between them, or without those at the edges."""
    x, fill = op.operands[0], splat(op.operands[1])
    edges = list(zip(*(op.attrs[k] for k in ("low", "high", "interior")), strict=True))
    cut = [d for d, e in enumerate(edges) if any(e)]
    if fill is None:
        return
    value = float(fill)

    def move(a: Array) -> Array:
        for d in cut:
            a = _padded(a, d, (x.dims[d], *edges[d]), value if a.dtype.kind == "f" else 0)
        return a

    for fact in known.of(x, *_alone(cut)):
        if fact.varies(d for d in cut if x.dims[d] > 1):
            yield fact.moved(move, fact.rows)


def _padded(a: Array, dim: int, edges: tuple[int, int, int, int], value: float) -> Array:
    """`a` with so many elements more before, after and between its own along a dim; less of them
    where that is negative."""
    count, low, high, gap = edges
    size = (count - 1) * (gap + 1) + 1
    longer = size + max(low, 0) + max(high, 0)
    wider = np.full([longer if d == dim else n for d, n in enumerate(a.shape)], value, a.dtype)
    at = [slice(None)] * a.ndim
    at[dim] = slice(max(low, 0), max(low, 0) + size, gap + 1)
    wider[tuple(at)] = a
    at[dim] = slice(max(-low, 0), longer - max(-high, 0))
    return np.asarray(wider[tuple(at)])


def concatenate(known: Known, op: Op) -> Iterator[Fact]:
    """What follows each other, constants among them."""
    axis = op.attrs["dimension"]
    fills = [splat(o) for o in op.operands]
    pairs = list(zip(op.operands, fills, strict=True))
    facts = [[] if fill is not None else list(known.of(o, (axis,))) for o, fill in pairs]
    for first in next((some for some in facts if some), []):
        parts: list[Fact] = []
        for (o, fill), some in zip(pairs, facts, strict=True):
            if fill is not None:
                parts.append(_constant(first, o, axis, float(fill)))
            else:
                parts += [f for f in some if f.alike(first) and common([f, first])][:1]
        joined = common(parts)
        shapes = {p.low.shape[:axis] + p.low.shape[axis + 1 :] for p in parts}
        if len(parts) == len(pairs) and joined is not None and len(shapes) == 1:
            full = zip(parts, op.operands, strict=True)
            if all(p.low.shape[axis] == o.dims[axis] for p, o in full):
                yield joined.chosen(lambda of, ps=parts: _joined(ps, of, axis))  # type: ignore[misc]


def _joined(parts: Sequence[Fact], of: Callable[[Fact], Array], axis: int) -> Array:
    return np.concatenate([of(part) for part in parts], axis)


def _constant(fact: Fact, op: Op, axis: int, value: float) -> Fact:
    """Of a constant beside values of which `fact` is one: nothing is joined in it."""
    shape = tuple(n if d == axis else 1 for d, n in enumerate(op.dims))
    none = np.zeros(shape, np.int64)
    source = fact.source, fact.axes, fact.rows
    return Fact(*source, none, none, np.full(shape, value))


def reshape(known: Known, op: Op) -> Iterator[Fact]:
    """Dims as one, or a dim as several, in the order of their elements."""
    x = op.operands[0]
    groups = _groups(x.dims, op.dims)
    split = [tuple(a) for a, b in groups if len(a) == 1 and sum(op.dims[d] > 1 for d in b) > 1]
    for fact in known.of(x, *split):
        found = _reshaped(fact, x, op, groups)
        if found is not None:
            yield found


def _reshaped(fact: Fact, x: Op, op: Op, groups: Groups) -> Fact | None:
    shape = [1] * op.shape.rank
    rows: list[int | None] = [None] * op.shape.rank
    for before, after in groups:
        large = [d for d in before if x.dims[d] > 1]
        varies = [fact.low.shape[d] > 1 for d in large]
        ours = [d for d in after if op.dims[d] > 1]
        if varies and all(varies):
            for d in after:
                shape[d] = op.dims[d]
        elif any(varies) or len(large) != len(ours) or len(large) > 1:
            return None
        elif large:
            rows[ours[0]] = fact.rows[large[0]]
    return fact.moved(lambda a: a.reshape(shape), tuple(rows))


def _groups(before: Sequence[int], after: Sequence[int]) -> Groups:
    found: Groups = []
    i = j = 0
    while i < len(before) or j < len(after):
        a: list[int] = []
        b: list[int] = []
        m = n = 1
        while not (a or b) or m != n:
            if (m <= n and i < len(before)) or j == len(after):
                m *= before[i]
                a.append(i)
                i += 1
            else:
                n *= after[j]
                b.append(j)
                j += 1
        found.append((a, b))
    return found


def broadcast(known: Known, op: Op) -> Iterator[Fact]:
    """Elements that are the same along new dims."""
    dims = op.attrs["dimensions"]
    for fact in known.of(op.operands[0]):
        shape = [1] * op.shape.rank
        rows: list[int | None] = [None] * op.shape.rank
        for d, to in enumerate(dims):
            shape[to], rows[to] = fact.low.shape[d], fact.rows[d]
        yield _spread(fact, shape, tuple(rows))


def _spread(fact: Fact, shape: Sequence[int], rows: Rows) -> Fact:
    return fact.moved(lambda a: a.reshape(shape), rows)


def copy(known: Known, op: Op) -> Iterator[Fact]:
    """The same elements."""
    yield from known.of(op.operands[0])


def _alone(dims: Sequence[int]) -> list[tuple[int, ...]]:
    """The one dim that elements are moved along, if it is one."""
    return [tuple(dims)] if len(dims) == 1 else []


MOVES: dict[str, Callable[[Known, Op], Iterator[Fact]]] = {
    "slice": slice_,
    "reverse": reverse,
    "pad": pad,
    "concatenate": concatenate,
    "reshape": reshape,
    "broadcast": broadcast,
    "copy": copy,
}
