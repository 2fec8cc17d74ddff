"""Factorisations and solves of small matrices, as arithmetic on their elements.

    L = cholesky(a[..., 3, 3])    ->    l00 = sqrt(a00), l10 = a10 / l00, ... stack(l00, 0, ...)

Each element is a value of its own, of the dims before the matrix: one thread has all of a matrix in
registers, and what is before and after joins in (`sunk.py`, codegen/loops/pieces.py). Rows are
swapped by selects: the matrix is small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.hlo.graph import FLOATS, Op
from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Rows of a matrix, at most, by what is done with it.
MOST_ROWS: Mapping[str, int] = {
    "potrf": 12,
    "getrf": 6,
    "lu-permutation": 6,
    "triangular-solve": 16,
}


def is_small(op: Op) -> Verdict:
    """Whether kernels do what an op does with a matrix, element by element."""
    x, most = op.operands[0], MOST_ROWS[op.opcode]
    if op.opcode == "lu-permutation":
        fits = x.dtype == "s32" and x.dims == op.dims
    else:
        fits = x.dtype in FLOATS and x.dims[-2:] == (x.dims[-1],) * 2
    if not fits:
        return forbid("Kernels factorise square matrices of real numbers alone.")
    if x.dims[-1] > most:
        return forbid("Its matrices have too many rows.", rows=x.dims[-1], limit=most)
    return allow()


class _Elements:
    """Elements of the last dims of values, and values made of them."""

    def __init__(self, op: Op, batch: tuple[int, ...], dtype: str):
        self.chain, self.batch, self.dtype = Chain(op), batch, dtype

    def of(self, x: Op, *at: int | None) -> Op:
        """The element of `x` `at` its last dims, or all along a dim where it is None."""
        chain, before = self.chain, x.shape.rank - len(at)
        for dim, index in enumerate(at, before):
            if index is not None:
                x = chain.part(x, dim, index, index + 1)
        rest = tuple(n for n, index in zip(x.dims[before:], at, strict=True) if index is None)
        return chain.make("reshape", x.dtype, (*x.dims[:before], *rest), x)

    def matrix(self, x: Op) -> list[list[Op]]:
        rows, columns = x.dims[-2:]
        return [[self.of(x, i, j) for j in range(columns)] for i in range(rows)]

    def stacked(self, parts: Sequence[Op], dim: int) -> Op:
        """Values side by side along a new dim, counted from the end."""
        rank = parts[0].shape.rank + 1
        at, chain = rank + dim, self.chain
        pieces = []
        for part in parts:
            dims = (*part.dims[:at], 1, *part.dims[at:])
            pieces.append(chain.make("reshape", part.dtype, dims, part))
        if len(pieces) == 1:
            return pieces[0]
        dims = (*pieces[0].dims[:at], len(pieces), *pieces[0].dims[at + 1 :])
        return chain.make("concatenate", pieces[0].dtype, dims, *pieces, dimension=at)

    def stacked_twice(self, rows: Sequence[Sequence[Op]]) -> Op:
        return self.stacked([self.stacked(row, -1) for row in rows], -2)

    def number(self, value: float, dtype: str = "") -> Op:
        chain, dtype = self.chain, dtype or self.dtype
        scalar = chain.scalar(value, dtype)
        return chain.make("broadcast", dtype, self.batch, scalar, dimensions=())

    def do(self, opcode: str, *operands: Op) -> Op:
        return self.chain.make(opcode, operands[0].dtype, operands[0].dims, *operands)

    def less(self, x: Op, terms: Sequence[tuple[Op, Op]]) -> Op:
        """`x` without the sum of some products."""
        for a, b in terms:
            x = self.do("subtract", x, self.do("multiply", a, b))
        return x

    def either(self, condition: Op, x: Op, y: Op) -> Op:
        return self.chain.make("select", x.dtype, self.batch, condition, x, y)

    def swapped(self, at: Op, k: int, columns: Sequence[list[Op]], dtype: str) -> None:
        """Swaps element k of each column with that of number `at`, which is k or larger."""
        for i in range(k + 1, len(columns[0])):
            here = self.chain.compare(at, "EQ", self.number(i, dtype))
            for column in columns:
                first, other = column[k], column[i]
                column[k] = self.either(here, other, first)
                column[i] = self.either(here, first, other)


def expand_factor_part(op: Op) -> list[Op] | None:
    """The ops of one value that a factorisation gives; None for every other op."""
    source = op.operands[0]
    if source.opcode not in _FACTORS:
        return None
    x = source.operands[0]
    elements = _Elements(op, x.dims[:-2], x.dtype)
    _FACTORS[source.opcode](elements, source)[op.attrs["index"]]()
    return elements.chain.done()


def _potrf(e: _Elements, op: Op) -> list[Callable[[], Op]]:
    a, lower = e.matrix(op.operands[0]), op.attrs["lower"]
    n = len(a)
    found = [list(row) for row in (a if lower else zip(*a, strict=True))]
    pivots = []
    for k in range(n):
        row = found[k]
        pivot = e.less(row[k], [(row[j], row[j]) for j in range(k)])
        pivots.append(pivot)
        row[k] = e.do("sqrt", pivot)
        for i in range(k + 1, n):
            rest = e.less(found[i][k], [(found[i][j], row[j]) for j in range(k)])
            found[i][k] = e.do("divide", rest, row[k])

    def info() -> Op:
        first = e.number(0, "s32")
        for k in reversed(range(n)):
            good = e.chain.compare(pivots[k], "GT", e.number(0))
            first = e.either(good, first, e.number(k + 1, "s32"))
        return first

    rows = found if lower else [list(row) for row in zip(*found, strict=True)]
    return [lambda: e.stacked_twice(rows), info]


def _getrf(e: _Elements, op: Op) -> list[Callable[[], Op]]:
    a = e.matrix(op.operands[0])
    n = len(a)
    columns = [list(column) for column in zip(*a, strict=True)]
    swaps, pivots = [], []
    for k in range(n):
        column = columns[k]
        at, largest = e.number(k, "s32"), e.do("abs", column[k])
        for i in range(k + 1, n):
            size = e.do("abs", column[i])
            larger = e.chain.compare(size, "GT", largest)
            at = e.either(larger, e.number(i, "s32"), at)
            largest = e.either(larger, size, largest)
        e.swapped(at, k, columns, "s32")
        swaps.append(e.do("add", at, e.number(1, "s32")))
        pivots.append(column[k])
        # as LAPACK does, whose matrices without a pivot stay as they are
        none = e.chain.compare(column[k], "EQ", e.number(0))
        scale = e.either(none, e.number(1), column[k])
        for i in range(k + 1, n):
            column[i] = e.do("divide", column[i], scale)
        for later in columns[k + 1 :]:
            for i in range(k + 1, n):
                later[i] = e.less(later[i], [(column[i], later[k])])

    def info() -> Op:
        first = e.number(0, "s32")
        for k in reversed(range(n)):
            none = e.chain.compare(pivots[k], "EQ", e.number(0))
            first = e.either(none, e.number(k + 1, "s32"), first)
        return first

    rows = [[column[i] for column in columns] for i in range(n)]
    return [lambda: e.stacked_twice(rows), lambda: e.stacked(swaps, -1), info]


_FACTORS: Mapping[str, Callable[[_Elements, Op], list[Callable[[], Op]]]] = {
    "potrf": _potrf,
    "getrf": _getrf,
}


def expand_permutation(op: Op) -> list[Op]:
    """The ops of the order that rows have after they were swapped one after the other."""
    [swaps] = op.operands
    e = _Elements(op, swaps.dims[:-1], "s32")
    n = swaps.dims[-1]
    order = [e.number(k) for k in range(n)]
    for k in range(n):
        e.swapped(e.of(swaps, k), k, [order], "s32")
    e.stacked(order, -1)
    return e.chain.done()


def expand_solve(op: Op) -> list[Op]:
    """The ops of a solution by a triangular matrix: rows one after the other, or, where the matrix
    is on the right, columns."""
    matrix, b = op.operands
    attrs, n = op.attrs, matrix.dims[-1]
    e = _Elements(op, matrix.dims[:-2], op.dtype)
    a = e.matrix(matrix)
    # x a = b is a^T x^T = b^T
    transposed = attrs["transposed"] == attrs["left"]
    known = [e.of(b, *((k, None) if attrs["left"] else (None, k))) for k in range(n)]
    along = known[0].shape.rank - 1

    def factor(i: int, j: int) -> Op:
        value = a[j][i] if transposed else a[i][j]
        dims = tuple(range(along))
        return e.chain.make("broadcast", op.dtype, known[0].dims, value, dimensions=dims)

    first_down = attrs["lower"] != transposed
    order = range(n) if first_down else range(n - 1, -1, -1)
    found: dict[int, Op] = {}
    for i in order:
        rest = e.less(known[i], [(factor(i, j), found[j]) for j in found])
        found[i] = rest if attrs["unit"] else e.do("divide", rest, factor(i, i))
    e.stacked([found[i] for i in range(n)], -2 if attrs["left"] else -1)
    return e.chain.done()
