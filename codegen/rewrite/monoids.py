"""Reductions by bodies of the user's own, of one value or of several at once.

A body becomes a function object of the kernel, like those of "reduce.cuh", and several values
travel as one record, so that every schedule of a plain reduction serves these too:

    (a, b) = reduce(x, y, inits), body  ->  r = reduce(record(x, y), record(inits)), functor
    get-tuple-element(reduce, 0)        ->  member(r, 0)

Bodies that may join values in any order (`rewrite/bodies.py`) do so, each partial result starting
from the inits. All others join in the order of the elements: one thread per row, or runs of a long
row first (`codegen/rewrite/runs.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fusionstitch.codegen.rewrite.bodies import Laws, laws
from fusionstitch.codegen.rewrite.runs import MOST_IN_A_RUN, MOST_IN_RUNS, in_runs, joined
from fusionstitch.codegen.text.expressions import (
    Spelt,
    combine,
    expression,
    identity,
    literal,
    spelt_number,
    supported,
)
from fusionstitch.codegen.text.source import comment
from fusionstitch.codegen.text.types import C_TYPES, c_type, record
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Bytes of the largest record that threads exchange.
MOST_BYTES = 32


@dataclass(frozen=True)
class Monoid:
    """What joins the values of a reduction: a C function object, its definition, and the C text of
    the value to start from, and whether one thread must join all elements of a row in order."""

    functor: str
    source: str
    identity: str
    in_order: bool = False
    #: the first member of its records says whether there is anything in them
    in_runs: bool = False


def in_order(op: Op) -> bool:
    """Whether a reduction's elements must be joined in their order."""
    reducer = op.attrs.get("reducer")
    return isinstance(reducer, Monoid) and reducer.in_order


def joins(op: Op) -> tuple[str, str]:
    """What a reduction starts from as C text, and the name of its functor."""
    reducer = op.attrs["reducer"]
    if isinstance(reducer, Monoid):
        return reducer.identity, reducer.functor
    start, functor = combine(reducer, op.dtype)
    init = splat(op.operands[-1])
    if init is not None and init == identity(reducer, op.dtype):  # a sum may start from -0
        start = literal(init, op.dtype)
    return start, functor


def expressible(op: Op) -> Verdict:
    """Whether kernels can reduce by the body of a reduce without a known reducer."""
    inputs, inits = _halves(op)
    if not op.called:
        return forbid("Its reducer is not known.")
    if any(x.dtype not in C_TYPES for x in inputs):
        return forbid("Kernels have no such element type.")
    if any(splat(init) is None for init in inits):
        return forbid("What its reduction starts from is computed.")
    together = ["pred"] * _long(op) + [x.dtype for x in inputs]
    if len(together) > 1 and c_type(record(together)).bytes > MOST_BYTES:
        return forbid("It reduces more values at once than threads exchange.", limit=MOST_BYTES)
    for inner in op.called[0]:
        kind = kind_of(inner.opcode)
        known = kind is Kind.ELEMENTWISE and inner.shape.rank == 0 and supported(inner)
        if not (known or inner.opcode in ("parameter", "constant") or inner is op.called[0].root):
            return forbid("Its reducer computes more than elementwise ops.", op=inner.opcode)
    found, steps = laws_of(op), _steps(op)
    if found.free or steps <= MOST_IN_A_RUN:
        return allow()
    why = "Its reducer's values must be joined in order, and there are too many for "
    if not found.regroups:
        return forbid(f"{why}one thread.", elements=steps, limit=MOST_IN_A_RUN)
    if steps > MOST_IN_RUNS:
        return forbid(f"{why}runs of neighbours.", elements=steps, limit=MOST_IN_RUNS)
    return allow()


def _long(op: Op) -> bool:
    """Whether a reduce is one of runs."""
    return _steps(op) > MOST_IN_A_RUN and not laws_of(op).free


def laws_of(op: Op) -> Laws:
    """What holds for the body of a reduce, or of one over windows."""
    return laws(op.called[0], *_halves(op), op.attrs.get("dimensions", ()))


def _steps(op: Op) -> int:
    """Elements that are joined for each result."""
    if op.opcode == "reduce":
        return math.prod(op.operands[0].dims[d] for d in op.attrs["dimensions"])
    return math.prod(op.attrs["size"])


def functors(graphs: Iterable[Graph]) -> list[str]:
    """The definitions that the reductions of a kernel's regions need, each once."""
    used = (op.attrs["reducer"] for graph in graphs for op in graph if op.opcode == "reduce")
    return list({m.functor: m.source for m in used if isinstance(m, Monoid)}.values())


class Monoids:
    """The rules of one region; equal bodies share a functor."""

    def __init__(self, numerics: str):
        self.numerics = numerics
        self.known: dict[str, str] = {}

    def expand_reduce(self, op: Op) -> list[Op] | None:
        """A reduce by any body as one of records by a functor."""
        if op.attrs["reducer"] is not None:
            return None
        if not (found := expressible(op)):
            why = found.reason
            raise CodegenError(f"Kernels cannot reduce as {op.name}: leave it to XLA. {why}")
        inputs, inits = _halves(op)
        if _long(op):
            return in_runs(op, inputs, inits, lambda dtype, last: self.run(op, dtype, last))
        if len(inputs) == 1:
            start = literal(splat(inits[0]), inits[0].dtype)
            attrs = {**op.attrs, "reducer": self.monoid(op, op.dtype, start)}
            return [Op("reduce", op.shape, op.operands, attrs, op.name, op.origin, (), op.source)]
        dtype = _record(inputs)
        members = ", ".join(literal(splat(init), init.dtype) for init in inits)
        packed = [
            Op("record", Shape(dtype, parts[0].dims), parts, name=f"{op.name}_record")
            for parts in (inputs, inits)
        ]
        attrs = {
            **op.attrs,
            "reducer": self.monoid(op, dtype, f"{c_type(dtype).compute}{{{members}}}"),
        }
        shape = Shape(dtype, op.shape.elements[0].dims)
        result = Op("reduce", shape, tuple(packed), attrs, op.name, source=op.source)
        return [*packed, result]

    def expand_member(self, op: Op) -> list[Op] | None:
        """A part of such a reduce."""
        [whole] = op.operands
        if whole.opcode != "reduce":
            return None
        index = {"index": op.attrs["index"] + whole.attrs["reducer"].in_runs}
        return [Op("member", op.shape, (whole,), index, op.name, op.origin, (), op.source)]

    def monoid(self, op: Op, dtype: str, identity: str) -> Monoid:
        compute = c_type(dtype).compute
        found = laws_of(op)
        body = _body(op.called[0], dtype, self.numerics)
        text = [*_turned(found.index, len(op.operands), compute), *body]
        return self.functor(op, dtype, text, Monoid("", "", identity, not found.free))

    def run(self, op: Op, dtype: str, last: bool) -> Monoid:
        """What joins runs of a long reduction, from nothing or, the `last` time, from the inits."""
        compute = c_type(dtype).compute
        inits = (literal(splat(init), init.dtype) for init in _halves(op)[1])
        identity = f"{compute}{{{', '.join([str(last).lower(), *inits])}}}"
        body = joined(_body(op.called[0], dtype, self.numerics, first=1))
        return self.functor(op, dtype, body, Monoid("", "", identity, True, True))

    def functor(self, op: Op, dtype: str, body: Sequence[str], monoid: Monoid) -> Monoid:
        """`monoid` with the function object that `body` is the text of."""
        compute = c_type(dtype).compute
        lines = [
            f"  static FS_METHOD {compute} apply({compute} a, {compute} b) {{",
            *(f"    {line}" for line in body),
            "  }",
        ]
        if not monoid.in_order:
            lines += [
                f"  template <class>\n  static FS_METHOD {compute} identity() {{",
                f"    return {monoid.identity};",
                "  }",
            ]
        text = "\n".join(lines)
        name = self.known.setdefault(text, f"FsJoin{len(self.known)}")
        about = comment(f"How {op.name or 'a reduction'} joins two partial results.")
        source = f"{about}\nstruct {name} {{\n{text}\n}};\n"
        return replace(monoid, functor=name, source=source)


def _turned(index: int | None, operands: int, compute: str) -> Sequence[str]:
    """C statements that make `a` the record of the element that comes first."""
    if index is None:
        return ()
    a, b = (x if operands == 2 else f"fs_get<{index}>({x})" for x in "ab")
    return (
        f"if ({b} < {a}) {{  // the order of the elements",
        f"  const {compute} first = b;",
        "  b = a;",
        "  a = first;",
        "}",
    )


def _halves(op: Op) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    half = len(op.operands) // 2
    return op.operands[:half], op.operands[half:]


def _record(inputs: Iterable[Op]) -> str:
    return record([x.dtype for x in inputs])


def _body(body: Graph, dtype: str, numerics: str, first: int = 0) -> Sequence[str]:
    """C statements that return what a reducer's graph computes of `a` and `b`, whose members
    before the `first` are none of its values but true. Floats of 16 bits are rounded: the body may
    compare them."""
    half = len(body.parameters) // 2
    compute = c_type(dtype).compute
    spelt: dict[Op, Spelt] = {}
    lines: list[str] = []
    for op in body:
        if op.opcode == "parameter":
            side, number = divmod(op.attrs["index"], half)
            alone = half == 1 and not first
            own = "ab"[side]
            spelt[op] = Spelt(own if alone else f"fs_get<{first + number}>({own})")
        elif op.opcode == "constant":
            spelt[op] = spelt_number(literal(splat(op), op.dtype))
        elif op.opcode != "tuple":
            name = f"{op.opcode.replace('-', '_')}_{op.id}"
            own = "strict" if op.dtype in ("bf16", "f16") else numerics
            value = expression(op, [spelt[o] for o in op.operands], own).text
            lines.append(f"const {c_type(op.dtype).compute} {name} = {value};")
            spelt[op] = Spelt(name)
    root = body.root
    parts = [spelt[o].text for o in (root.operands if root.opcode == "tuple" else (root,))]
    record = ["true"] * first + parts
    result = record[0] if len(record) == 1 else f"{compute}{{{', '.join(record)}}}"
    return [*lines, f"return {result};"]
