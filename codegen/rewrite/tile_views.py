"""Views of tiles: windows of a value that is computed as a whole, a tile and its margin each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.hlo.graph import Op


@dataclass(frozen=True)
class Window:
    """Along the dim `dim` of a value: `count` windows of `size` elements, one every `stride` from
    element `first` on. Where that is none the value goes on as it begins (`periodic`), or is 0."""

    dim: int
    first: int
    size: int
    stride: int
    count: int
    periodic: bool


def view(chain: Chain, x: Op, windows: Mapping[int, Window]) -> Op:
    """The windows of a value along some dims: first the dims that count them, in the order of their
    keys, then those of `x` with the elements of a window."""
    size: dict[int, int] = {}
    stride = [1] * x.shape.rank
    for one in windows.values():
        end = one.first + (one.count - 1) * one.stride + one.size
        x = (_wrapped if one.periodic else _reaching)(chain, x, one.dim, one.first, end)
        size[one.dim], stride[one.dim] = one.size, one.stride
    along = sorted(size)
    outer = tuple((n - size.get(d, 1)) // stride[d] + 1 for d, n in enumerate(x.dims))
    window = {"along": tuple(along), "stride": tuple(stride), "dilation": (1,) * len(along)}
    found = chain.make("windows", x.dtype, (*outer, *(size[d] for d in along)), x, **window)
    order = [windows[n].dim for n in sorted(windows)]
    order += [x.shape.rank + along.index(d) if d in size else d for d in range(x.shape.rank)]
    dims = tuple(found.dims[d] for d in order)
    return chain.make("transpose", x.dtype, dims, found, dimensions=tuple(order))


def _reaching(chain: Chain, x: Op, dim: int, begin: int, end: int) -> Op:
    """The elements from `begin` to `end` along a dim; those that are none are 0."""
    n = x.dims[dim]
    if x.opcode == "pad" and not x.attrs["interior"][dim]:  # a longer or shorter pad
        attrs = {key: list(x.attrs[key]) for key in ("low", "high", "interior")}
        attrs["low"][dim] -= begin
        attrs["high"][dim] += end - n
        dims = tuple(end - begin if d == dim else m for d, m in enumerate(x.dims))
        given = {key: tuple(each) for key, each in attrs.items()}
        return chain.make("pad", x.dtype, dims, *x.operands, **given)
    first, last = min(max(begin, 0), n), max(min(end, n), 0)
    if first >= last:
        dims = tuple(end - begin if d == dim else m for d, m in enumerate(x.dims))
        zero = chain.scalar(0, x.dtype)
        return chain.make("broadcast", x.dtype, dims, zero, dimensions=())
    if (first, last) != (0, n):
        x = chain.part(x, dim, first, last)
    return chain.extended(x, dim, max(-begin, 0), max(end - n, 0))


def _wrapped(chain: Chain, x: Op, dim: int, begin: int, end: int) -> Op:
    """The elements from `begin` to `end` along a dim after whose last its first follows."""
    n, parts, at = x.dims[dim], list[Op](), begin
    while at < end:
        first = at % n
        last = min(n, first + end - at)
        parts.append(x if (first, last) == (0, n) else chain.part(x, dim, first, last))
        at += last - first
    if len(parts) == 1:
        return parts[0]
    dims = tuple(end - begin if d == dim else m for d, m in enumerate(x.dims))
    return chain.make("concatenate", x.dtype, dims, *parts, dimension=dim)
