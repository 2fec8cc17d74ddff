"""`fusionstitch calibrate`: measures the present GPU into a device profile.

It measures the copy curve (paper Figure 4), DRAM and L2 rates, and launches inside and outside a
CUDA graph (the paper's phi). It also measures the grid barrier, the threads needed to draw the
bandwidth, and arithmetic rates. Limits come from the driver. Thresholds follow by the rules in
`fusionstitch.costmodel.devices.Device`.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler import builders
from fusionstitch.compiler.progress import Step, silent
from fusionstitch.costmodel import devices
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.properties import large_tensor_bytes, limits, profile_name
from fusionstitch.errors import MeasureError, OptionError
from fusionstitch.measure import gpu, probes, replay
from fusionstitch.options import Options
from fusionstitch.runtime import driver
from fusionstitch.tuning.record import versions

#: Bytes copied per point of the curve: 4 KB to 2 GiB, or as much as fits into a third of the
#: memory.
SIZES = tuple(4096 << shift for shift in range(20))


@dataclasses.dataclass(frozen=True)
class Rate:
    """The rate of an arithmetic unit: `step` does `operations` operations on a value x of type
    `kind`."""

    kind: str
    start: str
    step: str
    operations: int


RATES: Mapping[str, Rate] = {
    "fp32_flops": Rate("float", "threadIdx.x * 1e-3f + i", "x = x * 0.999f + 0.001f;", 2),
    "fp64_flops": Rate("double", "threadIdx.x * 1e-3 + i", "x = x * 0.999 + 0.001;", 2),
    "special_per_s": Rate(
        "float", "threadIdx.x * 1e-3f + i", 'asm("ex2.approx.f32 %0, %0;" : "+f"(x));', 1
    ),
    "int32_ops": Rate("unsigned", "threadIdx.x + i", "x = (x << 3 | x >> 29) ^ 0x9e3779b9u;", 2),
}
#: The number of measurements: points of the curve, rates, two barriers, L2, few threads, launches.
MEASURED = len(SIZES) + len(RATES) + 5
#: The profile that supplies unmeasured numbers for an unknown GPU.
NEAREST = "h100"
_ROUNDS = 15
_STEPS = 4096
_LOADED = 4  # blocks per multiprocessor that keep its arithmetic busy
_FULL = 8  # blocks per multiprocessor that fill it
_BEYOND_L2 = 4  # from this many L2 sizes on, a copy runs at DRAM rate
#: Blocks per multiprocessor, of a copy with one load in flight per thread.
_SPARSE = (0.125, 0.25, 0.5, 1.0, 2.0)
#: Above this share of the bandwidth, thread counts cannot be told apart.
_DRAWN = 0.9


def calibrate(number: int = 0, step: Step = silent) -> Device:
    """The profile of the `number`-th GPU of this machine, measured within seconds. Calls `step`
    `MEASURED` times, with what is measured next.

    Its name is that of the existing profile for this kind of GPU, so that tuned results still
    apply. A kind without a profile gives its own name. Raises MeasureError if there is no such GPU.
    """
    import jax

    found = meter(number)
    with jax.default_device(found.device):
        return _Calibration(found, found.profile, _base() is not None, step).run()


def meter(number: int = 0) -> gpu.GpuMeter:
    """The meter of the `number`-th GPU; its profile has the limits that the driver reports.

    Raises MeasureError if there is no such GPU.
    """
    known = _base()
    base = known or devices.device(NEAREST)
    meters = gpu.meters(base)
    if not 0 <= number < len(meters):
        raise MeasureError(f"There is no GPU {number}: this machine has {len(meters)} of its kind.")
    kind = meters[number].name
    name = known.name if known else profile_name(kind)
    stated = limits(driver.properties(meters[number].ordinal))
    return gpu.GpuMeter(meters[number].device, dataclasses.replace(base, name=name, **stated))


def to_json(profile: Device) -> str:
    """The text of a profile's file."""
    data = dataclasses.asdict(profile)
    curve = ",\n    ".join(json.dumps(list(point)) for point in data.pop("bandwidth_curve"))
    text = json.dumps(data, indent=2).removesuffix("\n}")
    return f'{text},\n  "bandwidth_curve": [\n    {curve}\n  ]\n}}\n'


def _base() -> Device | None:
    """The existing profile for this kind of GPU."""
    try:
        return builders.profile(Options(backend="auto"))
    except OptionError:
        return None


@dataclasses.dataclass
class _Calibration:
    meter: gpu.GpuMeter
    profile: Device
    known: bool
    step: Step = silent

    def run(self) -> Device:
        profile, meter = self.profile, self.meter
        curve = self.curve()
        launch = meter.launch_us
        beyond_l2 = [point for point in curve if point[0] > _BEYOND_L2 * profile.l2_bytes]
        dram = max(moved / (us - launch) * 1e6 for moved, us in beyond_l2 or curve[-1:])
        barrier = self.barrier_us(1)
        more = (self.barrier_us(_LOADED) - barrier) / (_LOADED - 1)
        rates: dict[str, Any] = {name: self.rate(name, rate) for name, rate in RATES.items()}
        origin = "those of the profile there was" if self.known else f"the {NEAREST}'s"
        measured = (
            f"fusionstitch calibrate on one {meter.name}, {datetime.date.today().isoformat()}, "
            f"{versions()}. Limits are the driver's; the tensor rate, what loops and "
            f"counters cost, instructions, registers, prices and XLA's kernels are {origin}."
        )
        return dataclasses.replace(
            profile,
            bandwidth_curve=curve,
            dram_bytes_per_s=_rounded(dram),
            l2_bytes_per_s=_rounded(self.l2_rate()),
            launch_us=round(launch, 3),
            paper_launch_us=round(self.host_launch_us(), 2),
            bandwidth_threads=round(self.bandwidth_threads(dram)),
            grid_barrier_us=round(barrier, 3),
            barrier_block_us=round(more, 3),
            large_tensor_bytes=large_tensor_bytes(dram, launch),
            measured=measured,
            **rates,
        )

    def curve(self) -> tuple[tuple[int, float], ...]:
        """(bytes read and written, microseconds) of copies inside a CUDA graph."""
        import cupy

        with cupy.cuda.Device(self.meter.ordinal) as device:
            free = device.mem_info[0]
            points: list[tuple[int, float]] = []
            for size in SIZES:
                self.step(f"a copy of {size} bytes")
                if 3 * size > free:
                    continue
                us = self.copy_us(size)
                # a curve rises: lower values are noise
                points.append((2 * size, round(max(us, points[-1][1] if points else us), 3)))
            return tuple(points)

    def copy_us(self, size: int) -> float:
        """Microseconds of a copy by a kernel; beyond L2 by the driver, if that is faster."""
        import cupy

        runtime = cupy.cuda.runtime
        source, target = cupy.zeros(size, cupy.uint8), cupy.zeros(size, cupy.uint8)
        cupy.cuda.Device().synchronize()  # both were filled on another stream

        to, origin, kind = target.data.ptr, source.data.ptr, runtime.memcpyDeviceToDevice

        def launch(_: int) -> None:
            runtime.memcpyAsync(to, origin, size, kind, cupy.cuda.get_current_stream().ptr)

        pieces = size // 16
        grid = min(-(-pieces // probes.BLOCK), self.profile.sm_count * _FULL)
        us = self.kernel_us(probes.copy(grid), [origin, to, pieces])
        if size > self.profile.l2_bytes:
            us = min(us, replay.graph_us(launch, 1, _ROUNDS, self.meter.ordinal))
        del source, target
        cupy.get_default_memory_pool().free_all_blocks()
        return us

    def l2_rate(self) -> float:
        """Bytes per second, reads and writes, of a copy whose source and destination stay in L2."""
        import cupy

        self.step("a copy in L2")
        size = self.profile.l2_bytes // 8 // 4096 * 4096
        with cupy.cuda.Device(self.meter.ordinal):
            source, target = cupy.zeros(size, cupy.uint8), cupy.zeros(size, cupy.uint8)
            cupy.cuda.Device().synchronize()
            kernel = probes.copy(self.profile.sm_count * _FULL)
            us = self.kernel_us(kernel, [source.data.ptr, target.data.ptr, size // 16])
        return 2 * size / (us - self.meter.launch_us) * 1e6

    def barrier_us(self, blocks: int) -> float:
        """Microseconds of a grid barrier with `blocks` blocks per multiprocessor."""
        self.step(f"grid barriers, {blocks} blocks on a multiprocessor")
        few, many = 10, 110
        grid = self.profile.sm_count * blocks
        times = [self.kernel_us(probes.barriers(grid, count)) for count in (few, many)]
        return (times[1] - times[0]) / (many - few)

    def bandwidth_threads(self, dram: float) -> float:
        """T such that t threads per multiprocessor draw the share 1 - exp(-t / T) of DRAM's
        rate."""
        import cupy

        self.step("copies by few threads")
        size = _BEYOND_L2 * self.profile.l2_bytes // 4096 * 4096
        found = []
        with cupy.cuda.Device(self.meter.ordinal):
            source, target = cupy.zeros(size, cupy.uint8), cupy.zeros(size, cupy.uint8)
            cupy.cuda.Device().synchronize()
            for blocks in _SPARSE:
                grid = max(1, int(self.profile.sm_count * blocks))
                pointers = [source.data.ptr, target.data.ptr, size // 16]
                us = self.kernel_us(probes.sparse_copy(grid), pointers)
                share = 2 * size / (us - self.meter.launch_us) * 1e6 / dram
                if share < _DRAWN:
                    threads = grid * probes.BLOCK / self.profile.sm_count
                    found.append(-threads / math.log(1 - share))
        return statistics.median(found)

    def host_launch_us(self) -> float:
        """Microseconds of a kernel launched by the host, one after another."""
        self.step("launches by the host")
        return self.launched(
            probes.empty(1), [], lambda launch: replay.stream_us(launch, 200, _ROUNDS)
        )

    def rate(self, name: str, rate: Rate) -> float:
        import cupy

        self.step(f"arithmetic: {name}")
        grid = self.profile.sm_count * _LOADED
        with cupy.cuda.Device(self.meter.ordinal):
            result = cupy.zeros(1024, cupy.float32)
            cupy.cuda.Device().synchronize()
            kernel = probes.chains(name, rate.kind, rate.start, rate.step, grid, _STEPS)
            us = self.kernel_us(kernel, [result.data.ptr]) - self.meter.launch_us
        steps = grid * probes.BLOCK * probes.CHAINS * _STEPS
        return _rounded(steps * rate.operations / us * 1e6)

    def kernel_us(self, kernel: Kernel, pointers: list[int] | None = None) -> float:
        return self.launched(
            kernel,
            pointers or [],
            lambda launch: replay.graph_us(launch, 1, _ROUNDS, self.meter.ordinal),
        )

    def launched(
        self, kernel: Kernel, pointers: list[int], time: Callable[[replay.Launch], float]
    ) -> float:
        import cupy

        [artifact] = probes.build([kernel], self.profile)
        with cupy.cuda.Device(self.meter.ordinal):
            launch, module = replay.launcher(artifact, [pointers])
            us = time(launch)
            del module  # it must outlive the launches
        return us


def _rounded(rate: float) -> float:
    """Three significant digits; more would be noise."""
    return float(f"{rate:.3g}")
