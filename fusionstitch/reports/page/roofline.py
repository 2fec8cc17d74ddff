"""The roofline: operations per byte of memory against operations per second, kernel by kernel.

Bytes are those of DRAM and of L2: what passes between kernels often stays in L2, and kernels that
read nothing else would lie nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusionstitch.reports import units

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.costmodel.devices import Device
    from fusionstitch.costmodel.work import Work
    from fusionstitch.reports.units import Unit

#: The picture, its margins, and how large the mark of the longest kernel is.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 620, 340, 62, 24, 16, 44
LARGEST, SMALLEST = 11.0, 2.5
#: Kernels of XLA's that are marked: those that take longest.
MOST = 400


@dataclass(frozen=True)
class Point:
    """One kernel; `scope` is empty for XLA's."""

    x: float
    y: float
    radius: float
    scope: str
    text: str


@dataclass(frozen=True)
class Roofline:
    """Everything in pixels of the picture."""

    points: Sequence[Point]
    roofs: Sequence[tuple[str, str]]
    ticks_x: Sequence[tuple[float, str]]
    ticks_y: Sequence[tuple[float, str]]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    bottom: int = HEIGHT - BOTTOM
    right: int = WIDTH - RIGHT
    top: int = TOP


def roofline(stitched: Stitched) -> Roofline | None:
    """That of the program's kernels, stitched and under XLA; None where none computes anything."""
    found: list[tuple[Unit, str, str]] = []
    for plan in stitched.plans:
        for unit in units.stitched(plan, stitched):
            if unit.stitch is not None:
                found.append((unit, unit.stitch.chosen.facts.scope, unit.stitch.kernel.name))
        xla = [u for u in units.under_xla(plan.program, stitched) if u.kind == units.XLA]
        xla.sort(key=lambda u: -(u.us or 0))
        found += [(unit, "", f"XLA: {unit.hero}") for unit in xla[:MOST]]
    seen = [one for one in found if one[0].us and one[0].work and _operations(one[0].work)]
    return _drawn(seen, stitched.device) if seen else None


def _operations(work: Work) -> int:
    return work.flops + work.flops64 + work.special + work.dot_flops + work.tensor_flops


def _drawn(seen: Sequence[tuple[Unit, str, str]], device: Device) -> Roofline:
    places = []
    for unit, scope, name in seen:
        assert unit.work is not None
        assert unit.us
        operations = _operations(unit.work)
        per_byte = operations / max(1, unit.work.bytes + unit.work.l2_bytes)
        places.append((per_byte, operations / unit.us * 1e6, unit, scope, name))
    ridge = device.fp32_flops / device.dram_bytes_per_s
    low_x = 10 ** math.floor(math.log10(min(0.1, *(p[0] for p in places))))
    high_x = 10 ** math.ceil(math.log10(max(10 * ridge, *(p[0] for p in places))))
    top = max(device.fp32_flops, device.tensor_bf16_flops)
    low_y = 10 ** math.floor(math.log10(min(1e10, *(p[1] for p in places))))
    high_y = 10 ** math.ceil(math.log10(max(top, *(p[1] for p in places))))

    def x(value: float) -> float:
        share = math.log(value / low_x) / math.log(high_x / low_x)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        share = math.log(value / low_y) / math.log(high_y / low_y)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)

    def roof(rate: float, peak: float) -> str:
        """From the left, along the slope of a memory, up to a unit's peak."""
        start = max(low_x, low_y / rate)
        bend = min(high_x, peak / rate)
        corners = [(start, start * rate), (bend, bend * rate), (high_x, min(peak, high_x * rate))]
        return " ".join(f"{x(a)},{y(b)}" for a, b in corners)

    longest = max(unit.us or 0 for *_, unit, _, _ in places)
    points = [
        Point(
            x(a),
            y(b),
            round(max(SMALLEST, LARGEST * math.sqrt((unit.us or 0) / longest)), 1),
            scope,
            f"{name}: {unit.us:.2f} us, {b / 1e12:.3g} Top/s, {a:.2g} operations a byte",
        )
        for a, b, unit, scope, name in places
    ]
    points.sort(key=lambda point: (bool(point.scope), -point.radius))
    dram, l2 = device.dram_bytes_per_s, device.l2_bytes_per_s
    f32, tensor = device.fp32_flops, device.tensor_bf16_flops
    roofs = (
        (f"DRAM {dram / 1e12:.2f} TB/s, f32 {f32 / 1e12:.0f} TFLOP/s", roof(dram, f32)),
        (f"L2 {l2 / 1e12:.2f} TB/s, tensor cores {tensor / 1e12:.0f} TFLOP/s", roof(l2, tensor)),
    )
    return Roofline(points, roofs, _ticks(low_x, high_x, x), _ticks(low_y, high_y, y))


def _ticks(low: float, high: float, place: Callable[[float], float]) -> list[tuple[float, str]]:
    """Some of the powers of ten, as they are written with units."""
    first, last = round(math.log10(low)), round(math.log10(high))
    step = max(1, (last - first) // 7)
    return [(place(10.0**n), _power(n)) for n in range(first, last + 1, step)]


def _power(n: int) -> str:
    """Such as 0.1, 100, 10k, 1T."""
    if n < 0:
        return f"{10.0**n:g}"
    return f"{10 ** (n % 3)}{('', 'k', 'M', 'G', 'T', 'P', 'E')[n // 3]}"
