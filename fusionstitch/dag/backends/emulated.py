"""The backend without a GPU: kernels on the emulator, streams in a random order."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.dag.backends.backend import JaxCall, Sizes, contiguous
from fusionstitch.dag.backends.emulated_source import entry, translation_unit
from fusionstitch.dag.backends.jitted import later
from fusionstitch.dag.backends.simulated import Event, Machine, Stream
from fusionstitch.dag.errors import LaunchError
from fusionstitch.dag.signature import Parameter
from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.runtime import emulate
from fusionstitch.runtime.artifact import Artifact

#: Simulated milliseconds of any work, and of each byte of its arrays.
_LAUNCH_MS, _BYTE_MS = 1e-3, 1e-6
#: Limits of every device.
_MAX_THREADS, _MAX_BLOCKS = 1024, 2**31 - 1


class Emulated:
    """Runs on the CPU. `seed` decides the order of work that streams leave open."""

    name = "emulate"
    device = "emulator"
    failures: tuple[type[BaseException], ...] = ()

    def __init__(self, seed: int = 0) -> None:
        self._machine = Machine(seed)
        self._jax = self._machine.stream(0)  # JAX has its own
        self._sources: dict[str, _Source] = {}

    def stream(self, priority: int) -> Stream:
        return self._machine.stream(priority)

    def event(self, timed: bool) -> Event:
        return Event()

    def record(self, event: Event, stream: Stream) -> None:
        self._machine.record(event, stream)

    def wait(self, stream: Stream, event: Event) -> None:
        self._machine.wait(stream, event)

    def synchronize(self, event: Event) -> None:
        self._machine.synchronize(event)

    def done(self, event: Event) -> bool:
        self._machine.check()
        return event.mark.reached

    def milliseconds(self, start: Event, stop: Event) -> float:
        return stop.mark.time - start.mark.time

    def device_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = 0xA5  # reads of unwritten memory become visible
        return array

    def host_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        return np.empty(shape, dtype)

    def upload(self, device: np.ndarray, host: np.ndarray | None, stream: Stream) -> None:
        def copy() -> None:
            device[...] = 0 if host is None else host

        self._machine.work(stream, copy, cost(device), None)

    def download(self, host: np.ndarray, device: np.ndarray, stream: Stream) -> None:
        self._machine.work(stream, lambda: np.copyto(host, device), cost(device), None)

    def part(self, device: np.ndarray, key: Any, stream: Stream) -> np.ndarray:
        found: list[np.ndarray] = []
        arrived = Event()
        self._machine.work(stream, lambda: found.append(np.array(device[key])), _LAUNCH_MS, None)
        self._machine.record(arrived, stream)
        self._machine.synchronize(arrived)
        return found[0]

    def build(self, code: str, name: str, parameters: Sequence[Parameter]) -> _Function:
        source = self._sources.setdefault(code, _Source(code))
        return _Function(self._machine, source, source.add(name, parameters))

    def build_raw(self, kernel: Any, parameters: Sequence[Parameter]) -> _Function:
        return self.build(kernel.code, kernel.name, parameters)

    def build_emitted(self, kernel: Kernel) -> _Emitted:
        return _Emitted(self._machine, kernel)

    def call(
        self, fun: Callable[..., Any], arrays: Sequence[Any], stream: Stream, work: object
    ) -> None:
        self._machine.work(stream, lambda: fun(*arrays), cost(*arrays), work)

    def lend(self, device: np.ndarray, stream: Stream) -> np.ndarray:
        self._follow(self._jax, stream)
        return device

    def take(self, lent: Any, stream: Stream) -> np.ndarray:
        self._follow(stream, self._jax)
        return np.asarray(lent)

    def jitted(
        self, call: JaxCall, values: list[Any], lent: Set[int], stream: Stream, work: object
    ) -> tuple[list[Any], Any]:
        results, tree, fill = later(call, values, lent)
        self._machine.work(self._jax, fill, cost(*values, *results), work)
        self._follow(stream, self._jax)
        return results, tree

    def _follow(self, stream: Stream, other: Stream) -> None:
        """Makes later work on a stream run after the present work on the other one."""
        event = Event()
        self._machine.record(event, other)
        self._machine.wait(stream, event)

    def adopt(self, value: Any, copy: bool, stream: Stream) -> np.ndarray:
        shared = np.from_dlpack(value)
        if copy:
            return np.array(shared)
        return contiguous(shared)

    def address(self, device: np.ndarray) -> int:
        return device.ctypes.data

    def drain(self) -> None:
        self._machine.drain()

    def recorded(self, enqueue: Callable[[Any], None]) -> Callable[[Any], None]:
        return enqueue

    def joins(self, stream: Any, event: Event) -> bool:
        return False

    def capsule(self, device: np.ndarray, options: dict[str, Any]) -> Any:
        return device.__dlpack__(**options)

    def dlpack_device(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU


def cost(*values: Any) -> float:
    """Simulated milliseconds of work on these arrays."""
    return _LAUNCH_MS + _BYTE_MS * sum(v.nbytes for v in values if isinstance(v, np.ndarray))


class _Source:
    """One CUDA-C source with the kernels requested from it, which are compiled together."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._kernels: dict[str, Sequence[Parameter]] = {}
        self._built: Artifact | None = None

    def add(self, name: str, parameters: Sequence[Parameter]) -> int:
        if self._kernels.get(name) != parameters:
            self._kernels[name] = parameters
            self._built = None
        return list(self._kernels).index(name)

    def artifact(self) -> Artifact:
        """Its image, which stays loaded as long as this object is used. Raises ToolchainError."""
        if self._built is None:
            unit = translation_unit(self._code, self._kernels)
            try:
                self._built = emulate.build_unit(unit)
            except ToolchainError as error:
                raise ToolchainError(
                    f"The host compiler refused the source of {', '.join(self._kernels)}. It may "
                    "use a part of CUDA that the emulator does not have; otherwise correct it. "
                    f"It said:\n{error.said or error}",
                    said=error.said,
                ) from None
            weakref.finalize(self, emulate.keep_loaded(self._built))
        return self._built


class _Function:
    """A user's kernel."""

    def __init__(self, machine: Machine, source: _Source, number: int) -> None:
        self._machine = machine
        self._source = source
        self._number = number

    def __call__(
        self, sizes: Sizes, arguments: Sequence[Any], stream: Stream, work: object
    ) -> None:
        grid, block, shared = sizes
        blocks, threads = math.prod(grid), math.prod(block)
        if threads > _MAX_THREADS or blocks > _MAX_BLOCKS:
            raise LaunchError(
                f"{work} cannot be launched with {blocks} blocks of {threads} threads: a block has "
                f"at most {_MAX_THREADS}."
            )
        built = self._source.artifact()
        three = np.array([(*given, 1, 1)[:3] for given in (grid, block)], np.uint32)
        values = [three, *(v if isinstance(v, np.ndarray) else np.array(v) for v in arguments)]
        artifact = Artifact(
            built.key, built.image, entry(self._number), blocks, threads, shared, False
        )
        addresses = [value.ctypes.data for value in values]

        def run() -> None:
            emulate.launch(artifact, addresses)
            del values[:]  # keeps them alive until here

        self._machine.work(stream, run, cost(*arguments), work)


class _Emitted:
    """A kernel that fusionstitch generated, with its own sizes."""

    def __init__(self, machine: Machine, kernel: Kernel) -> None:
        self._machine = machine
        [self._artifact] = emulate.build([kernel])
        weakref.finalize(self, emulate.keep_loaded(self._artifact))

    def __call__(
        self, sizes: Sizes, arguments: Sequence[Any], stream: Stream, work: object
    ) -> None:
        artifact, arrays = self._artifact, list(arguments)

        def run() -> None:
            emulate.launch(artifact, [array.ctypes.data for array in arrays])

        self._machine.work(stream, run, cost(*arrays), work)
