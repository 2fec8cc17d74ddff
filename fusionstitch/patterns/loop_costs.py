"""The costs that loop rules compare: seconds of an iteration against seconds around the loop."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Op

#: The most bytes that a rule may add to what a loop keeps: any GPU can spare them.
SPARE_BYTES = 1 << 30


@dataclass(frozen=True)
class Product:
    """The product of one iteration: `rows` of a part, each times `contracted` by `columns` weights
    of `item` bytes."""

    rows: int
    contracted: int
    columns: int
    item: int

    def inside_s(self, device: Device) -> float:
        """Seconds in the loop: each block multiplies its rows, for which it reads the weights."""
        blocks = min(device.sm_count, self.rows)
        weights = self.contracted * self.columns * self.item
        return max(
            self.around_s(device) * device.sm_count / blocks,
            blocks * weights / device.l2_bytes_per_s,
        )

    def around_s(self, device: Device) -> float:
        """Seconds around the loop, where all blocks multiply the rows of many iterations."""
        return 2 * self.rows * self.contracted * self.columns / device.fp32_flops


def product(dot: Op, part: Op, contracted: tuple[int, ...], weights: Op) -> Product:
    """The product of `dot`: `part`, summed over its dims `contracted`, with `weights`."""
    depth = math.prod(part.dims[d] for d in contracted)
    rows = max(1, part.shape.size // max(1, depth))
    return Product(rows, depth, dot.shape.size // rows, weights.shape.bytes // weights.shape.size)


def moved_s(size: int, device: Device) -> float:
    """Seconds to write `size` bytes and read them again."""
    return 2 * size / device.dram_bytes_per_s
