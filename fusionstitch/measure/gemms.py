"""`fusionstitch calibrate --gemms`: the dots whose times under XLA go into a table.

XLA picks a library routine or a Triton kernel for each dot by trying them, splits some along the
contracted dim, and adds a kernel that joins the parts. Rates do not predict any of this.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.graph import Shape
from fusionstitch.measure.xla_programs import Program

#: Layouts: which operands are stored transposed, with the contracted dim in the other position.
LAYOUTS = ("nn", "nt", "tn")
DTYPES = ("f32", "bf16")
#: Extents of the grid; a dot and its transpose take the same time, so m <= n.
EXTENTS = (16, 64, 256, 1024)
#: Batched products: (batch, m, n, k).
BATCHED = ((8, 32, 32, 16), (64, 32, 32, 64), (64, 128, 128, 64), (512, 128, 128, 16))
#: Many rows times a small matrix, and many products of small matrices: (batch, m, n, k).
MANY = (
    *((1, 1 << 20, 3, 3), (1, 1 << 20, 4, 4), (1, 1 << 18, 16, 16), (1, 1 << 17, 64, 64)),
    *((1, 1 << 18, 8, 64), (1, 1 << 18, 64, 8), (1, 1 << 16, 4, 256), (1, 1 << 14, 16, 1024)),
    *((1 << 17, 3, 3, 3), (1 << 17, 4, 4, 4), (1 << 15, 8, 8, 8), (1 << 13, 16, 16, 16)),
    *((1 << 12, 32, 32, 32), (1 << 10, 64, 64, 64), (1 << 14, 3, 16, 3), (1 << 14, 16, 4, 16)),
)
#: Small results of long contractions, as in sums over rows.
LONG = (
    *((1, 3, 3, 1 << 20), (1, 8, 8, 1 << 20), (1, 16, 16, 1 << 17), (1, 64, 64, 1 << 16)),
    *((1, 4, 64, 1 << 18), (1, 16, 256, 1 << 16), (1, 128, 128, 1 << 14), (1, 7, 7, 150_001)),
    *((1, 8, 8, 1 << 14), (1, 64, 64, 1 << 13), (1, 256, 256, 1 << 15), (1, 32, 8, 100_003)),
    *((12, 7, 7, 1 << 17), (64, 8, 8, 1 << 13), (1 << 10, 4, 4, 1 << 12), (256, 16, 16, 512)),
)


@dataclass(frozen=True)
class Gemm(Program):
    """`batch` products [m, k] x [k, n]; layout "nt" stores the second operand as [n, k], "tn" the
    first as [k, m]."""

    dtype: str
    m: int
    n: int
    k: int
    batch: int = 1
    layout: str = "nn"

    @property
    def operands(self) -> tuple[Shape, Shape]:
        lhs = (self.k, self.m) if self.layout == "tn" else (self.m, self.k)
        rhs = (self.n, self.k) if self.layout == "nt" else (self.k, self.n)
        batch = (self.batch,) if self.batch > 1 else ()
        return Shape(self.dtype, batch + lhs), Shape(self.dtype, batch + rhs)

    @property
    def dimension_numbers(self) -> tuple[Any, Any]:
        """The argument for `jax.lax.dot_general`."""
        shift = int(self.batch > 1)
        batch = tuple(range(shift))
        lhs, rhs = int(self.layout != "tn"), int(self.layout == "nt")
        return ((lhs + shift,), (rhs + shift,)), (batch, batch)

    def __call__(self, lhs: Any, rhs: Any) -> Any:
        import jax

        return jax.lax.dot_general(lhs, rhs, self.dimension_numbers)


def grid() -> Iterator[Gemm]:
    """The default measurements, the most informative shapes first."""
    shapes = [s for s in itertools.product(EXTENTS, repeat=3) if s[0] <= s[1]]
    # every second extent first: a run that is cut short still spans the whole range
    shapes.sort(key=lambda shape: sum(EXTENTS.index(n) % 2 for n in shape))
    for (m, n, k), dtype in itertools.product(shapes, DTYPES):
        yield Gemm(dtype, m, n, k)
    for (batch, m, n, k), dtype in itertools.product(BATCHED, DTYPES):
        yield Gemm(dtype, m, n, k, batch)
    for (m, n, k), dtype, layout in itertools.product(shapes, DTYPES, LAYOUTS[1:]):
        if 64 in (m, n) and 16 not in (m, n):
            yield Gemm(dtype, m, n, k, layout=layout)
    for dtype in DTYPES:
        for batch, m, n, k in MANY:
            yield Gemm(dtype, m, n, k, batch)
        for batch, m, n, k in LONG:
            yield Gemm(dtype, m, n, k, batch, layout="tn")
    for batch, m, n, k in LONG:
        yield Gemm("f32", m, n, k, batch, layout="nt")
