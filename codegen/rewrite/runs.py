"""Long reductions whose values must be joined in their order: by runs of neighbours.

    reduce(x[R, N])  ->  reduce(reduce(runs[R, N / L, L]))

One thread joins the elements of a run, one after the other, and then one thread the results of the
runs, in their order. A run without an element yet, or with padding instead of one, is neither an
element nor an init. The first value of every record says whether it holds anything, and the functor
returns the other record if not. So the init is joined once, in front of the first element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.text.types import record
from fusionstitch.hlo.graph import Op, Shape

#: Elements that one thread joins at most, and fewer than which make no run.
MOST_IN_A_RUN, LEAST_IN_A_RUN = 512, 16
#: Elements of the longest reduction: more would take runs of runs of runs.
MOST_IN_RUNS = MOST_IN_A_RUN**2

#: Makes what joins records of a type: from that type, and whether it starts from the inits.
Joining = Callable[[str, bool], object]


def extents(n: int) -> tuple[int, int]:
    """How many runs `n` elements make, and of how many elements."""
    each = max(LEAST_IN_A_RUN, math.isqrt(n - 1) + 1)
    return -(-n // each), each


def in_runs(op: Op, inputs: Sequence[Op], inits: Sequence[Op], joining: Joining) -> list[Op]:
    """The ops that stand for a reduce of one of the `inputs`; of several, those for the record of
    all: its first member is not one of them."""
    chain = Chain(op)
    dims, summed = inputs[0].dims, sorted(op.attrs["dimensions"])
    kept_dims = [d for d in range(len(dims)) if d not in summed]
    n = math.prod(dims[d] for d in summed)
    shape = tuple(dims[d] for d in kept_dims)
    there = chain.make("broadcast", "pred", (*shape, n), chain.scalar(True, "pred"), dimensions=())
    members = [_split(chain, there, chain.scalar(False, "pred"), n)]
    for x, init in zip(inputs, inits, strict=True):
        members.append(_split(chain, _rows(chain, x, (*kept_dims, *summed), (*shape, n)), init, n))
    dtype = record([member.dtype for member in members])
    values = chain.make("record", dtype, members[0].dims, *members)
    nothing = chain.make("record", dtype, (), chain.scalar(False, "pred"), *inits)
    for last in (False, True):
        values = chain.make(
            "reduce",
            dtype,
            values.dims[:-1],
            values,
            nothing,
            dimensions=(values.shape.rank - 1,),
            reducer=joining(dtype, last),
        )
    if not op.shape.is_tuple:
        chain.make("member", op.dtype, op.dims, values, index=1)
    return chain.done()


def _rows(chain: Chain, x: Op, order: tuple[int, ...], dims: tuple[int, ...]) -> Op:
    """`x` with its dims in that order, and the last of them as one."""
    if order != tuple(range(len(order))):
        moved = tuple(x.dims[d] for d in order)
        x = chain.make("transpose", x.dtype, moved, x, dimensions=order)
    return x if x.dims == dims else chain.make("reshape", x.dtype, dims, x)


def _split(chain: Chain, rows: Op, padding: Op, n: int) -> Op:
    """Rows as rows of runs."""
    count, each = extents(n)
    if missing := count * each - n:
        none = (0,) * rows.shape.rank
        padded = Shape(rows.dtype, (*rows.dims[:-1], n + missing))
        edges = {"low": none, "high": (*none[:-1], missing), "interior": none}
        rows = chain.make("pad", padded.dtype, padded.dims, rows, padding, **edges)
    return chain.make("reshape", rows.dtype, (*rows.dims[:-1], count, each), rows)


def joined(body: Sequence[str]) -> list[str]:
    """C statements that join the records `a` and `b`, of which either may be empty, as `body` joins
    full ones."""
    return [
        "if (!fs_get<0>(b)) {",
        "  return a;  // nothing is there",
        "}",
        "if (!fs_get<0>(a)) {",
        "  return b;",
        "}",
        *body,
    ]
