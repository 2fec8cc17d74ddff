"""A profile from the driver's description of a GPU, for kinds that were never measured.

Limits are the driver's. Rates are clocks times what a multiprocessor of the architecture does in
one; the copy curve is the H200's, scaled; all else is the H200's, and assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fusionstitch.costmodel.devices import Device, device
from fusionstitch.hlo.errors import OptionError


@dataclass(frozen=True)
class Properties:
    """A GPU as its driver describes it: bytes, kHz, bits. `capability` is 10 major + minor."""

    name: str
    capability: int
    sm_count: int
    clock_khz: int
    memory_clock_khz: int
    bus_bits: int
    l2_bytes: int
    shared_per_sm: int
    shared_per_block: int
    registers_per_sm: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    clusters: bool


@dataclass(frozen=True)
class Units:
    """What one multiprocessor does per clock: lanes of f32 and f64 multiply-adds, of special
    functions and integers, operations of its tensor cores (16-bit floats, dense, sums in f32),
    bytes from L2. Then the bytes of shared memory that the system takes of each block."""

    fp32: int
    fp64: int
    special: int
    int32: int
    tensor: int
    l2_bytes: float
    reserved_shared: int = 1024


#: By compute capability, from the CUDA programming guide and datasheets; GeForce cards reach half
#: of the tensor rate. One that is not here has those of the next lower one.
UNITS: Mapping[int, Units] = {
    70: Units(64, 32, 16, 64, 1024, 18, 0),
    75: Units(64, 2, 16, 64, 1024, 18, 0),
    80: Units(64, 32, 16, 64, 2048, 31),
    86: Units(128, 2, 16, 64, 1024, 13),
    90: Units(128, 64, 16, 64, 4096, 26),
    100: Units(128, 64, 16, 64, 8192, 26),
    103: Units(128, 2, 16, 64, 8192, 26),
    110: Units(128, 2, 16, 64, 4096, 26),
    120: Units(128, 2, 16, 128, 1024, 16),
}
#: The lowest compute capability that kernels are written for: threads of a warp that go their own
#: ways, atomics with an order.
LEAST_CAPABILITY = min(UNITS)
#: That of the first devices whose blocks form clusters, and how many may on every one of them.
CLUSTERS_SINCE, CLUSTER_LIMIT = 90, 8
#: What a profile takes over from the properties.
STATED = (
    *("sm_count", "warp_size", "max_threads_per_block", "max_threads_per_sm"),
    *("max_blocks_per_sm", "registers_per_sm", "shared_per_sm", "shared_per_block", "l2_bytes"),
)
#: What a copy of a large array gets of DRAM's nominal rate: 4.25 of 4.8 TB/s on an H200, 3.02 of
#: 3.35 on an H100.
REACHED = 0.9
#: L2 is so much faster than DRAM at least.
L2_OVER_DRAM = 1.5
#: What lends the form of the copy curve, and all that neither the driver nor `UNITS` say.
MODEL = "h200"
#: Arrays of whole units of this size are large.
LARGE_UNIT = 2**18


def from_properties(found: Properties) -> Device:
    """The profile of a GPU with these properties.

    Raises OptionError for one that is older than the kernels, or that says nothing about its
    memory.
    """
    if found.capability < LEAST_CAPABILITY:
        raise OptionError(
            f"{found.name} has compute capability {dotted(found.capability)}: kernels need "
            f"{dotted(LEAST_CAPABILITY)} or higher."
        )
    if min(found.sm_count, found.clock_khz, found.memory_clock_khz, found.bus_bits) <= 0:
        raise OptionError(
            f"The driver does not say how fast {found.name} is. Measure it with `fusionstitch "
            "calibrate --output FILE` and set FUSIONSTITCH_PROFILE to the file."
        )
    base = device(MODEL)
    unit = units(found.capability)
    clocks = found.sm_count * found.clock_khz * 1e3
    dram = 2 * found.memory_clock_khz * 1e3 * found.bus_bits / 8 * REACHED
    l2 = max(clocks * unit.l2_bytes, L2_OVER_DRAM * dram)
    return replace(
        base,
        name=profile_name(found.name),
        **limits(found),
        dram_bytes_per_s=_rounded(dram),
        l2_bytes_per_s=_rounded(l2),
        fp32_flops=_rounded(clocks * unit.fp32 * 2),
        fp64_flops=_rounded(clocks * unit.fp64 * 2),
        special_per_s=_rounded(clocks * unit.special),
        int32_ops=_rounded(clocks * unit.int32),
        tensor_bf16_flops=_rounded(clocks * unit.tensor),
        large_tensor_bytes=large_tensor_bytes(dram, base.launch_us),
        bandwidth_curve=scaled_curve(base, found.l2_bytes, l2, dram),
        measured=f"not measured: from the properties of one {found.name}, compute capability "
        f"{dotted(found.capability)}; launches, barriers, loops, instructions, registers, prices "
        f"and XLA's kernels are assumed to be as on the {MODEL}.",
    )


def units(capability: int) -> Units:
    """What a multiprocessor does per clock."""
    return UNITS[max(known for known in UNITS if known <= capability)]


def limits(found: Properties) -> dict[str, Any]:
    """The fields of a profile that the driver states as they are, or that follow from what the
    architecture allows."""
    clusters = found.clusters and found.capability >= CLUSTERS_SINCE
    return {
        "sm_arch": f"sm_{found.capability}",
        "cluster_limit": CLUSTER_LIMIT if clusters else 1,
        "reserved_shared": units(found.capability).reserved_shared,
        **{name: getattr(found, name) for name in STATED},
    }


def large_tensor_bytes(dram: float, launch_us: float) -> int:
    """What DRAM moves at `dram` bytes per second during one launch, in whole units."""
    return max(1, round(dram * launch_us * 1e-6 / LARGE_UNIT)) * LARGE_UNIT


def scaled_curve(
    base: Device, l2_bytes: int, l2_rate: float, dram_rate: float
) -> tuple[tuple[int, float], ...]:
    """`base`'s copy curve for another L2 and other rates: sizes follow that of the L2; what a copy
    takes beyond the first point follows its size and the rate of where it is, L2 or DRAM."""
    (least, first), *rest = base.bandwidth_curve
    size = l2_bytes / base.l2_bytes
    curve = [(least, first)]
    for moved, us in rest:
        inside = moved <= base.l2_bytes
        slower = base.l2_bytes_per_s / l2_rate if inside else base.dram_bytes_per_s / dram_rate
        point = int(moved * size), round(first + (us - first) * size * slower, 3)
        if point[0] > curve[-1][0]:
            curve.append((point[0], max(point[1], curve[-1][1])))
    return tuple(curve)


def profile_name(kind: str) -> str:
    """What a profile of a GPU is called that the driver calls `kind`: "NVIDIA L40S" is "l40s"."""
    makers = ("nvidia", "tesla", "geforce")
    return "-".join(word for word in kind.lower().split() if word not in makers)


def dotted(capability: int) -> str:
    """A compute capability as NVIDIA writes it."""
    return f"{capability // 10}.{capability % 10}"


def _rounded(rate: float) -> float:
    """Three digits: clocks are nominal."""
    return float(f"{rate:.3g}")
