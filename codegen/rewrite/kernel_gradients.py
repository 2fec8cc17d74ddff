"""Gradients of convolutions by their kernels: sums over all places that the kernel was laid over.

    convolution(x[n, h, w, 3], g[n, h, w, 8])    ->    windows(pad(x)) [n h w, 5 5 3]
      with n as channels and a window as large         dot(windows, g [n h w, 8]) over n h w
      as the image: [5, 5, 3, 8]

To XLA this is a convolution as well, of as many channels as there are images, by a kernel as large
as an image. It has few results, each of many products. The view is that of the convolution whose
gradient it is: a row under the kernel is a run of neighbours where channels come last.
"""

from __future__ import annotations

import math

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.rewrite.windows import padded
from fusionstitch.hlo.convolutions import layout_of
from fusionstitch.hlo.graph import Op

#: Results of so few products are no such gradient; so many results are a library's.
LEAST_SUMMED, MOST_RESULTS = 1024, 8192
#: Rows and columns of a tile of results on tensor cores; rows that fill one but for little; and up
#: to how many rows are one tile, of which so much may be empty.
ROWS, COLUMNS, FULL = 16, 8, (16, 15, 14, 13)
WHOLE, WASTE = 64, 0.4
#: A run is made as long as a multiple of this where tiles fit no other way.
RUN = 8


def is_kernel_gradient(op: Op) -> bool:
    """Whether a convolution has few results of many products each, which tiles fit."""
    attrs, found = op.attrs, layout_of(op)
    if attrs["groups"] != 1 or attrs["batch_groups"] != 1 or any(attrs["reversal"]):
        return False
    if found.channels * math.prod(attrs["size"]) < LEAST_SUMMED or op.shape.size > MOST_RESULTS:
        return False
    return _Gradient(op).fits is not None


def expand_kernel_gradient(op: Op) -> list[Op] | None:
    """The ops that replace one; None for any other convolution."""
    if not is_kernel_gradient(op):
        return None
    made = _Gradient(op)
    made.product()
    return made.chain.done()


class _Gradient:
    """A gradient by a kernel that has as many channels as the input has entries in its batch."""

    def __init__(self, op: Op):
        self.chain, self.op, self.attrs, self.layout = Chain(op), op, op.attrs, layout_of(op)
        found = self.layout
        self.channels = op.operands[0].dims[found.batch]
        self.results = op.operands[1].dims[found.kernel_out]
        self.taps = tuple(op.dims[found.result[d]] for d in found.spatial)
        dims = (found.feature, *found.spatial, found.batch)
        close = self.attrs["stride"][-1:] == (1,) and self.attrs["base_dilation"][-1:] == (1,)
        #: whether channels come last, a row under the kernel being a run
        self.in_runs = close and dims[-2:] == (op.shape.rank - 2, op.shape.rank - 1)
        length = self.taps[-1] * self.channels if self.taps else 0
        plain = math.prod(self.taps) * self.channels
        longer = plain // max(1, length) * (length + -length % RUN) if self.in_runs else plain
        #: elements under the kernel with those that are made up, and whether they are columns
        self.fits = next(
            (
                (rows, turned)
                for rows in (plain, longer)
                for turned in (False, True)
                if _fill(*((self.results, rows) if turned else (rows, self.results)))
            ),
            None,
        )

    def product(self) -> Op:
        """The dot, and its result as that of the convolution."""
        assert self.fits is not None
        chain, (under, turned) = self.chain, self.fits
        view, own = self._view(under), self._own()
        operands = (own, view) if turned else (view, own)
        result = chain.make(
            "dot",
            self.op.dtype,
            tuple(x.dims[1] for x in operands),
            *operands,
            lhs_batch=(),
            rhs_batch=(),
            lhs_contract=(0,),
            rhs_contract=(0,),
            precision=self.attrs["precision"],
            algorithm=self.attrs["algorithm"],
        )
        if turned:
            result = chain.in_order(result, (1, 0))
        return self._as_kernel(result)

    def _view(self, under: int) -> Op:
        """What lies under the kernel, one place after the other: [places, elements]."""
        chain, attrs, found, x = self.chain, self.attrs, self.layout, self.op.operands[0]
        x = chain.in_order(x, (found.feature, *found.spatial, found.batch))
        low, high = [0, *attrs["low"], 0], [0, *attrs["high"], 0]
        interior = [0, *(by - 1 for by in attrs["base_dilation"]), 0]
        stride, dilation = [1, *attrs["window_dilation"]], list(attrs["stride"])
        taps = list(self.taps)
        if self.in_runs:
            x = chain.make("reshape", x.dtype, (*x.dims[:-2], x.dims[-2] * self.channels), x)
            for edges in (low, high):
                edges[-2:] = [edges[-2] * self.channels]
            interior.pop()
            taps[-1] = under // math.prod(taps[:-1])
            stride[-1] *= self.channels
            reach = (attrs["size"][-1] - 1) * stride[-1] + taps[-1]
            high[-1] += max(0, reach - x.dims[-1] - low[-1] - high[-1])
        else:
            stride.append(1)
        if any((*low, *high, *interior)):
            x = padded(chain, x, chain.scalar(0, x.dtype), low, high, interior)
        along = tuple(range(1, 1 + len(taps)))
        window = {"along": along, "stride": tuple(stride), "dilation": tuple(dilation)}
        rest = () if self.in_runs else (self.channels,)
        dims = (x.dims[0], *attrs["size"], *rest, *taps)
        view = chain.make("windows", x.dtype, dims, x, **window)
        places = x.dims[0] * math.prod(attrs["size"])
        return chain.make("reshape", x.dtype, (places, under), view)

    def _own(self) -> Op:
        """What is known of each result of the convolution: [places, results]."""
        found, kernel = self.layout, self.op.operands[1]
        order = (found.kernel_in, *found.kernel_spatial, found.kernel_out)
        kernel = self.chain.in_order(kernel, order)
        dims = (kernel.shape.size // self.results, self.results)
        return self.chain.make("reshape", kernel.dtype, dims, kernel)

    def _as_kernel(self, result: Op) -> Op:
        """The result [elements, results] in the dims of the convolution's."""
        chain, found, spatial = self.chain, self.layout, len(self.taps)
        if self.in_runs:
            *others, last = self.taps
            run = result.dims[0] // math.prod(others)
            dims = (*others, run, self.results)
            result = chain.make("reshape", result.dtype, dims, result)
            result = chain.part(result, spatial - 1, 0, last * self.channels)
            dims, channels, first = (*self.taps, self.channels, self.results), spatial, 0
        else:
            dims, channels, first = (self.channels, *self.taps, self.results), 0, 1
        result = chain.make("reshape", result.dtype, dims, result)
        order = [0] * self.op.shape.rank
        order[found.result[found.batch]] = channels
        order[found.result[found.feature]] = len(dims) - 1
        for n, d in enumerate(found.spatial):
            order[found.result[d]] = first + n
        return chain.in_order(result, tuple(order))


def _fill(rows: int, columns: int) -> bool:
    """Whether tiles of so many rows and columns are full but for little."""
    if columns < COLUMNS - 1:
        return False
    if any(rows % size == 0 for size in FULL):
        return True
    return ROWS <= rows <= WHOLE and -rows % ROWS <= WASTE * rows
