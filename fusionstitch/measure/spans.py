"""The span of calls on a device: the difference between clock readings before and after them.

It includes a program's kernels, gaps and copies, but not the host's work between calls: a kernel
that spins for a while holds the stream until all calls are enqueued.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler import builders
from fusionstitch.costmodel.devices import Device
from fusionstitch.errors import MeasureError
from fusionstitch.execution.original import plain_jit
from fusionstitch.hlo.exporter import Preparation, Replacement, export
from fusionstitch.hlo.importer import from_proto
from fusionstitch.measure import probes
from fusionstitch.measure.contexts import defaults
from fusionstitch.runtime import cuda
from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET, loading_config
from fusionstitch.runtime.portable import as_function

#: The most calls between two readings: XLA allows at most twice as many in flight.
MOST_CALLS = 16
#: How long the stream is held: this many times the last enqueuing time, plus some nanoseconds, up
#: to a limit. Programs that wait for the device themselves reach that limit.
_SLACK, _MORE_NS, _LONGEST_NS = 1.5, 30_000, 20_000_000


class Spans:
    """Reads the clock of one device, around calls on XLA's stream.

    Raises MeasureError if kernels cannot be launched there.
    """

    def __init__(self, device: Any, profile: Device):
        if not (ready := cuda.register_launcher(builders.store())):
            raise MeasureError(f"The GPU's clock cannot be read: {ready.reason}")
        self.device = device
        #: nanoseconds to hold the stream for each call
        self._ahead_ns = 100_000.0
        self._clock = _program(probes.clock(1), device, profile)
        self._gate = _program(probes.gate(), device, profile)
        with defaults(device):
            self._nothing = self._array(0)

    def us(self, calls: Sequence[Callable[[], Any]]) -> float:
        """Microseconds on the device per call, for up to `MOST_CALLS` calls made in order."""
        if not 0 < len(calls) <= MOST_CALLS:
            raise ValueError(f"A span is of 1 to {MOST_CALLS} calls, not {len(calls)}.")
        with defaults(self.device):
            hold = self._array(min(_LONGEST_NS, int(self._ahead_ns * len(calls)) + _MORE_NS))
        self._gate(hold)
        before = self._clock(self._nothing)
        began = time.perf_counter_ns()
        for call in calls:
            call()
        self._ahead_ns = _SLACK * (time.perf_counter_ns() - began) / len(calls)
        after = self._clock(self._nothing)
        with defaults(self.device):
            started, ended = (_nanoseconds(reading) for reading in (before, after))
        return max(0, ended - started) / 1e3 / len(calls)

    def _array(self, nanoseconds: int) -> Any:
        import jax

        return jax.device_put(np.array([nanoseconds, 0], np.uint32), self.device)


@functools.cache
def spans(profile: Device, device: Any) -> Spans:
    """The spans of a device, made once. Raises MeasureError as `Spans` does."""
    return Spans(device, profile)


def span_us(run: Callable[[], Any], runs: int) -> float:
    """Microseconds on the default GPU per call of `run`, which enqueues a program: the mean of
    `runs` calls. Raises MeasureError if there is no GPU that kernels can be launched on."""
    import jax

    from fusionstitch.options import Options

    profile = builders.profile(Options(backend="cuda"))
    return spans(profile, jax.local_devices()[0]).us([run] * runs)


def _nanoseconds(reading: Any) -> int:
    return int(np.asarray(reading).view(np.uint64)[0])


def _program(kernel: Kernel, device: Any, profile: Device) -> Callable[..., Any]:
    """A probe with one parameter and one result, both u32[2], as a separate executable."""
    import jax

    with defaults(device):
        spec = jax.ShapeDtypeStruct((2,), np.uint32)
        lowered = plain_jit()(lambda x: x + x).lower(spec)  # the call will replace the sum
        module = from_proto(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
        graph = module.entry
        [artifact] = probes.build([kernel], profile)
        call = Replacement(
            graph=graph,
            outputs=(graph.root,),
            inputs=tuple(graph.parameters),
            removed=(graph.root,),
            name=kernel.name,
            target=TARGET,
            config=artifact.config(),
        )
        load = Preparation("load", LOAD_TARGET, loading_config([artifact]))
        function = as_function(export(module, [call], load), kernel.name)
        there = jax.sharding.SingleDeviceSharding(device)
        shape = jax.ShapeDtypeStruct((2,), np.uint32, sharding=there)
        compiled: Callable[..., Any] = plain_jit()(function).lower(shape).compile()
        return compiled
