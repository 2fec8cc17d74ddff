"""Reductions over short windows, as joins of shifted slices.

    reduce-window(x), 3 neighbours    ->    y[:-2] + y[1:-1] + y[2:]    where y = pad(x)

A loop over the results then has each of a window's elements once, in registers, as any stencil
does; neighbouring results read neighbouring elements. A window of several dims is one window after
the other where it is large: 7 x 7 elements are 7 and 7. What a window starts from, if that is not
what changes nothing, is joined last.
"""

from __future__ import annotations

import itertools
import math

from fusionstitch.codegen.rewrite.chain import JOINING, Chain
from fusionstitch.codegen.rewrite.windows import is_running, padded
from fusionstitch.codegen.text.expressions import identity
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.rewrite import splat

#: Elements of a window that are joined one by one, and of one of several dims that is left whole.
MOST, MOST_WHOLE = 16, 9
#: Types that a sum has another, wider one for.
_NARROW = ("bf16", "f16")
#: Attributes of windows that are one element each.
_PLAIN = {"size": 1, "stride": 1, "low": 0, "high": 0, "base_dilation": 1, "window_dilation": 1}


def start_later(op: Op) -> list[Op] | None:
    """The ops of windows that start from what changes nothing, and are joined with the init
    afterwards; None where they start so anyway.

    Whoever knows that no element is negative takes 0 for the start of a maximum.
    """
    x, init = op.operands[:2]
    neutral = _neutral(op)
    if neutral is None or splat(init) == neutral:
        return None
    chain, reducer = Chain(op), op.attrs["reducer"]
    start = chain.scalar(neutral, op.dtype)
    windows = chain.make("reduce-window", op.dtype, op.dims, x, start, **op.attrs)
    windows.called = op.called
    chain.like(
        op, reducer, windows, chain.make("broadcast", op.dtype, op.dims, init, dimensions=())
    )
    return chain.done()


def separate(op: Op) -> list[Op] | None:
    """The ops of a window of several dims, one dim at a time; None where it is left whole."""
    attrs = op.attrs
    along = [d for d, n in enumerate(attrs["size"]) if n > 1]
    if not _is_known(op) or len(along) < 2 or math.prod(attrs["size"]) <= MOST_WHOLE:
        return None
    chain, x = Chain(op), op.operands[0]
    for d in reversed(range(op.shape.rank)):  # what lies side by side first
        if all(attrs[key][d] == plain for key, plain in _PLAIN.items()):
            continue
        here = {
            key: tuple(n if e == d else plain for e, n in enumerate(attrs[key]))
            for key, plain in _PLAIN.items()
        }
        dims = (*x.dims[:d], op.dims[d], *x.dims[d + 1 :])
        more = {**here, "reducer": attrs["reducer"]}
        x = chain.make("reduce-window", op.dtype, dims, x, op.operands[1], **more)
        x.called = op.called
    return chain.done()


def shift(op: Op) -> list[Op] | None:
    """The ops of a short window; None for every other."""
    attrs = op.attrs
    if not _is_known(op) or not 1 < math.prod(attrs["size"]) <= MOST or is_running(op):
        return None
    chain, x = Chain(op), op.operands[0]
    if any(attrs["low"]) or any(attrs["high"]):
        none = chain.scalar(identity(attrs["reducer"], op.dtype), op.dtype)
        x = padded(chain, x, none, attrs["low"], attrs["high"], (0,) * op.shape.rank)
    total: Op | None = None
    for position in itertools.product(*map(range, attrs["size"])):
        start = tuple(n * step for n, step in zip(position, attrs["window_dilation"], strict=True))
        ends = zip(start, op.dims, attrs["stride"], strict=True)
        limit = tuple(first + (count - 1) * step + 1 for first, count, step in ends)
        bounds = {"start": start, "limit": limit, "stride": tuple(attrs["stride"])}
        one = chain.make("slice", op.dtype, op.dims, x, **bounds)
        total = one if total is None else chain.like(op, attrs["reducer"], total, one)
    return chain.done()


def _is_known(op: Op) -> bool:
    """Whether windows join as an op of two values does, starting from what changes nothing."""
    neutral = _neutral(op)
    return neutral is not None and splat(op.operands[1]) == neutral


def _neutral(op: Op) -> float | int | bool | None:
    """What changes nothing where windows join as an op of two values does; None elsewhere."""
    reducer = op.attrs["reducer"]
    if reducer not in JOINING or set(op.attrs["base_dilation"]) != {1}:
        return None
    if reducer in ("add", "multiply") and op.dtype in _NARROW:
        return None
    return identity(reducer, op.dtype)
