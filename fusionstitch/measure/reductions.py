"""`fusionstitch calibrate --reductions`: the reductions whose times under XLA go into a table.

XLA gives a reduction one kernel, which also computes its operand and writes other results of the
operand's shape. Over leading dims a block owns 32 columns, so narrow arrays leave most of the
device idle. Rates do not predict how much a block then moves.
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
#: (rows, columns) of the summed array.
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
#: (number of arrays whose product is summed, whether the product is also written).
READS = ((1, False), (3, True), (2, False))


@dataclass(frozen=True)
class Reduction(Program):
    """The sum over `axis` of the product of `reads` arrays [rows, columns]; if `written`, the
    product is a result as well."""

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
    """The default measurements, the most informative shapes first."""
    shapes = itertools.product(EXTENTS, READS, DTYPES, (0, 1))
    for (rows, columns), (reads, written), dtype, axis in shapes:
        yield Reduction(dtype, rows, columns, axis, reads, written)
