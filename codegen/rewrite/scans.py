"""Scans by a reducer, as running reductions.

get-tuple-element(scan(x, init), 0)  ->  reduce-window(x) whose windows hold all before
get-tuple-element(scan(x, init), 1)  ->  reduce(x)
"""

from __future__ import annotations

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.text.expressions import FUNCTORS, identity
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.verdict import Verdict, allow, forbid


def runnable(op: Op) -> Verdict:
    """Whether a scan is a running reduction of one value."""
    reducer = op.attrs["reducer"]
    if reducer not in FUNCTORS or len(op.operands) != 2:
        return forbid("It scans by a body of its own.")
    if splat(op.operands[1]) != identity(reducer, op.operands[0].dtype):
        return forbid("Its scan starts from another value than the reducer's neutral one.")
    return allow()


def expand_scan_part(op: Op) -> list[Op] | None:
    """The ops that stand for one result of a scan that is `runnable`; None for every other op."""
    scan = op.operands[0]
    if scan.opcode != "scan" or not runnable(scan):
        return None
    chain, x = Chain(op), scan.operands[0]
    dim, reducer = scan.attrs["dimension"], scan.attrs["reducer"]
    init = chain.scalar(identity(reducer, x.dtype), x.dtype)
    if op.attrs["index"] == 1:
        chain.like(op, "reduce", x, init, dimensions=(dim,), reducer=reducer)
        return chain.done()
    rank, n = range(x.shape.rank), x.dims[dim]
    ones = tuple(1 for _ in rank)
    none, before = tuple(0 for _ in rank), tuple(n - 1 if d == dim else 0 for d in rank)
    chain.like(
        op,
        "reduce-window",
        x,
        init,
        size=tuple(n if d == dim else 1 for d in rank),
        low=none if scan.attrs["reverse"] else before,
        high=before if scan.attrs["reverse"] else none,
        **dict.fromkeys(("stride", "base_dilation", "window_dilation"), ones),
        reducer=reducer,
    )
    return chain.done()
