"""Complex numbers as pairs of floats: their real and their imaginary parts.

    c64[N] multiply(x, y)    ->    f32[N] a c - b d,  f32[N] a d + b c

What is complex at the border of a region is an array of pairs there: c64[N] is f32[N, 2], which
lies in memory alike. Inside, the parts are values of their own, so that a thread has a number in
two registers, and what only one part is needed of is not computed of the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.region import rebuilt, with_root
from fusionstitch.hlo.attributes import REPLACE
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: The type of the parts of a complex number.
COMPLEX, PART = "c64", "f32"
#: Ops that do to both parts what they do to a number.
_BOTH = frozenset(
    {
        *("add", "subtract", "negate", "select", "copy"),
        *("broadcast", "reshape", "transpose", "slice", "reverse", "pad", "concatenate"),
        *("gather", "dynamic-slice", "dynamic-update-slice"),
    }
)
#: Ops that add up both parts.
_REDUCING = frozenset({"reduce", "reduce-window", "scatter"})
#: What they join numbers by.
_BY_PARTS = ("add", REPLACE)

Pair = tuple[Op, Op]


def in_pairs(shape: Shape) -> Shape:
    """The type of an array with pairs for complex numbers; any other type as it is."""
    return Shape(PART, (*shape.dims, 2)) if shape.dtype == COMPLEX else shape


def is_complex(op: Op) -> bool:
    """Whether an op gives or takes complex numbers."""
    return any(one.dtype == COMPLEX for one in (op, *op.operands))


def fits_pairs(op: Op) -> Verdict:
    """Whether kernels compute an op of complex numbers."""
    if op.opcode in _REDUCING:
        adds = not op.shape.is_tuple and op.attrs["reducer"] in _BY_PARTS
        return allow() if adds else forbid("Kernels add up complex numbers, and nothing else.")
    if op.opcode in ("parameter", "constant", *_BOTH, *_OF_PAIRS):
        return allow()
    if op.opcode in ("complex", "convert") and op.dtype == COMPLEX:
        return allow()
    return forbid("Kernels have no expression for it.", dtype=COMPLEX)


def split_complex(graph: Graph) -> Graph:
    """A region whose complex numbers are pairs, those that loops carry as well. Raises CodegenError
    for what kernels do not know of them."""
    if not any(op.dtype == COMPLEX for op in graph):
        return graph
    parts = _Parts()
    for op in graph.ops[:-1]:
        parts.take(op)
    joined = {op: parts.joined(op) for op in dict.fromkeys(graph.root.operands)}
    return with_root(graph.name, parts.ops, [joined[op] for op in graph.root.operands])


class _Parts:
    """New ops, in order, and what stands for each op of the region: a value or its parts."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.values: dict[int, Op] = {}
        self.pairs: dict[int, Pair] = {}

    def take(self, op: Op) -> None:
        """Adds what stands for an op."""
        if not is_complex(op):
            self.values[op.id] = rebuilt(op, [self.values[o.id] for o in op.operands])
            self.ops.append(self.values[op.id])
            return
        chain = Chain(op)
        found = self._parts(chain, op)
        self.ops += chain.ops
        if isinstance(found, Op):
            if chain.ops and found is chain.ops[-1]:
                found.name = op.name
            self.values[op.id] = found
        else:
            self.pairs[op.id] = found

    def joined(self, op: Op) -> Op:
        """The value of an output: an array of pairs if it is complex."""
        if op.dtype != COMPLEX:
            return self.values[op.id]
        chain, dims = Chain(op), (*op.dims, 1)
        both = [chain.make("reshape", PART, dims, part) for part in self.pairs[op.id]]
        chain.make("concatenate", PART, (*op.dims, 2), *both, dimension=len(op.dims))
        self.ops += chain.done()
        return chain.ops[-1]

    def _parts(self, chain: Chain, op: Op) -> Op | Pair:
        if not fits_pairs(op):
            what = f"{op.opcode} of complex numbers"
            raise CodegenError(f"{what} cannot be computed inside a kernel: leave it to XLA.")
        if op.opcode == "parameter":
            fields = op.opcode, in_pairs(op.shape), (), op.attrs, op.name, op.origin, (), op.source
            chain.ops.append(whole := Op(*fields))
            last = len(op.dims)
            parts = [chain.part(whole, last, i, i + 1) for i in (0, 1)]
            return _pair(chain.make("reshape", PART, op.dims, part) for part in parts)
        if op.opcode == "constant":
            value = op.attrs["value"]
            return _pair(_constant(chain, op, part) for part in (value.real, value.imag))
        if op.opcode in _BOTH or op.opcode in _REDUCING:
            sides = [[self._side(o, side) for o in op.operands] for side in (0, 1)]
            return _pair(chain.make(op.opcode, PART, op.dims, *one, **op.attrs) for one in sides)
        if op.opcode == "complex":
            return _pair(self.values[o.id] for o in op.operands)
        if op.opcode == "convert":
            [x] = op.operands
            if x.dtype == COMPLEX:
                return self.pairs[x.id]
            real = self.values[x.id]
            if real.dtype != PART:
                real = chain.make("convert", PART, real.dims, real)
            return real, chain.splat(0, real)
        return _OF_PAIRS[op.opcode](chain, op, [self.pairs[o.id] for o in op.operands])

    def _side(self, op: Op, side: int) -> Op:
        return self.pairs[op.id][side] if op.dtype == COMPLEX else self.values[op.id]


def _pair(parts: Iterable[Op]) -> Pair:
    real, imag = parts
    return real, imag


def _constant(chain: Chain, op: Op, part: Any) -> Op:
    value = part.astype("float32")
    value.flags.writeable = False
    return chain.make("constant", PART, op.dims, value=value)


# ---- arithmetic ----------------------------------------------------------------------------------


def _multiply(chain: Chain, op: Op, given: Sequence[Pair]) -> Pair:
    (a, b), (c, d) = given
    two = chain.like
    real = two(a, "subtract", two(a, "multiply", a, c), two(a, "multiply", b, d))
    return real, two(a, "add", two(a, "multiply", a, d), two(a, "multiply", b, c))


def _divide(chain: Chain, op: Op, given: Sequence[Pair]) -> Pair:
    """By the larger part of the divisor (R. L. Smith, Algorithm 116, 1962), so that nothing
    overflows but the quotient. By zero each part is divided by zero."""
    (a, b), (c, d) = given
    two = chain.like
    size_c, size_d = two(c, "abs", c), two(d, "abs", d)
    real_larger = chain.compare(size_c, "GE", size_d)

    def either(x: Op, y: Op) -> Op:
        return two(x, "select", real_larger, x, y)

    ratio = two(c, "divide", either(d, c), either(c, d))
    scale = two(c, "add", either(c, d), two(c, "multiply", either(d, c), ratio))
    along_a, along_b = two(a, "multiply", a, ratio), two(b, "multiply", b, ratio)
    real = two(a, "add", either(a, along_a), either(along_b, b))
    imag = two(a, "subtract", either(b, along_b), either(along_a, a))
    real, imag = two(a, "divide", real, scale), two(a, "divide", imag, scale)
    nothing = chain.splat(0, c)
    no_c, no_d = (chain.compare(size, "EQ", nothing) for size in (size_c, size_d))
    by_zero = two(no_c, "and", no_c, no_d)
    return _pair(
        two(a, "select", by_zero, two(a, "divide", part, c), found)
        for part, found in ((a, real), (b, imag))
    )


def _abs(chain: Chain, op: Op, given: Sequence[Pair]) -> Op:
    """The larger part times a root of at most two: no square overflows or vanishes."""
    [(a, b)] = given
    two = chain.like
    a, b = two(a, "abs", a), two(b, "abs", b)
    large, small = two(a, "maximum", a, b), two(a, "minimum", a, b)
    one, nothing, infinite = (chain.splat(value, a) for value in (1, 0, math.inf))
    ratio = two(a, "divide", small, large)
    root = two(a, "sqrt", two(a, "add", one, two(a, "multiply", ratio, ratio)))
    size = two(a, "multiply", large, root)
    size = two(a, "select", chain.compare(large, "EQ", nothing), large, size)
    return two(a, "select", chain.compare(large, "EQ", infinite), infinite, size)


def _compare(chain: Chain, op: Op, given: Sequence[Pair]) -> Op:
    (a, b), (c, d) = given
    direction = op.attrs["direction"]
    parts = chain.compare(a, direction, c), chain.compare(b, direction, d)
    return chain.like(parts[0], "and" if direction == "EQ" else "or", *parts)


def _dot(chain: Chain, op: Op, given: Sequence[Pair]) -> Pair:
    (a, b), (c, d) = given

    def product(x: Op, y: Op) -> Op:
        return chain.make("dot", PART, op.dims, x, y, **op.attrs)

    real = chain.make("subtract", PART, op.dims, product(a, c), product(b, d))
    return real, chain.make("add", PART, op.dims, product(a, d), product(b, c))


#: What else is known of complex numbers: the parts of a result, or a result that is real.
_OF_PAIRS: Mapping[str, Callable[[Chain, Op, Sequence[Pair]], Op | Pair]] = {
    "real": lambda chain, op, given: given[0][0],
    "imag": lambda chain, op, given: given[0][1],
    "multiply": _multiply,
    "divide": _divide,
    "abs": _abs,
    "compare": _compare,
    "dot": _dot,
}
