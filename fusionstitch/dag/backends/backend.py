"""What the scheduler asks of a device: streams, events, memory, launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple, Protocol

import numpy as np

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.dag.errors import ArrayError
from fusionstitch.dag.signature import Parameter


class DeviceFailure(Exception):
    """Work failed on the device. `work` is whose it was, where the device can tell."""

    def __init__(self, message: str, work: object = None) -> None:
        super().__init__(message)
        self.work = work


class Sizes(NamedTuple):
    """Blocks, threads of a block, and bytes of dynamic shared memory of a launch."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int


class JaxCall(Protocol):
    """A function of JAX by its leaves.

    Attributes:
        donated: the numbers of the arrays among them that it may destroy
        copied: those of them whose memory others use, too: it is given copies
        one: whether all that it gives is of one execution
    """

    donated: Set[int]
    copied: Set[int]
    one: bool

    def __call__(self, leaves: list[Any]) -> Any: ...


class Function(Protocol):
    """A built kernel: puts one launch on a stream. `work` names it if it fails."""

    def __call__(
        self, sizes: Sizes, arguments: Sequence[Any], stream: Any, work: object
    ) -> None: ...


class Backend(Protocol):
    """Streams, events and arrays are the backend's own; the scheduler only hands them around.

    All calls that take a stream return at once. `synchronize` and `done` raise DeviceFailure for
    work that failed, then or before.
    """

    name: str
    device: str
    #: What its calls raise, besides DeviceFailure, where work failed.
    failures: tuple[type[BaseException], ...]

    def stream(self, priority: int) -> Any:
        """A new stream that waits for no other one; lower numbers are more urgent."""

    def event(self, timed: bool) -> Any: ...

    def record(self, event: Any, stream: Any) -> None: ...

    def wait(self, stream: Any, event: Any) -> None:
        """What comes to `stream` later runs after what came before `event` was last recorded."""

    def synchronize(self, event: Any) -> None:
        """Waits on the host."""

    def done(self, event: Any) -> bool: ...

    def milliseconds(self, start: Any, stop: Any) -> float: ...

    def device_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any: ...

    def host_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Memory of the host that copies to the device need not wait for."""

    def upload(self, device: Any, host: np.ndarray | None, stream: Any) -> None:
        """Copies to the device; zeros where `host` is None."""

    def download(self, host: np.ndarray, device: Any, stream: Any) -> None: ...

    def part(self, device: Any, key: Any, stream: Any) -> np.ndarray:
        """A part of a device array on the host, whose copy has been waited for."""

    def build(self, code: str, name: str, parameters: Sequence[Parameter]) -> Function: ...

    def build_raw(self, kernel: Any, parameters: Sequence[Parameter]) -> Function:
        """Of a `cupy.RawKernel`."""

    def build_emitted(self, kernel: Kernel) -> Function:
        """Of a kernel that fusionstitch generated."""

    def call(
        self, fun: Callable[..., Any], arrays: Sequence[Any], stream: Any, work: object
    ) -> None:
        """Puts `fun(*arrays)` on a stream; what it launches goes there."""

    def lend(self, device: Any, stream: Any) -> Any:
        """A device array as JAX has it; its functions wait for what is on `stream` now."""

    def take(self, lent: Any, stream: Any) -> Any:
        """The device array of one that JAX has; `stream` waits for it."""

    def jitted(
        self, call: JaxCall, values: list[Any], lent: Set[int], stream: Any, work: object
    ) -> tuple[list[Any], Any]:
        """Has JAX call a function; `stream` waits for its results.

        Those of `values` whose numbers are in `lent` are arrays as JAX has them. Gives the results,
        as JAX has them and in memory of their own, and their tree.
        """

    def adopt(self, value: Any, copy: bool, stream: Any) -> Any:
        """A device array with the memory of another library's, or with a copy of it."""

    def address(self, device: Any) -> int:
        """Where the memory of a device array begins."""

    def drain(self) -> None:
        """Waits on the host for all that was launched, by whomever."""

    def recorded(self, enqueue: Callable[[Any], None]) -> Callable[[Any], None]:
        """What puts all that `enqueue(origin)` puts on streams on one stream, again and again."""

    def joins(self, stream: Any, event: Any) -> bool:
        """Has a stream of somebody else's, as DLPack gives it, wait for an event; False where that
        cannot be, and the host has to wait."""

    def capsule(self, device: Any, options: dict[str, Any]) -> Any:
        """A device array for DLPack."""

    def dlpack_device(self) -> tuple[int, int]: ...


def contiguous(array: Any) -> Any:
    """The array, if kernels can take it. Raises ArrayError."""
    if not array.flags.c_contiguous:
        raise ArrayError(
            "An array whose memory is shared is row-major, without gaps; this one is not. Copy it: "
            "`d.array(value)`."
        )
    return array
