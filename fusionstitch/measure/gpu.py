"""The meter of a GPU: stitched kernels under graph replay, XLA's between readings of the clock."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import statistics
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from fusionstitch.accuracy import difference
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler import builders
from fusionstitch.costmodel.devices import Device
from fusionstitch.errors import FusionStitchError, MeasureError
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.measure import activity, buffers, probes, replay, side_by_side
from fusionstitch.measure.contexts import defaults
from fusionstitch.measure.side_by_side import Sides
from fusionstitch.runtime.apart import apart
from fusionstitch.runtime.artifact import Artifact
from fusionstitch.runtime.outcome import Failed

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: The fewest copies of XLA's program in a row.
XLA_COPIES = 12
#: Copies of each side of a comparison: the first, and further ones that together take about this
#: many microseconds, so that short comparisons compile little. A side of many ops has at most this
#: many ops in all its copies, but at least two copies.
COPIES, ENOUGH_US, COPIED_OPS = 5, 100.0, 600
#: Share of the free memory that measuring may take.
MEMORY_SHARE = 0.25
#: Launches of a 2 ms kernel before anything is measured.
WARM_LAUNCHES = 20
#: Bytes copied by the kernel that gives the gap between kernels.
GAP_BYTES = 1 << 20


class GpuMeter:
    """Measures on one JAX device; the argument sets of the last pattern stay allocated.

    Both sides run inside CUDA graphs. Graph replay gives the period of a stitched kernel; XLA's
    program runs several times in a row (`measure/side_by_side.py`).
    """

    def __init__(self, device: Any, profile: Device):
        self.device = device
        self.profile = profile
        self.name: str = device.device_kind
        self._argument_sets: tuple[object, list[list[Any]]] = ((), [])
        self._lock = threading.RLock()

    @property
    def ordinal(self) -> int:
        number: int = self.device.local_hardware_id
        return number

    @functools.cached_property
    def launch_us(self) -> float:
        """The period of an empty kernel in a CUDA graph (the paper's phi, inside graphs)."""

        def run() -> float:
            self._warm()
            return self._probed(probes.empty(self.profile.sm_count), [])[0]

        return self._measured(run)

    @functools.cached_property
    def gap_us(self) -> float:
        """Time per kernel in a CUDA graph beyond the kernel's duration, in microseconds."""

        def run() -> float:
            import cupy

            self._warm()
            with cupy.cuda.Device(self.ordinal):
                source, target = (cupy.zeros(GAP_BYTES, cupy.uint8) for _ in range(2))
            arguments = [source.data.ptr, target.data.ptr, GAP_BYTES // 16]
            period, duration = self._probed(probes.copy(2 * self.profile.sm_count), arguments)
            return max(0.0, period - duration)

        return self._measured(run)

    def kernel_us(self, kernel: Kernel, artifact: Artifact, rounds: int) -> float:
        def run() -> float:
            inputs = self._sets(kernel.inputs, (*kernel.outputs, *kernel.scratch))
            shapes = (*kernel.outputs, *kernel.scratch)
            written = [buffers.results(shapes, self.device) for _ in inputs]
            pointers = [
                buffers.pointers(read + results)
                for read, results in zip(inputs, written, strict=True)
            ]
            import cupy

            with cupy.cuda.Device(self.ordinal):
                launch, module = replay.launcher(artifact, pointers)
                time = replay.graph_us(launch, len(pointers), rounds, self.ordinal)
                del module  # it must outlive the launches
            return time

        return self._measured(run)

    def differences(
        self, one: tuple[Kernel, Artifact], other: tuple[Kernel, Artifact]
    ) -> list[float]:
        def run() -> list[float]:
            return [
                difference(a, b)
                for a, b in zip(self._results(*other), self._results(*one), strict=True)
            ]

        return self._measured(run)

    def _results(self, kernel: Kernel, artifact: Artifact) -> list[np.ndarray]:
        """The outputs of one launch."""
        import cupy

        shapes = (*kernel.outputs, *kernel.scratch)
        read, written = self._sets(kernel.inputs, shapes)[0], buffers.results(shapes, self.device)
        pointers = buffers.pointers(read + written)
        with cupy.cuda.Device(self.ordinal):
            launch, module = replay.launcher(artifact, [pointers])
            launch(0)
            cupy.cuda.Device(self.ordinal).synchronize()
            del module
        return [
            np.asarray(memory).view(NUMPY_DTYPES[shape.dtype]).reshape(shape.dims)
            for memory, shape in zip(written, kernel.outputs, strict=False)
        ]

    def xla_us(self, module: bytes) -> float:
        def run() -> float:
            self._argument_sets = ((), [])  # frees memory for the program
            entry = from_proto(module).entry
            results = entry.root.shape.elements or (entry.root.shape,)
            shapes = (*(p.shape for p in entry.parameters), *results)
            sets = buffers.sets_for(sum(shape.bytes for shape in shapes), self.profile)
            program = side_by_side.Program("alone", module, max(XLA_COPIES, 2 * sets), sets)
            return side_by_side.times_us([program], self.device, self.profile)[0]

        return self._measured(run)

    def sides_us(self, pairs: Sequence[Sides]) -> list[tuple[float, float]]:
        """(ours, XLA's) microseconds of each pair, all run side by side."""

        def run() -> list[tuple[float, float]]:
            self._argument_sets = ((), [])
            programs = [
                self._program(module, pair) for pair in pairs for module in (pair.ours, pair.theirs)
            ]
            self._make_room(programs)
            times = side_by_side.times_us(programs, self.device, self.profile)
            return list(zip(times[::2], times[1::2], strict=True))

        return self._measured(run)

    def _program(self, module: bytes, pair: Sides) -> side_by_side.Program:
        copies = min(COPIES, 1 + math.ceil(ENOUGH_US / max(1.0, pair.about_us)))
        copies = max(2, min(copies, COPIED_OPS // pair.ops))
        program = side_by_side.Program("side", module, copies, 1, pair.cold, pair.below)
        size = sum(program.operands[number].shape.bytes for number in pair.cold)
        sets = min(copies, buffers.sets_for(size, self.profile)) if size else 1
        return dataclasses.replace(program, sets=sets)

    def _make_room(self, programs: Sequence[side_by_side.Program]) -> None:
        """Raises MeasureError if the device has too little free memory."""
        stats = self.device.memory_stats() or {}
        free = stats.get("bytes_limit", math.inf) - stats.get("bytes_in_use", 0)
        needed = side_by_side.memory_bytes(programs)
        if MEMORY_SHARE * free < needed:
            raise MeasureError(f"Measuring takes {needed} bytes of {free} that are free.")

    def _sets(self, read: Sequence[Shape], written: Sequence[Shape]) -> list[list[Any]]:
        """Sets of inputs of these shapes, as many as the traffic of one run requires."""
        shapes = tuple(read)
        size = sum(shape.bytes for shape in (*read, *written))
        count = buffers.sets_for(size, self.profile)
        if self._argument_sets[0] != (shapes, count):
            self._argument_sets = ((), [])  # frees the previous sets first
            first = buffers.inputs([buffers.Operand(shape) for shape in shapes], self.device)
            sets = [first, *(buffers.copied(first) for _ in range(count - 1))]
            self._argument_sets = ((shapes, count), sets)
        return self._argument_sets[1]

    def _probed(self, kernel: Kernel, arguments: list[int]) -> tuple[float, float]:
        """(period in a CUDA graph, duration by the profiler) of a probe."""
        import cupy

        [artifact] = probes.build([kernel], self.profile)
        with cupy.cuda.Device(self.ordinal):
            launch, module = replay.launcher(artifact, [arguments])
            period = replay.graph_us(launch, 1, 15, self.ordinal)

            def launches() -> None:
                for number in range(100):
                    launch(number)
                cupy.cuda.Device(self.ordinal).synchronize()

            events = activity.recorded(launches, self.ordinal)
            del module  # it must outlive the launches
        return period, statistics.median([us for _, us in events] or [period])

    def _warm(self) -> None:
        """Keeps the device busy until its clock frequency has risen."""
        import cupy

        grid = self.profile.sm_count * 4
        spin = probes.chains("warm", "float", "i", "x = x * 0.999f + 0.001f;", grid, 1 << 16)
        [artifact] = probes.build([spin], self.profile)
        with cupy.cuda.Device(self.ordinal):
            result = cupy.zeros(probes.BLOCK, cupy.float32)
            launch, module = replay.launcher(artifact, [[result.data.ptr]])
            for number in range(WARM_LAUNCHES):
                launch(number)
            cupy.cuda.Device(self.ordinal).synchronize()
            del module, result

    def _measured(self, run: Callable[[], T]) -> T:
        """Runs it alone on this device; any failure becomes a MeasureError."""

        def alone() -> T:
            with self._lock, defaults(self.device):
                return run()

        found = apart(alone)
        if not isinstance(found, Failed):
            return found
        error = found.error  # out of memory, a kernel that does not run, ...
        if isinstance(error, FusionStitchError):
            raise error
        logger.debug("measuring failed", exc_info=error)
        what = str(error).strip().splitlines() or [type(error).__name__]
        raise MeasureError(f"It cannot be measured: {what[0]}") from error


def meters(profile: Device) -> list[GpuMeter]:
    """One meter per GPU of the kind that JAX uses. Raises MeasureError if there is none."""
    import jax

    if not (found := builders.gpu()):
        raise MeasureError(
            f"Measuring needs an NVIDIA GPU. {found.reason} Run it on a machine that has one, and "
            "bring what it writes: `fusionstitch tune --export FILE` there, `--import FILE` here; "
            "`fusionstitch calibrate --output FILE` there, `--device FILE` here."
        )
    if isinstance(count := apart(_device_count), Failed):
        raise MeasureError(
            f"Measuring launches kernels through CuPy, which cannot be used: {count.error}. "
            "Install it for your CUDA version, for example `pip install cupy-cuda13x`."
        )
    kind = jax.local_devices()[0].device_kind
    return [GpuMeter(d, profile) for d in jax.local_devices() if d.device_kind == kind]


def _device_count() -> int:
    import cupy

    count: int = cupy.cuda.runtime.getDeviceCount()
    return count
