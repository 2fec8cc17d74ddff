"""Convolutions of as many channels as kernels take, and of more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusionstitch.codegen.rewrite.convolutions import MOST_CHANNELS
from tests.codegen.conv_cases import FIRST, LAST, convolution
from tests.coverage.table import FLOATS, add, draw, finished

FAMILY = "convolutions"

#: note -> the function, dims of the image and of the kernel.
OF_ALL: Mapping[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "channels last": (convolution(LAST), (2, 6, 7, 3), (3, 3, 3, 8)),
    "each channel": (convolution(LAST, groups=4), (2, 6, 7, 4), (3, 3, 1, 4)),
}
OF_F32: Mapping[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "channels first": (convolution(FIRST), (2, 3, 6, 7), (5, 3, 3, 3)),
    "strided": (convolution(LAST, (2, 2)), (2, 8, 9, 3), (3, 3, 3, 8)),
    "groups": (convolution(FIRST, groups=2), (2, 4, 6, 7), (6, 2, 3, 3)),
    "upsampled": (
        convolution(LAST, padding=((1, 2), (1, 2)), lhs_dilation=(2, 2)),
        (2, 5, 4, 3),
        (3, 3, 3, 4),
    ),
    "many channels": (
        convolution(LAST),
        (2, 6, 7, MOST_CHANNELS + 1),
        (3, 3, MOST_CHANNELS + 1, 4),
    ),
}
for dtype in FLOATS:
    for note, (fun, x, w) in {**OF_ALL, **(OF_F32 if dtype == "float32" else {})}.items():
        add(FAMILY, "convolution", dtype, finished(fun), draw(x, dtype), draw(w, dtype), note=note)
