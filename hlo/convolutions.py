"""Convolutions: what the dims of their operands are, their shapes, and their reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionstitch.hlo.graph import Op, Shape


@dataclass(frozen=True)
class Layout:
    """The dims of a convolution's operands and result.

    `batch`, `feature` and `spatial` are those of its input; `kernel_in`, `kernel_out` and
    `kernel_spatial` those of its kernel, which has as many `channels` as a group of features;
    `result` names the dim of the result that belongs to each dim of the input.
    """

    batch: int
    feature: int
    spatial: tuple[int, ...]
    kernel_in: int
    kernel_out: int
    kernel_spatial: tuple[int, ...]
    result: tuple[int, ...]
    channels: int

    @property
    def rank(self) -> int:
        return len(self.result)


def layout_of(op: Op) -> Layout:
    """The dims of a convolution."""
    attrs = op.attrs
    batch, feature, *spatial = attrs["input"]
    into, out, *window = attrs["kernel"]
    result = dict(zip(attrs["input"], attrs["output"], strict=True))
    return Layout(
        batch,
        feature,
        tuple(spatial),
        into,
        out,
        tuple(window),
        tuple(result[d] for d in range(len(result))),
        op.operands[1].dims[into],
    )


def result_shape(op: Op) -> Shape:
    """The shape of a convolution's result. Raises ValueError where it has none."""
    x, kernel = op.operands
    attrs, found = op.attrs, layout_of(op)
    groups, batches = attrs["groups"], attrs["batch_groups"]
    if found.channels * groups != x.dims[found.feature]:
        raise ValueError(f"{x.dims[found.feature]} features in {groups} groups of {found.channels}")
    if kernel.dims[found.kernel_out] % groups or x.dims[found.batch] % batches:
        raise ValueError("as many results in each group")
    dims = [0] * found.rank
    dims[found.result[found.batch]] = x.dims[found.batch] // batches
    dims[found.result[found.feature]] = kernel.dims[found.kernel_out]
    for n, (d, k) in enumerate(zip(found.spatial, found.kernel_spatial, strict=True)):
        if kernel.dims[k] != attrs["size"][n]:
            raise ValueError(f"a kernel of {attrs['size'][n]} elements along a dim")
        inside = _extent(x.dims[d], attrs["base_dilation"][n])
        inside += attrs["low"][n] + attrs["high"][n]
        reach = _extent(attrs["size"][n], attrs["window_dilation"][n])
        stride = attrs["stride"][n]
        dims[found.result[d]] = max(0, (inside - reach) // stride + 1) if inside > 0 else 0
    return Shape(op.dtype, tuple(dims))


def products(op: Op) -> int:
    """Products of an element with one of the kernel that a convolution adds up: none with what
    pads, or lies between elements."""
    attrs, found, x = op.attrs, layout_of(op), op.operands[0]
    count = found.channels
    for n, d in enumerate(found.spatial):
        results = np.arange(op.dims[found.result[d]])[:, None] * attrs["stride"][n]
        window = np.arange(attrs["size"][n]) * attrs["window_dilation"][n]
        at, by = results + window - attrs["low"][n], attrs["base_dilation"][n]
        count *= int(((at >= 0) & (at % by == 0) & (at // by < x.dims[d])).sum())
    batch, feature = op.dims[found.result[found.batch]], op.dims[found.result[found.feature]]
    return count * batch * feature


def _extent(n: int, dilation: int) -> int:
    return max(0, (n - 1) * dilation + 1)


def convolve(op: Op, x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The reference, of one group of a batch: sums over the elements of the kernel, one after
    another."""
    attrs, found = op.attrs, layout_of(op)
    groups = attrs["groups"]
    x = x.transpose(attrs["input"])
    kernel = kernel.transpose(attrs["kernel"])
    spatial = x.shape[2:]
    wide = [_extent(n, by) for n, by in zip(spatial, attrs["base_dilation"], strict=True)]
    spread = np.zeros((*x.shape[:2], *wide), x.dtype)
    every = tuple(slice(None, None, by) for by in attrs["base_dilation"])
    spread[:, :, *every] = x
    for n, (low, high) in enumerate(zip(attrs["low"], attrs["high"], strict=True)):
        rest = spread.shape[2 + n]
        spread = spread.take(np.arange(max(0, -low), rest - max(0, -high)), 2 + n)
        pads = [(0, 0)] * spread.ndim
        pads[2 + n] = (max(0, low), max(0, high))
        spread = np.pad(spread, pads)
    back = tuple(2 + n for n, turned in enumerate(attrs["reversal"]) if turned)
    kernel = np.flip(kernel, back)
    dims = [op.dims[d] for d in attrs["output"]]
    total = np.zeros(dims, np.result_type(x, kernel))
    each = dims[1] // groups
    for at in np.ndindex(*attrs["size"]):
        begin = [k * by for k, by in zip(at, attrs["window_dilation"], strict=True)]
        seen = tuple(
            slice(b, b + (n - 1) * by + 1, by)
            for b, n, by in zip(begin, dims[2:], attrs["stride"], strict=True)
        )
        under, weights = spread[:, :, *seen], kernel[:, :, *at]
        for g in range(groups):
            own = under[:, g * found.channels : (g + 1) * found.channels]
            add = np.tensordot(own, weights[:, g * each : (g + 1) * each], ((1,), (0,)))
            total[:, g * each : (g + 1) * each] += np.moveaxis(add, -1, 1)
    return total.transpose(np.argsort(attrs["output"]))
