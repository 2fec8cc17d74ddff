"""`fusionstitch calibrate --reductions`: reductions whose times as XLA runs them are worth a table.

XLA gives a reduction one kernel, which also computes what it reduces and writes what has the shape
of that. Over leading dims a block owns 32 columns, so that narrow arrays leave most of the device
idle; how much a block then moves follows from no rate.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.graph import Shape
from fusionstitch.measure.xla_programs import Program

DTYPES = ("f32", "bf16")
#: (rows, columns) of what is summed.
EXTENTS = (
    (4096, 768),
    (1024, 768),
    (4096, 3072),
    (16384, 256),
    (1024, 4096),
    (256, 256),
    (2048, 768),
    (4096, 128),
    (512, 768),
    (65536, 256),
    (16384, 64),
    (2048, 32),
    (32768, 1024),
    (100_000, 8),
)
#: (arrays whose product is summed, whether it is also written).
READS = ((1, False), (3, True), (2, False))


@dataclass(frozen=True)
class Reduction(Program):
    """The sum over `axis` of the product of `reads` arrays [rows, columns]; `written`: the product
    is a result, too."""

    dtype: str
    rows: int
    columns: int
    axis: int
    reads: int
    written: bool

    @property
    def operands(self) -> tuple[Shape, ...]:
        return (Shape(self.dtype, (self.rows, self.columns)),) * self.reads

    def __call__(self, *operands: Any) -> Any:
        summed = functools.reduce(operator.mul, operands)
        total = summed.sum(self.axis)
        return (total, summed) if self.written else total


def grid() -> Iterator[Reduction]:
    """What is measured by default, the most telling shapes first."""
    shapes = itertools.product(EXTENTS, READS, DTYPES, (0, 1))
    for (rows, columns), (reads, written), dtype, axis in shapes:
        yield Reduction(dtype, rows, columns, axis, reads, written)
