"""M(V): how long V bytes of contiguous off-chip traffic take (paper 4.3, Figure 4)."""

from __future__ import annotations

import bisect

from fusionstitch.costmodel.devices import Device


def memory_us(device: Device, moved: float) -> float:
    """Microseconds of one kernel that moves `moved` bytes (reads plus writes), launch included.

    Linear between the points of the device's curve, constant below the first one, and at the rate
    of DRAM above the last one: monotone in `moved`.
    """
    curve = device.bandwidth_curve
    if moved <= curve[0][0]:
        return curve[0][1]
    if moved >= curve[-1][0]:
        return curve[-1][1] + (moved - curve[-1][0]) / device.dram_bytes_per_s * 1e6
    right = bisect.bisect_right(curve, moved, key=lambda point: point[0])
    (b0, t0), (b1, t1) = curve[right - 1], curve[right]
    return t0 + (t1 - t0) * (moved - b0) / (b1 - b0)


def latency_us(device: Device) -> float:
    """What even the smallest kernel takes beyond its launch: one round trip to memory."""
    return device.bandwidth_curve[0][1] - device.launch_us
