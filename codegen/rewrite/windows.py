"""Reductions over windows, as reductions of a view that holds every window.

    reduce-window(x)                        ->  reduce(windows(pad(x)))
    running sum of x[N], in blocks of B     ->  inner + exclusive(running(inner[:, last]))
                                                where inner is that of reshape(x, [N / B, B])

What pads them is no element: it changes nothing, whatever a window starts from, as under XLA.

The view moves nothing: element (o, w) of it lies at o * stride + w * dilation. A running reduction
over long rows (a window that covers all before an element) so takes 2 B steps an element, and each
level is one reduction of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.monoids import expressible, laws_of
from fusionstitch.codegen.text.expressions import identity
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Elements of a row that are summed one by one in a running reduction.
BLOCK = 32
#: Elements of the largest window that is walked for every result.
MOST = 512


def walkable(op: Op) -> Verdict:
    """Whether kernels reduce the windows of a reduce-window, and reading each whole is worth it."""
    found = _reducible(op)
    if found and _running(op) is None and math.prod(op.attrs["size"]) > MOST:
        return forbid("Its windows are too large to be walked for every element.", limit=MOST)
    return found


def _reducible(op: Op) -> Verdict:
    if op.shape.is_tuple:
        return forbid("Its windows hold several values.")
    found = expressible(op) if op.attrs["reducer"] is None else allow()
    if found and op.attrs["reducer"] is None and _is_padded(op.attrs) and not laws_of(op).free:
        return forbid("Nothing is known that may pad the windows of its reducer.")
    return found


def expand_window(op: Op) -> list[Op]:
    """The ops that replace a reduce-window. Raises CodegenError where there are none: for loops
    that was not checked before."""
    if not (found := _reducible(op)):
        raise CodegenError(f"Kernels cannot reduce as {op.name}: leave it to XLA. {found.reason}")
    chain, (x, init) = Chain(op), op.operands
    dim = _running(op)
    if dim is None:
        _reduced(chain, x, init, op.attrs)
    else:
        _run(chain, x, dim, reverse=op.attrs["low"][dim] == 0)
    return chain.done()


def is_running(op: Op) -> bool:
    """Whether a window holds all elements before one, or all after it, of many."""
    return _running(op) is not None


def _running(op: Op) -> int | None:
    """The dim along which `op` is a running reduction, of more elements than a block."""
    attrs, x = op.attrs, op.operands[0]
    if attrs["reducer"] is None or op.dims != x.dims:
        return None
    [dim, *others] = [d for d, size in enumerate(attrs["size"]) if size > 1] or [-1]
    if dim < 0 or others or attrs["size"][dim] != x.dims[dim] or x.dims[dim] <= BLOCK:
        return None
    plain = all(set(attrs[key]) == {1} for key in ("stride", "base_dilation", "window_dilation"))
    all_before = {attrs["low"][dim], attrs["high"][dim]} == {0, x.dims[dim] - 1}
    own = "f32" if op.dtype == "c64" else op.dtype  # the parts of complex numbers are reduced
    neutral = splat(op.operands[1]) == identity(attrs["reducer"], own)
    return dim if plain and all_before and neutral else None


def _reduced(chain: Chain, x: Op, init: Op, attrs: Mapping[str, Any]) -> Op:
    """The windows that `attrs` (of a reduce-window) say, each reduced."""
    if not x.shape.rank:  # it is its only window
        one = chain.make("reshape", x.dtype, (1,), x)
        return _over(chain, one, init, attrs, ())
    if _is_padded(attrs):
        interior = tuple(d - 1 for d in attrs["base_dilation"])
        x = padded(chain, x, _nothing(chain, init), attrs["low"], attrs["high"], interior)
    along = tuple(d for d, size in enumerate(attrs["size"]) if size > 1) or (0,)
    sizes = tuple(attrs["size"][d] for d in along)
    dims = tuple(
        (n - (size - 1) * dilation - 1) // stride + 1
        for n, size, dilation, stride in zip(
            x.dims, attrs["size"], attrs["window_dilation"], attrs["stride"], strict=True
        )
    )
    window = {
        "along": along,
        "stride": attrs["stride"],
        "dilation": tuple(attrs["window_dilation"][d] for d in along),
    }
    view = chain.make("windows", x.dtype, (*dims, *sizes), x, **window)
    return _over(chain, view, init, attrs, dims)


def _over(chain: Chain, view: Op, init: Op, attrs: Mapping[str, Any], dims: tuple[int, ...]) -> Op:
    """A view of windows reduced to `dims`, which are its first."""
    summed = tuple(range(len(dims), view.shape.rank))
    result = chain.make(
        "reduce", view.dtype, dims, view, init, dimensions=summed, reducer=attrs["reducer"]
    )
    result.called = chain.instead_of.called
    return result


def _is_padded(attrs: Mapping[str, Any]) -> bool:
    """Whether windows have positions without an element."""
    return any((*attrs["low"], *attrs["high"])) or set(attrs["base_dilation"]) != {1}


def _nothing(chain: Chain, init: Op) -> Op:
    """What changes nothing in a reduction: `init`, from which it starts, where that does not."""
    reducer = chain.instead_of.attrs["reducer"]
    if reducer is None:
        return init
    neutral = identity(reducer, init.dtype)
    return init if splat(init) == neutral else chain.scalar(neutral, init.dtype)


def _run(chain: Chain, x: Op, dim: int, reverse: bool) -> Op:
    """The running reduction of `x` along `dim`, from its end if `reverse`."""
    n = x.dims[dim]
    init, reducer = chain.instead_of.operands[1], chain.instead_of.attrs["reducer"]
    if n <= BLOCK:
        return _reduced(chain, x, init, _all_before(x, dim, reducer, reverse))
    count = -(-n // BLOCK)
    x = chain.extended(x, dim, 0, count * BLOCK - n, init)
    dims = (*x.dims[:dim], count, BLOCK, *x.dims[dim + 1 :])
    blocks = chain.make("reshape", x.dtype, dims, x)
    inner = _reduced(chain, blocks, init, _all_before(blocks, dim + 1, reducer, reverse))
    total = 0 if reverse else BLOCK - 1
    totals = chain.part(inner, dim + 1, total, total + 1)
    totals = chain.make("reshape", x.dtype, (*dims[: dim + 1], *dims[dim + 2 :]), totals)
    sums = _run(chain, totals, dim, reverse)
    others = chain.extended(sums, dim, *((-1, 1) if reverse else (1, -1)), init)
    kept_dims = tuple(d for d in range(len(dims)) if d != dim + 1)
    before = chain.like(inner, "broadcast", others, dimensions=kept_dims)
    joined = chain.like(inner, reducer, inner, before)
    flat = chain.make("reshape", x.dtype, x.dims, joined)
    return chain.part(flat, dim, 0, n) if count * BLOCK > n else flat


def _all_before(x: Op, dim: int, reducer: str, reverse: bool) -> dict[str, Any]:
    """Attributes of the reduce-window that gives all running reductions of `x` along `dim`."""
    rank, n = len(x.dims), x.dims[dim]
    low, high = (0, n - 1) if reverse else (n - 1, 0)
    ones = (1,) * rank
    return {
        "size": tuple(n if d == dim else 1 for d in range(rank)),
        "low": tuple(low if d == dim else 0 for d in range(rank)),
        "high": tuple(high if d == dim else 0 for d in range(rank)),
        **dict.fromkeys(("stride", "base_dilation", "window_dilation"), ones),
        "reducer": reducer,
    }


def padded(
    chain: Chain, x: Op, value: Op, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> Op:
    """`x` with `value` around and between its elements; negative edges cut off."""
    dims = tuple(
        n + max(n - 1, 0) * i + a + b
        for n, a, b, i in zip(x.dims, low, high, interior, strict=True)
    )
    edges = {"low": tuple(low), "high": tuple(high), "interior": tuple(interior)}
    return chain.make("pad", x.dtype, dims, x, value, **edges)
