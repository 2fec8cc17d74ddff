"""`fs.dag.Scheduler`: runs GPU work concurrently, in the order that its arrays require."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from fusionstitch.codegen.kernel import Kernel as Generated
from fusionstitch.dag import trace
from fusionstitch.dag.access import Access
from fusionstitch.dag.array import Array
from fusionstitch.dag.backends.backend import Backend
from fusionstitch.dag.backends.choice import backend as chosen
from fusionstitch.dag.element import Storage
from fusionstitch.dag.emitted import Emitted
from fusionstitch.dag.engine import Engine
from fusionstitch.dag.errors import ArrayError
from fusionstitch.dag.exchange import adopted, is_on_device
from fusionstitch.dag.function import Function
from fusionstitch.dag.graph import Graph, graph
from fusionstitch.dag.kernel import UserKernel
from fusionstitch.dag.library import Library
from fusionstitch.dag.options import Execution, NewStream, ParentStream, Policies
from fusionstitch.dag.recorded import Recorded
from fusionstitch.dag.signature import parse
from fusionstitch.dag.timeline import Timeline
from fusionstitch.hlo.errors import OptionError


class Scheduler:
    """Runs kernels in the order given by the arrays that they read and write, as GrCUDA does.

    A call returns immediately. The scheduler determines which earlier work it depends on, puts it
    on a stream, and makes that stream wait for others if needed. Reading an array on the host waits
    for the work that writes it. Only one thread at a time may use a scheduler and its objects.

    Args:
        policy: "async", or "sync" to wait for each piece of work
        streams: stream of work without dependences: "always-new" for a new stream, "reuse" for one
            that has become idle, if there is one
        parent: stream of other work: "disjoint" for that of the first parent that has not passed
            its stream on, else as above; "same-as-parent" for that of the first parent
        const: whether kernels that only read an array may run concurrently
        prefetch: whether arrays are sent to the device before waiting for the parents of their
            kernel, or after
        timing: whether kernels and transfers are timed, for `timeline` and `history`
        backend: "cuda", "emulate" to run on the CPU, or "auto": CUDA if there is a GPU
        seed: for the emulator, which runs independent work in a random order
        remembered: the number of launches that `graph` and `timeline` show

    Raises:
        OptionError: a value is not allowed, or CUDA is requested and not available.
    """

    def __init__(
        self,
        *,
        policy: Execution = "async",
        streams: NewStream = "always-new",
        parent: ParentStream = "disjoint",
        const: bool = True,
        prefetch: bool = True,
        timing: bool = False,
        backend: Literal["auto", "cuda", "emulate"] | Backend = "auto",
        seed: int = 0,
        remembered: int = 4096,
    ) -> None:
        self.policies = Policies(policy, streams, parent, const, prefetch, timing)
        self._engine = Engine(chosen(backend, seed), self.policies, remembered)
        self._access = Access(self._engine)
        self._arrays = 0

    @property
    def backend(self) -> str:
        """The backend, "cuda" or "emulate"."""
        return self._engine.backend.name

    @property
    def device(self) -> str:
        """The name of the GPU, or "emulator"."""
        return self._engine.backend.device

    def array(self, value: Any, dtype: Any = None, *, name: str | None = None) -> Array:
        """An array of the scheduler.

        Args:
            value: a shape, an int or a tuple of ints, for zeros; otherwise an array or nested lists
                of numbers, which are copied
            dtype: NumPy dtype of its elements; by default float32 for a shape, else that of `value`
            name: name on the edges of graphs

        Raises:
            ArrayError: the shape is invalid, or the elements are not numbers.
        """
        if isinstance(value, int | np.integer):
            value = (int(value),)
        if isinstance(value, tuple) and all(isinstance(n, int | np.integer) for n in value):
            return self._new(value, np.dtype(dtype or np.float32), name)
        if dtype is None and is_on_device(value):
            return self._adopted(value, name, copy=True)
        host = np.asarray(value, dtype=dtype)
        made = self._new(host.shape, host.dtype, name)
        made[...] = host
        return made

    @overload
    def kernel(self, code: Generated, /, *, priority: int = 0) -> Emitted: ...

    @overload
    def kernel(self, code: Any, signature: str, /, *, priority: int = 0) -> UserKernel: ...

    @overload
    def kernel(self, code: str, name: str, signature: str, *, priority: int = 0) -> UserKernel: ...

    def kernel(
        self, code: Any, name: str = "", signature: str | None = None, *, priority: int = 0
    ) -> UserKernel | Emitted:
        """A kernel of CUDA-C: `kernel(code, name, signature)`.

        `kernel(raw, signature)` takes a `cupy.RawKernel`. `kernel(generated)` takes one of
        `compiled.kernels`, which fusionstitch generated and whose sizes are fixed: call it directly
        with its inputs and outputs.

        Args:
            code: its complete source
            name: name of the `__global__` function in it
            signature: its parameters in NIDL, such as "const pointer float, inout pointer float,
                sint32". That an array is const is trusted, not checked
            priority: lower numbers are more urgent on a full GPU; 0 is the lowest priority

        Raises:
            SignatureError: the signature cannot be parsed.
            ToolchainError: the code does not compile; the emulator raises this at the first launch.
        """
        engine = self._engine
        if isinstance(code, Generated):
            return Emitted(code, engine, self._access, priority)
        if isinstance(code, str):
            parameters = parse(signature or "")
            function = engine.backend.build(code, name, parameters)
        else:
            parameters = parse(name if signature is None else signature)
            name, function = code.name, engine.backend.build_raw(code, parameters)
        return UserKernel(name, parameters, function, engine, self._access, priority)

    def library(
        self,
        fun: Callable[..., Any],
        signature: str,
        *,
        name: str | None = None,
        stream: bool = True,
        priority: int = 0,
    ) -> Library:
        """A function that launches work on device arrays, scheduled like a kernel.

        Args:
            fun: called with one argument per parameter: CuPy arrays (NumPy arrays on the emulator)
                and numbers. Its result is ignored
            signature: as for `kernel`
            name: name in graphs and messages; by default that of the function
            stream: whether it works on CuPy's current stream. If not, the call waits for all work
                launched before, and for what it launches
            priority: as for `kernel`

        Raises:
            SignatureError: the signature cannot be parsed.
        """
        return Library(
            name or _name(fun), parse(signature), fun, self._engine, self._access, stream, priority
        )

    def function(
        self, fun: Callable[..., Any], *, donate: Sequence[int] = (), name: str | None = None
    ) -> Function:
        """A JAX function, for example from `jax.jit` or `fs.jit`, called in the scheduler's order.

        It accepts arrays of the scheduler, alone or in pytrees, and any other arguments, and
        returns arrays of the scheduler. It only reads its arguments, except for donated ones, whose
        contents are lost.

        Args:
            fun: the function
            donate: indices of the positional arguments it donates, like `donate_argnums` of
                `jax.jit`
            name: name in graphs and messages; by default that of the function
        """
        return Function(
            name or _name(fun), fun, tuple(donate), self._engine, self._access, self._result
        )

    def recorded(self, fun: Callable[..., Any], *, name: str | None = None) -> Recorded:
        """A function that launches kernels, launched as one piece of work: a CUDA graph on a GPU.

        It takes arrays and numbers. The function itself runs once per combination of arguments;
        later calls launch the same kernels again. The arrays decide the order and the streams of
        its kernels, as for single launches.

        Args:
            fun: launches kernels of the scheduler, and does nothing else that must be repeated
            name: name in graphs and messages; by default that of the function
        """
        return Recorded(name or _name(fun), fun, self._engine, self._access)

    def from_dlpack(self, value: Any, *, name: str | None = None) -> Array:
        """An array that shares the memory of a CuPy or JAX array, or of a NumPy array on the
        emulator.

        The scheduler does not see later accesses by that library. A JAX array can only be read.

        Raises:
            ArrayError: the array is not on the device or not row-major, or another array of the
                scheduler has its memory.
        """
        return self._adopted(value, name, copy=False)

    def synchronize(self) -> None:
        """Waits for everything. Raises KernelError. Reading results needs no such call, since
        reading waits."""
        self._engine.wait_for_all()

    def graph(self) -> Graph:
        """What was launched, on which streams, and what waited for what. Does not wait."""
        return graph(self._engine.log)

    def timeline(self) -> Timeline:
        """When each kernel and transfer ran, in milliseconds; waits for everything.

        Raises OptionError for a scheduler without timing.
        """
        clock = self._engine.clock
        if clock is None:
            raise OptionError("Nothing was timed: make the scheduler with timing=True.")
        self.synchronize()
        return clock.timeline(self._engine.log)

    def history(self, kernel: Any) -> list[float]:
        """Milliseconds of each timed launch of a kernel, or of each call of a library, function or
        sequence of the scheduler, on this device; waits for everything.

        Raises OptionError for a scheduler without timing.
        """
        clock = self._engine.clock
        if clock is None:
            raise OptionError("Nothing was timed: make the scheduler with timing=True.")
        self.synchronize()
        return list(clock.history.get(kernel, ()))

    def export(self, path: str | Path) -> None:
        """Writes the graph to a .dot file, or the timeline as a Chrome trace to a .json file.

        Raises OptionError for another ending, and for a timeline without timing.
        """
        path = Path(path)
        timed = path.suffix == ".json" and self._engine.clock is not None
        trace.write(path, self.graph(), self.timeline() if timed else None)

    def clear(self) -> None:
        """Forgets the data of `graph`, `timeline` and `history`; waits for everything."""
        self.synchronize()
        self._engine.clear()

    def _new(self, shape: Sequence[int], dtype: np.dtype[Any], name: str | None) -> Array:
        self._access.check_open()
        self._engine.collect()
        shape = tuple(int(n) for n in shape)
        if any(n < 0 for n in shape):
            raise ArrayError(f"{shape} is not a shape: sizes cannot be negative.")
        if dtype.hasobject or dtype.kind in _NO_NUMBERS:
            raise ArrayError(f"The elements of an array must be numbers, not {dtype}.")
        return Array(self._access, Storage(shape, dtype, self._label(name)))

    def _adopted(self, value: Any, name: str | None, copy: bool) -> Array:
        return Array(self._access, adopted(self._engine, value, self._label(name), copy))

    def _result(self, lent: Any) -> Array:
        """An array for a result of JAX."""
        made = Array(self._access, Storage(lent.shape, lent.dtype, self._label(None)))
        made.storage.lent = lent
        return made

    def _label(self, name: str | None) -> str:
        self._arrays += 1
        return f"a{self._arrays - 1}" if name is None else name

    def __repr__(self) -> str:
        return f"Scheduler on {self.device}: {self.policies}"


#: Kinds of elements that NumPy supports and devices do not: strings, dates, times.
_NO_NUMBERS = "SUMm"


def _name(fun: Callable[..., Any]) -> str:
    return str(getattr(fun, "__name__", None) or type(fun).__name__)
