"""Convolutions of few channels, as products of what lies under their kernel with that.

    convolution(x[n, h, w, 3], k[5, 5, 3, 8])    ->    windows(pad(x)) [n, 3, h, w, 5, 5]
                                                       dot(windows, k), summed over 3, 5 and 5
    convolution(x[n, h, w, c], k[3, 3, 1, c])    ->    pad(x)[n, h + 0, w + 0, c] * k[0, 0, c] + ...

The windows are a view that moves nothing (`windows.py`). Where few products make a result, they are
added up one after the other, as those of a stencil are.

A library pads channels to what its tiles have: with few of them most of a tile is empty.
"""

from __future__ import annotations

import functools
import itertools
import math

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.kernel_gradients import expand_kernel_gradient, is_kernel_gradient
from fusionstitch.codegen.rewrite.windows import padded
from fusionstitch.hlo.convolutions import layout_of
from fusionstitch.hlo.graph import FLOATS, Op
from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Channels of a group from which on a library's tiles are full, and what a kernel's window and its
#: channels hold at most.
MOST_CHANNELS, MOST_SUMMED = 16, 1024
#: Products that are added up for each result on its own, rather than as one of matrices: where a
#: channel gives several results, or just one.
MOST_TERMS, MOST_TERMS_ALONE = 9, 64
#: Runs of summed elements are made as long as a multiple of this.
RUN = 8


def narrow(op: Op) -> Verdict:
    """Whether kernels convolve: a library is better at many channels."""
    found = layout_of(op)
    summed = found.channels * math.prod(op.attrs["size"])
    if op.attrs["batch_groups"] != 1:
        return forbid("Kernels do not convolve groups of a batch.")
    if any(x.dtype not in FLOATS for x in (op, *op.operands)):
        return forbid("Kernels convolve floats.", dtype=op.dtype)
    if is_kernel_gradient(op):
        return allow()
    if found.channels > MOST_CHANNELS:
        limit = MOST_CHANNELS
        return forbid(
            "A library convolves many channels better.", channels=found.channels, limit=limit
        )
    if summed > MOST_SUMMED:
        return forbid("A library adds up so many products better.", terms=summed, limit=MOST_SUMMED)
    return allow()


def expand_convolution(op: Op) -> list[Op] | None:
    """The ops that replace a convolution; None for one that is not `narrow`."""
    if not narrow(op):
        return None
    if gradient := expand_kernel_gradient(op):
        return gradient
    made = _Convolution(op)
    if made.terms <= (MOST_TERMS_ALONE if made.results == 1 else MOST_TERMS):
        made.by_terms()
    else:
        made.as_product()
    return made.chain.done()


class _Convolution:
    """A convolution, and the ops of its result."""

    def __init__(self, op: Op):
        self.chain, self.op, self.attrs, self.layout = Chain(op), op, op.attrs, layout_of(op)
        self.groups, self.rank = op.attrs["groups"], op.shape.rank
        self.results = op.operands[1].dims[self.layout.kernel_out] // self.groups
        self.terms = self.layout.channels * math.prod(op.attrs["size"])

    def _edges(self) -> tuple[list[int], list[int], list[int]]:
        """How many elements are before, after and between those of the input, by dim."""
        attrs = self.attrs
        low, high, interior = ([0] * self.rank for _ in range(3))
        for n, d in enumerate(self.layout.spatial):
            low[d], high[d] = attrs["low"][n], attrs["high"][n]
            interior[d] = attrs["base_dilation"][n] - 1
        return low, high, interior

    def _around(self, x: Op, low: list[int], high: list[int], interior: list[int]) -> Op:
        """Zeros before, after and between elements."""
        if not any((*low, *high, *interior)):
            return x
        return padded(self.chain, x, self.chain.scalar(0, x.dtype), low, high, interior)

    def _turned(self, kernel: Op) -> Op:
        """A kernel in the order in which it is laid over the input."""
        pairs = zip(self.layout.kernel_spatial, self.attrs["reversal"], strict=True)
        if dims := tuple(d for d, back in pairs if back):
            return self.chain.like(kernel, "reverse", kernel, dimensions=dims)
        return kernel

    @functools.cached_property
    def x(self) -> Op:
        """The input with what is around and between its elements."""
        return self._around(self.op.operands[0], *self._edges())

    @functools.cached_property
    def kernel(self) -> Op:
        """The kernel as [groups, results, channels, *window]."""
        found, kernel = self.layout, self._turned(self.op.operands[1])
        order = (found.kernel_out, found.kernel_in, *found.kernel_spatial)
        kernel = self.chain.in_order(kernel, order)
        dims = (self.groups, self.results, *kernel.dims[1:])
        return self.chain.make("reshape", kernel.dtype, dims, kernel)

    # ---- a sum of products, element by element ---------------------------------------------------

    def by_terms(self) -> Op:
        """One product after the other is added up, and the sum rounded once."""
        chain, own, total = self.chain, self.op.dtype, None
        wide = own if own == "f64" else "f32"
        for channel in range(self.layout.channels):
            for at in itertools.product(*map(range, self.attrs["size"])):
                seen, factor = self._seen(channel, at), self._factor(channel, at)
                if seen.dtype != wide:
                    seen = chain.make("convert", wide, seen.dims, seen)
                if factor.dtype != wide:
                    factor = chain.make("convert", wide, factor.dims, factor)
                product = chain.like(seen, "multiply", seen, factor)
                total = product if total is None else chain.like(total, "add", total, product)
        assert total is not None
        if own != wide:
            total = chain.make("convert", own, total.dims, total)
        return self._in_order(total)

    def _seen(self, channel: int, at: tuple[int, ...]) -> Op:
        """What is under an element of the kernel: the dims of the input, with those of results."""
        found, attrs, x = self.layout, self.attrs, self.x
        start, limit, stride = [0] * self.rank, list(x.dims), [1] * self.rank
        start[found.feature], stride[found.feature] = channel, found.channels
        for n, d in enumerate(found.spatial):
            start[d] = at[n] * attrs["window_dilation"][n]
            stride[d] = attrs["stride"][n]
            limit[d] = start[d] + (self.op.dims[found.result[d]] - 1) * stride[d] + 1
        dims = tuple(-(-(b - a) // by) for a, b, by in zip(start, limit, stride, strict=True))
        edges = {"start": tuple(start), "limit": tuple(limit), "stride": tuple(stride)}
        seen = self.chain.make("slice", x.dtype, dims, x, **edges)
        if self.results == 1:
            return seen
        feature = found.feature
        spread = (*dims[: feature + 1], self.results, *dims[feature + 1 :])
        kept = tuple(d + (d > feature) for d in range(self.rank))
        seen = self.chain.make("broadcast", x.dtype, spread, seen, dimensions=kept)
        return self.chain.make("reshape", x.dtype, self._dims(), seen)

    def _factor(self, channel: int, at: tuple[int, ...]) -> Op:
        """An element of the kernel for each result, in those dims."""
        kernel, inside = self.kernel, (channel, *at)
        start, limit = (0, 0, *inside), (*kernel.dims[:2], *(n + 1 for n in inside))
        dims = (*kernel.dims[:2], *(1 for _ in inside))
        edges = {"start": start, "limit": limit, "stride": (1,) * len(dims)}
        one = self.chain.make("slice", kernel.dtype, dims, kernel, **edges)
        one = self.chain.make("reshape", kernel.dtype, (self.groups * self.results,), one)
        where = (self.layout.feature,)
        return self.chain.make("broadcast", kernel.dtype, self._dims(), one, dimensions=where)

    def _dims(self) -> tuple[int, ...]:
        """The dims of the result, in the order of the input's."""
        return tuple(self.op.dims[d] for d in self.layout.result)

    def _in_order(self, total: Op) -> Op:
        """A result whose dims come in the order of the input's."""
        result = self.layout.result
        if result == tuple(range(self.rank)):
            return total
        return self.chain.in_order(total, tuple(result.index(d) for d in range(self.rank)))

    # ---- a product of what lies under the kernel -------------------------------------------------

    def as_product(self) -> Op:
        """A dot of all windows with the kernel. Where features come before places in the result,
        each entry of the batch has the kernel for itself, so that the dot gives them so."""
        if self._has_runs():
            return self._of_runs()
        found, kernel = self.layout, self._flat_kernel()
        window = [f"w{n}" for n in self._taps()]
        places = [f"s{n}" for n in range(len(found.spatial))]
        view = self._windows()
        group = ["g"] if self.groups > 1 else []
        seen, own = ["b", *group, "c", *places, *window], [*group, "r", "c", *window]
        feature, last = found.result[found.feature], max(found.result[d] for d in found.spatial)
        if found.result[found.batch] < feature < last:
            dims = (view.dims[0], *kernel.dims)
            kept = tuple(range(1, len(dims)))
            kernel = self.chain.make("broadcast", kernel.dtype, dims, kernel, dimensions=kept)
            return self._from_labels(*self._dot(kernel, ["b", *own], view, seen))
        return self._from_labels(*self._dot(view, seen, kernel, own))

    def _has_runs(self) -> bool:
        """Whether what lies under a row of the kernel is a run of neighbours in memory: channels
        come last, after the dim of the row."""
        found, attrs = self.layout, self.attrs
        if self.groups > 1 or found.channels == 1 or not found.spatial:
            return False
        dims = (found.batch, *found.spatial, found.feature)
        close = attrs["window_dilation"][-1] == attrs["base_dilation"][-1] == 1
        return close and dims == tuple(range(self.rank))

    def _of_runs(self) -> Op:
        """The product whose sums go along such runs."""
        chain, found, attrs, op = self.chain, self.layout, self.attrs, self.op
        channels, (*taps, row) = found.channels, attrs["size"]
        x, kernel = op.operands
        *places, inner = (op.dims[found.result[d]] for d in found.spatial)
        step, length = attrs["stride"][-1] * channels, row * channels
        more = -length % RUN
        low, high, interior = (list(each) for each in self._edges())
        low[-2:], high[-2:], interior[-2:] = [low[-2] * channels], [high[-2] * channels], [0]
        x = chain.make("reshape", x.dtype, (*x.dims[:-2], x.dims[-2] * channels), x)
        high[-1] += max(0, (inner - 1) * step + length + more - x.dims[-1] - low[-1] - high[-1])
        x = self._around(x, low, high, interior)
        kept = [n for n, size in enumerate(taps) if size > 1]
        window = {
            "along": (*(1 + n for n in kept), 1 + len(taps)),
            "stride": (1, *attrs["stride"][:-1], step),
            "dilation": (*(attrs["window_dilation"][n] for n in kept), 1),
        }
        sizes = [taps[n] for n in kept]
        dims = (x.dims[0], *places, inner, *sizes, length + more)
        view = chain.make("windows", x.dtype, dims, x, **window)
        if more:  # what follows the run is not under the kernel: 0 times infinity is no number
            number = chain.make("iota", "s32", dims, dimension=len(dims) - 1)
            under = chain.compare(number, "LT", chain.integers(length, dims))
            view = chain.like(view, "select", under, view, chain.splat(0, view))
        kernel = self._turned(kernel)
        order = (*found.kernel_spatial, found.kernel_in, found.kernel_out)
        kernel = chain.in_order(kernel, order)
        kernel = chain.make("reshape", kernel.dtype, (*sizes, length, self.results), kernel)
        kernel = chain.extended(kernel, kernel.shape.rank - 2, 0, more)
        labels = [*(f"w{n}" for n in kept), "run"]
        names = ["b", *(f"s{n}" for n in range(len(found.spatial))), *labels]
        made, of = self._dot(view, names, kernel, [*labels, "r"])
        return self._from_labels(made, of)

    def _dot(
        self, left: Op, left_labels: list[str], right: Op, right_labels: list[str]
    ) -> tuple[Op, list[str]]:
        """The product of two values whose dims have labels, over channels and windows; and the
        labels of its dims."""
        common = [label for label in left_labels if label in right_labels]
        batch = [label for label in common if label in ("b", "g")]
        summed = [label for label in common if label not in batch]
        free = [x for x in (*left_labels, *right_labels) if x not in common]
        extents = dict(zip((*left_labels, *right_labels), (*left.dims, *right.dims), strict=True))
        labels = [*batch, *free]
        attrs = {
            f"{side}_{what}": tuple(map(of.index, which))
            for side, of in (("lhs", left_labels), ("rhs", right_labels))
            for what, which in (("batch", batch), ("contract", summed))
        }
        made = self.chain.make(
            "dot",
            self.op.dtype,
            tuple(extents[label] for label in labels),
            left,
            right,
            **attrs,
            precision=self.attrs["precision"],
            algorithm=self.attrs["algorithm"],
        )
        return made, labels

    def _from_labels(self, x: Op, labels: list[str]) -> Op:
        """The result, of a value whose dims have labels."""
        found = self.layout
        own: list[tuple[str, ...]] = [()] * self.rank
        own[found.result[found.batch]] = ("b",)
        own[found.result[found.feature]] = ("g", "r") if "g" in labels else ("r",)
        for n, d in enumerate(found.spatial):
            own[found.result[d]] = (f"s{n}",)
        order = tuple(labels.index(label) for each in own for label in each)
        x = self.chain.in_order(x, order)
        if x.dims == self.op.dims:
            return x
        return self.chain.make("reshape", x.dtype, self.op.dims, x)

    def _windows(self) -> Op:
        """What lies under the kernel, for each result: [batch, groups, channels, *spatial,
        *window], the spatial dims those of results, without groups if there is but one."""
        found, attrs, x = self.layout, self.attrs, self.x
        x = self.chain.in_order(x, (found.batch, found.feature, *found.spatial))
        group = (self.groups,) if self.groups > 1 else ()
        apart = (x.dims[0], *group, found.channels, *x.dims[2:])
        if group:
            x = self.chain.make("reshape", x.dtype, apart, x)
        before = len(group) + 2
        taps = self._taps()
        places = tuple(self.op.dims[found.result[d]] for d in found.spatial)
        window = {
            "along": tuple(before + n for n in taps),
            "stride": (*(1,) * before, *attrs["stride"]),
            "dilation": tuple(attrs["window_dilation"][n] for n in taps),
        }
        dims = (*apart[:before], *places, *(attrs["size"][n] for n in taps))
        return self.chain.make("windows", x.dtype, dims, x, **window)

    def _flat_kernel(self) -> Op:
        """The kernel as [groups, results, channels, *window] without those dims of its window that
        have one element, and without groups if there is but one."""
        kernel, before = self.kernel, 0 if self.groups > 1 else 1
        dims = (*kernel.dims[before:3], *(self.attrs["size"][n] for n in self._taps()))
        return self.chain.make("reshape", kernel.dtype, dims, kernel)

    def _taps(self) -> tuple[int, ...]:
        """The numbers of the spatial dims along which the window has several elements."""
        return tuple(n for n, size in enumerate(self.attrs["size"]) if size > 1)
