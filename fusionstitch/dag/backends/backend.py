"""What the scheduler needs of a device: streams, events, memory, launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple, Protocol

import numpy as np

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.dag.errors import ArrayError
from fusionstitch.dag.signature import Parameter


class DeviceFailure(Exception):
    """Work failed on the device. `work` is the one that failed, if the device can tell."""

    def __init__(self, message: str, work: object = None) -> None:
        super().__init__(message)
        self.work = work


class Sizes(NamedTuple):
    """Blocks of the grid, threads of a block, and bytes of dynamic shared memory of a launch."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int


class JaxCall(Protocol):
    """A JAX function of its flattened arguments (leaves).

    Attributes:
        donated: indices of the arrays among them that it may destroy
        copied: indices of those whose memory others use as well; it gets copies
        one: whether all its results come from one execution
    """

    donated: Set[int]
    copied: Set[int]
    one: bool

    def __call__(self, leaves: list[Any]) -> Any: ...


class Function(Protocol):
    """A built kernel: puts one launch on a stream. `work` identifies it if it fails."""

    def __call__(
        self, sizes: Sizes, arguments: Sequence[Any], stream: Any, work: object
    ) -> None: ...


class Backend(Protocol):
    """The interface of backends. Streams, events and arrays are opaque to the scheduler.

    All calls that take a stream return immediately. `synchronize` and `done` raise DeviceFailure if
    work has failed so far.
    """

    name: str
    device: str
    #: Exceptions besides DeviceFailure that its calls raise after a failure.
    failures: tuple[type[BaseException], ...]

    def stream(self, priority: int) -> Any:
        """A new stream that waits for no other one; lower numbers are more urgent."""

    def event(self, timed: bool) -> Any: ...

    def record(self, event: Any, stream: Any) -> None: ...

    def wait(self, stream: Any, event: Any) -> None:
        """Later work on `stream` runs after the work before the last record of `event`."""

    def synchronize(self, event: Any) -> None:
        """Waits on the host."""

    def done(self, event: Any) -> bool: ...

    def milliseconds(self, start: Any, stop: Any) -> float: ...

    def device_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any: ...

    def host_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Host memory that can be copied to the device asynchronously."""

    def upload(self, device: Any, host: np.ndarray | None, stream: Any) -> None:
        """Copies to the device; zeros where `host` is None."""

    def download(self, host: np.ndarray, device: Any, stream: Any) -> None: ...

    def part(self, device: Any, key: Any, stream: Any) -> np.ndarray:
        """A part of a device array, copied to the host; waits for the copy."""

    def build(self, code: str, name: str, parameters: Sequence[Parameter]) -> Function: ...

    def build_raw(self, kernel: Any, parameters: Sequence[Parameter]) -> Function:
        """Builds a `cupy.RawKernel`."""

    def build_emitted(self, kernel: Kernel) -> Function:
        """Builds a kernel that fusionstitch generated."""

    def call(
        self, fun: Callable[..., Any], arrays: Sequence[Any], stream: Any, work: object
    ) -> None:
        """Calls `fun(*arrays)` with its launches on a stream."""

    def lend(self, device: Any, stream: Any) -> Any:
        """A device array as a JAX array; JAX's functions wait for the present work on `stream`."""

    def take(self, lent: Any, stream: Any) -> Any:
        """The device array of a JAX array; `stream` waits for it."""

    def jitted(
        self, call: JaxCall, values: list[Any], lent: Set[int], stream: Any, work: object
    ) -> tuple[list[Any], Any]:
        """Calls a JAX function; `stream` waits for its results.

        Those of `values` whose indices are in `lent` are JAX arrays. Returns the results, which are
        JAX arrays with memory of their own, and their pytree structure.
        """

    def adopt(self, value: Any, copy: bool, stream: Any) -> Any:
        """A device array with the memory of another library's array, or with a copy of it."""

    def address(self, device: Any) -> int:
        """The address of a device array."""

    def drain(self) -> None:
        """Waits on the host for all launched work, whoever launched it."""

    def recorded(self, enqueue: Callable[[Any], None]) -> Callable[[Any], None]:
        """Records what `enqueue(origin)` puts on streams; returns a function that replays all of it
        on one stream."""

    def joins(self, stream: Any, event: Any) -> bool:
        """Makes a foreign stream, as DLPack passes it, wait for an event. False if that is
        impossible and the host must wait."""

    def capsule(self, device: Any, options: dict[str, Any]) -> Any:
        """A DLPack capsule of a device array."""

    def dlpack_device(self) -> tuple[int, int]: ...


def contiguous(array: Any) -> Any:
    """The array, if kernels can use it. Raises ArrayError otherwise."""
    if not array.flags.c_contiguous:
        raise ArrayError(
            "An array whose memory is shared is row-major, without gaps; this one is not. Copy it: "
            "`d.array(value)`."
        )
    return array
