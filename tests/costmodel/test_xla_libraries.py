"""The model of XLA's sorts, and of what it leaves to libraries, against what was measured.

Kernels of whole programs on an H200 (benchmarks/results/h200-2026-11-28-xla-kernels.json).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.xla_final import final_kernels
from fusionstitch.costmodel.xla_libraries import library_us
from fusionstitch.hlo.graph import Op, Shape
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.text import text_to_proto
from tests.graphs import Builder

H200 = device("h200")


def sort(dims: tuple[int, ...], dimension: int) -> Op:
    b = Builder()
    keys, indices = b.parameter(dims), b.parameter(dims, "s32")
    both = Shape("tuple", (), (keys.shape, indices.shape))
    return b.op("sort", both, keys, indices, dimension=dimension)


def radix(dims: tuple[int, ...], values: str) -> Op:
    return called("xla.gpu.ext.cub_sort_pairs", (dims, "u32"), (dims, values))


def called(target: str, *arrays: tuple[tuple[int, ...], str], **attrs: Any) -> Op:
    b = Builder()
    operands = [b.parameter(*array) for array in arrays]
    return b.op("custom-call", operands[0].shape, *operands, target=target, **attrs)


def transform(dims: tuple[int, ...], length: tuple[int, ...], kind: str) -> Op:
    """kind: "real" to complex, "complex", or either of them "inverse"."""
    b = Builder()
    half = (*dims[:-1], dims[-1] // 2 + 1)
    real, inverse = "real" in kind, "inverse" in kind
    there, back = (half, "c64") if real else (dims, "c64"), (dims, "f32") if real else (dims, "c64")
    read, written = (there, back) if inverse else (back, there)
    x = b.parameter(*read)
    return b.op("fft", written[0], x, dtype=written[1], length=length, inverse=inverse)


def convolution(x: tuple[int, ...], kernel: tuple[int, ...], y: tuple[int, ...]) -> Op:
    b = Builder()
    operands = [b.parameter(dims) for dims in (x, kernel)]
    attrs = {"target": "__cudnn$convForward", "size": kernel[1:-1], "kernel": (-1, 0)}
    return b.op("custom-call", y, *operands, **attrs)


def by_kernel(images: int, size: int, channels: int, taps: int, results: int) -> Op:
    """The gradient of a convolution of channels-last images by its kernel."""
    b = Builder()
    x = b.parameter((images, size, size, channels))
    g = b.parameter((images, size, size, results))
    attrs = {"size": (size, size), "input": (3, 0, 1, 2), "kernel": (0, 3, 1, 2), "groups": 1}
    dims, output = (taps, taps, channels, results), (2, 3, 0, 1)
    return b.op("convolution", dims, x, g, output=output, **attrs)


#: Microseconds of kernels of all sizes.
MEASURED: dict[str, tuple[Callable[[], Op], float]] = {
    "short rows": (lambda: sort((30636, 16), 1), 29.4),
    "rows": (lambda: sort((3096, 344), 1), 45.0),
    "long rows": (lambda: sort((33, 41361), 1), 279.7),
    "one row": (lambda: sort((4001,), 0), 38.1),
    "columns": (lambda: sort((51173, 153), 0), 5584.8),
    "by bits": (lambda: radix((2286124,), "s32"), 132.3),
    "by bits, few": (lambda: radix((50021,), "u64"), 41.7),
    "by bits, rows": (lambda: radix((319, 18592), "f32"), 491.6),
    "transform": (lambda: transform((28, 476, 512), (512,), "real"), 19.9),
    "back": (lambda: transform((28, 476, 512), (512,), "real inverse"), 55.1),
    "of a round number": (lambda: transform((28, 315, 640), (640,), "real"), 25.3),
    "of an odd number": (lambda: transform((12, 100, 598), (100, 598), "real"), 14.5),
    "of a large prime": (lambda: transform((483, 5738), (5738,), "complex"), 274.2),
    "and back": (lambda: transform((483, 5738), (5738,), "complex inverse"), 241.4),
    "channels": (lambda: convolution((12, 499, 96), (192, 9, 96), (12, 499, 192)), 12.8),
    "by a kernel": (lambda: by_kernel(64, 128, 3, 5, 8), 236.0),
    "by a kernel, few": (lambda: by_kernel(256, 28, 1, 3, 32), 66.3),
    "one channel": (lambda: convolution((7, 345, 81, 1), (96, 3, 3, 1), (7, 172, 40, 96)), 25.6),
    "factors": (lambda: called("cusolver_potrf_ffi", ((509, 509), "f32")), 172.1),
    "small factors": (lambda: called("cusolver_potrf_ffi", ((5578, 8, 8), "f32")), 22.9),
    "one side": (
        lambda: called("__cublas$triangularSolve", ((509, 509), "f32"), ((509, 1), "f32")),
        30.6,
    ),
    "many sides": (
        lambda: called("__cublas$triangularSolve", ((509, 509), "f32"), ((509, 509), "f32")),
        155.1,
    ),
}


@pytest.mark.parametrize("name", MEASURED)
def test_what_libraries_take_is_near_the_measured_time(name: str) -> None:
    make, us = MEASURED[name]
    modelled = library_us(make(), H200)
    assert modelled is not None
    assert abs(math.log(modelled / us)) < math.log(1.5)


def test_gradients_of_a_convolution_have_its_products() -> None:
    """The roles of the arrays change, not what is multiplied."""
    x, kernel, y = (64, 499, 96), (192, 9, 96), (64, 499, 192)
    forward = convolution(x, kernel, y)
    b = Builder()
    attrs = {"size": (9,), "kernel": (2, 0, 1)}
    arrays = [b.parameter(dims) for dims in (x, kernel, y)]
    filters = b.op(
        "custom-call", kernel, arrays[0], arrays[2], target="__cudnn$convBackwardFilter", **attrs
    )
    inputs = b.op(
        "custom-call", x, arrays[2], arrays[1], target="__cudnn$convBackwardInput", **attrs
    )
    times = {library_us(op, H200) for op in (forward, filters, inputs)}
    assert len(times) == 1


def test_other_ops_have_no_such_time() -> None:
    b = Builder()
    x = b.parameter((8, 8))
    assert library_us(b.exp(x), H200) is None
    assert library_us(called("what_nobody_knows", ((8, 8), "f32")), H200) is None


MODULE = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[28,512]{1,0}, \
f32[12,499,96]{2,1,0}, f32[192,9,96]{2,1,0})->(c64[28,257]{1,0}, f32[12,499,192]{2,1,0})}

ENTRY %main (x.1: f32[28,512], y.1: f32[12,499,96], w.1: f32[192,9,96]) -> \
(c64[28,257], f32[12,499,192]) {
  %x.1 = f32[28,512]{1,0} parameter(0)
  %y.1 = f32[12,499,96]{2,1,0} parameter(1)
  %w.1 = f32[192,9,96]{2,1,0} parameter(2)
  %fft.1 = c64[28,257]{1,0} fft(%x.1), fft_type=RFFT, fft_length={512}
  %cudnn-conv.1 = (f32[12,499,192]{2,1,0}, u8[0]{0}) custom-call(%y.1, %w.1), \
window={size=9 pad=4_4}, dim_labels=b0f_o0i->b0f, custom_call_target="__cudnn$convForward"
  %get-tuple-element.1 = f32[12,499,192]{2,1,0} get-tuple-element(%cudnn-conv.1), index=0
  ROOT %tuple.1 = (c64[28,257]{1,0}, f32[12,499,192]{2,1,0}) tuple(%fft.1, %get-tuple-element.1)
}
"""


def test_a_compiled_module_says_what_libraries_compute() -> None:
    module = from_proto(text_to_proto(MODULE, compiled=True))
    kernels = {one.name: one for one in final_kernels(module, H200)}
    assert [str(one.emitter) for one in kernels.values()] == ["library", "convolution"]
    op = convolution((12, 499, 96), (192, 9, 96), (12, 499, 192))
    assert kernels["cudnn-conv.1"].modelled_us == library_us(op, H200)
    assert kernels["fft.1"].modelled_us == library_us(transform((28, 512), (512,), "real"), H200)


SORT = """HloModule jit_g, is_scheduled=true, \
entry_computation_layout={(u32[319,18592]{1,0})->u32[319,18592]{1,0}}

ENTRY %main (x.1: u32[319,18592]) -> u32[319,18592] {
  %x.1 = u32[319,18592]{1,0} parameter(0)
  %custom-call.1 = (u32[319,18592]{1,0}, u8[4095]{0}) custom-call(%x.1), \
custom_call_target="xla.gpu.ext.cub_sort_keys", backend_config={"descending":false}
  ROOT %get-tuple-element.1 = u32[319,18592]{1,0} get-tuple-element(%custom-call.1), index=0
}
"""


def test_a_librarys_sort_is_a_sort() -> None:
    [kernel] = final_kernels(from_proto(text_to_proto(SORT, compiled=True)), H200)
    assert str(kernel.emitter) == "sort"
    assert kernel.modelled_us == library_us(radix((319, 18592), "u32"), H200)
