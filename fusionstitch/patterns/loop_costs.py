"""What the rules of loops weigh: seconds of an iteration against seconds around the loop."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Op

#: Bytes that a rule may have a loop keep beside what it carries: any GPU has them to spare.
SPARE_BYTES = 1 << 30


@dataclass(frozen=True)
class Product:
    """What one iteration multiplies: `rows` of a part, each with `contracted` times `columns`
    weights of `item` bytes."""

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
    """A `dot` of `part`, of which dims `contracted` are summed over, with `weights`."""
    depth = math.prod(part.dims[d] for d in contracted)
    rows = max(1, part.shape.size // max(1, depth))
    return Product(rows, depth, dot.shape.size // rows, weights.shape.bytes // weights.shape.size)


def moved_s(size: int, device: Device) -> float:
    """Seconds in which `size` bytes are written, and read again."""
    return 2 * size / device.dram_bytes_per_s
