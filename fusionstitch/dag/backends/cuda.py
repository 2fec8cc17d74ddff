"""The backend on a GPU: CuPy's streams, events, memory pools and kernels."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Sequence, Set
from typing import Any

import cupy
import cupyx
import numpy as np
from cupy.cuda import driver, runtime

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.text.source import uncommented
from fusionstitch.dag.backends.backend import DeviceFailure, JaxCall, Sizes, contiguous
from fusionstitch.dag.backends.jitted import Unversioned, at_once
from fusionstitch.dag.errors import ArrayError, LaunchError
from fusionstitch.dag.signature import Parameter
from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.runtime import nvrtc

_CPU = 1
_OPTIONS = ("-std=c++17",)
#: Sources with this have unmangled names; in others, names are looked up as C++ expressions.
_PLAIN = re.compile(r'extern\s+"C"')
#: Driver errors for a rejected launch, after which the device still works: invalid value, too many
#: resources.
_REFUSED = (1, 701)
#: Bytes of dynamic shared memory that a kernel may have without opting in.
_SHARED = 48 << 10


class Cuda:
    """The current device of CuPy."""

    name = "cuda"
    failures: tuple[type[BaseException], ...] = (runtime.CUDARuntimeError, driver.CUDADriverError)

    def __init__(self) -> None:
        self.device = runtime.getDeviceProperties(runtime.getDevice())["name"].decode()
        self._modules: dict[tuple[str, str], Any] = {}

    def stream(self, priority: int) -> Any:
        # It does not wait for the null stream, which others may use.
        return cupy.cuda.Stream(non_blocking=True, priority=priority)

    def event(self, timed: bool) -> Any:
        return cupy.cuda.Event(disable_timing=not timed)

    # CuPy's functions, without a wrapper
    record = staticmethod(cupy.cuda.Event.record)
    wait = staticmethod(cupy.cuda.Stream.wait_event)
    synchronize = staticmethod(cupy.cuda.Event.synchronize)

    def done(self, event: Any) -> bool:
        return bool(event.done)

    def milliseconds(self, start: Any, stop: Any) -> float:
        return float(cupy.cuda.get_elapsed_time(start, stop))

    def device_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return cupy.empty(shape, dtype)

    def host_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        if not all(shape):
            return np.empty(shape, dtype)
        return np.asarray(cupyx.empty_pinned(shape, dtype))

    def upload(self, device: Any, host: np.ndarray | None, stream: Any) -> None:
        if device.nbytes == 0:
            return
        if host is None:
            device.data.memset_async(0, device.nbytes, stream)
        else:
            device.data.copy_from_host_async(host.ctypes.data, device.nbytes, stream)

    def download(self, host: np.ndarray, device: Any, stream: Any) -> None:
        if device.nbytes:
            device.data.copy_to_host_async(host.ctypes.data, device.nbytes, stream)

    def part(self, device: Any, key: Any, stream: Any) -> np.ndarray:
        with stream:
            return np.asarray(device[key].get(stream=stream))

    def build(self, code: str, name: str, parameters: Sequence[Parameter]) -> Function:
        plain = _PLAIN.search(code) is not None
        key = (code, "" if plain else name)
        try:
            if key not in self._modules:
                self._modules[key] = cupy.RawModule(
                    code=code, options=_OPTIONS, name_expressions=None if plain else (name,)
                )
            return Function(self._modules[key].get_function(name))
        except cupy.cuda.compiler.CompileException as error:
            raise ToolchainError(
                f"NVRTC refused the source of {name}. It said:\n{error}", said=str(error)
            ) from None
        except driver.CUDADriverError as error:
            raise ToolchainError(
                f"There is no kernel {name!r} in its source ({error}). Give the name of a "
                "`__global__` function."
            ) from None

    def build_raw(self, kernel: Any, parameters: Sequence[Parameter]) -> Function:
        return Function(kernel)

    def build_emitted(self, kernel: Kernel) -> Emitted:
        return Emitted(kernel)

    def call(
        self, fun: Callable[..., Any], arrays: Sequence[Any], stream: Any, work: object
    ) -> None:
        with stream:
            fun(*arrays)

    def lend(self, device: Any, stream: Any) -> Any:
        import jax

        with stream:  # by DLPack's rules JAX waits for CuPy's current stream
            return jax.dlpack.from_dlpack(device)

    def take(self, lent: Any, stream: Any) -> Any:
        with stream:
            return cupy.from_dlpack(Unversioned(lent))

    def jitted(
        self, call: JaxCall, values: list[Any], lent: Set[int], stream: Any, work: object
    ) -> tuple[list[Any], Any]:
        results, tree, fresh = at_once(call, values, lent)
        for result in fresh:
            result.__dlpack__(stream=stream.ptr)  # makes the stream wait, as for any consumer
        return results, tree

    def adopt(self, value: Any, copy: bool, stream: Any) -> Any:
        if value.__dlpack_device__()[0] == _CPU:
            raise ArrayError("This array lies in the host's memory. Copy it: `d.array(value)`.")
        with stream:
            own = isinstance(value, cupy.ndarray)
            shared = cupy.from_dlpack(value if own else Unversioned(value))
            return shared.copy(order="C") if copy else contiguous(shared)

    def address(self, device: Any) -> int:
        return int(device.data.ptr)

    def drain(self) -> None:
        runtime.deviceSynchronize()

    def recorded(self, enqueue: Callable[[Any], None]) -> Callable[[Any], None]:
        graphs: list[Any] = []
        times = itertools.count()

        def launch(stream: Any) -> None:
            if next(times) == 0:  # this loads the kernels, which is not allowed during capture
                enqueue(stream)
                return
            if not graphs:
                graphs.append(_captured(self.stream(0), enqueue))
            graphs[0].launch(stream)

        return launch

    def joins(self, stream: Any, event: Any) -> bool:
        # By DLPack for CUDA: None is the legacy default stream, -1 means no stream.
        if stream == -1:
            return True
        runtime.streamWaitEvent(1 if stream is None else int(stream), event.ptr)
        return True

    def capsule(self, device: Any, options: dict[str, Any]) -> Any:
        return device.__dlpack__(stream=-1, **options)

    def dlpack_device(self) -> tuple[int, int]:
        return (2, runtime.getDevice())  # kDLCUDA


def _captured(origin: Any, enqueue: Callable[[Any], None]) -> Any:
    origin.begin_capture()
    try:
        enqueue(origin)
    except BaseException:
        with contextlib.suppress(Exception):
            origin.end_capture()
        raise
    return origin.end_capture()


class Function:
    """A kernel that CuPy launches."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._kernel = raw.kernel  # compiled here
        self._shared = _SHARED

    def __call__(self, sizes: Sizes, arguments: Sequence[Any], stream: Any, work: object) -> None:
        grid, block, shared = sizes
        try:
            if shared > self._shared:
                self._raw.max_dynamic_shared_size_bytes = self._shared = shared
            self._kernel(grid, block, arguments, shared, stream)
        except driver.CUDADriverError as error:
            if error.status in _REFUSED:
                raise LaunchError(
                    f"{work} cannot be launched with {grid} blocks of {block} threads and {shared} "
                    f"bytes of shared memory: {error}."
                ) from None
            raise DeviceFailure(str(error)) from None


#: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MAX_DYNAMIC_SHARED = 8


class Emitted:
    """A kernel that fusionstitch generated."""

    def __init__(self, kernel: Kernel) -> None:
        capability = cupy.cuda.Device().compute_capability
        arch = f"sm_{capability}" + "a" * (int(capability) >= 90)
        module = cupy.cuda.function.Module()
        module.load(nvrtc.compile(uncommented(kernel.source), arch, ()).image)
        self._kernel = module.get_function(kernel.name)
        self._cooperative = kernel.cooperative
        if kernel.shared_bytes > _SHARED:
            driver.funcSetAttribute(self._kernel.ptr, _MAX_DYNAMIC_SHARED, kernel.shared_bytes)

    def __call__(self, sizes: Sizes, arguments: Sequence[Any], stream: Any, work: object) -> None:
        grid, block, shared = sizes
        options = {"enable_cooperative_groups": True} if self._cooperative else {}
        self._kernel(grid, block, arguments, shared, stream, **options)
