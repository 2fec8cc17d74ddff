"""`fs.dag.Scheduler`: GPU work in the order that its arrays ask for, and otherwise at once."""

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
    """Runs kernels by the arrays that they read and write, as GrCUDA does.

    A call returns at once. The scheduler works out which earlier work it depends on, puts it on a
    stream, and has that wait for other streams where it must. Reading an array on the host waits
    for what writes it. One thread at a time may use a scheduler and what it made.

    Args:
        policy: "async", or "sync" to wait for each piece of work
        streams: where work goes that depends on none: "always-new" to a stream of its own, "reuse"
            to one that has become idle, if there is one
        parent: where other work goes: "disjoint" to the stream of the first parent that has not
            passed it on, otherwise as above; "same-as-parent" to that of the first parent
        const: whether kernels that only read an array may run at once
        prefetch: whether arrays are sent to the device before the parents of their kernel are
            waited for, or after
        timing: whether kernels and transfers are timed, for `timeline` and `history`
        backend: "cuda", "emulate" to run on the CPU, "auto" for CUDA where there is a GPU
        seed: of the order in which the emulator runs what may run in any order
        remembered: of how many launches `graph` and `timeline` know

    Raises OptionError for a value that is not allowed, and where CUDA is asked for and not there.
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
        """Where it runs, "cuda" or "emulate"."""
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
            dtype: of its elements; by default float32 for a shape, that of the value otherwise
            name: what it is called on the edges of graphs

        Raises ArrayError for a shape that is none, and for elements that are no numbers.
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

        `kernel(raw, signature)` takes a `cupy.RawKernel`, and `kernel(generated)` one that
        fusionstitch emitted, of `compiled.kernels`, which knows its sizes: that is called with its
        inputs and outputs at once.

        Args:
            code: its source, with all that it needs
            name: of the `__global__` function in it
            signature: its parameters in NIDL, such as "const pointer float, inout pointer float,
                sint32". That an array is const is believed, not checked
            priority: lower numbers are more urgent on a GPU that is full; 0 is the lowest

        Raises SignatureError, and ToolchainError for code that does not compile; on the emulator
        that shows with the first launch.
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
            fun: called with an argument for each parameter: arrays of CuPy, of NumPy on the
                emulator, and numbers. What it returns is dropped
            signature: as for `kernel`
            name: in graphs and messages; that of the function by default
            stream: whether it works on CuPy's current stream. If not, the call waits for all that
                was launched before, and for what it launches
            priority: as for `kernel`

        Raises SignatureError.
        """
        return Library(
            name or _name(fun), parse(signature), fun, self._engine, self._access, stream, priority
        )

    def function(
        self, fun: Callable[..., Any], *, donate: Sequence[int] = (), name: str | None = None
    ) -> Function:
        """A function of JAX, such as one of `jax.jit` or `fs.jit`, in the order of the scheduler.

        It is called with arrays of the scheduler, alone or in trees, and whatever else it takes,
        and gives arrays of the scheduler. It reads its arguments, but for those that are donated,
        whose contents are gone.

        Args:
            fun: the function
            donate: which positional arguments it donates, as `donate_argnums` of `jax.jit`
            name: in graphs and messages; that of the function by default
        """
        return Function(
            name or _name(fun), fun, tuple(donate), self._engine, self._access, self._result
        )

    def recorded(self, fun: Callable[..., Any], *, name: str | None = None) -> Recorded:
        """A function that launches kernels, launched as one piece of work: a CUDA graph on a GPU.

        It is called with arrays and numbers, and runs itself once for each combination of them:
        what it launched then is launched again. Its kernels have an order, and streams, by their
        arrays, as they have one by one.

        Args:
            fun: launches kernels of the scheduler, and does nothing else that has to be repeated
            name: in graphs and messages; that of the function by default
        """
        return Recorded(name or _name(fun), fun, self._engine, self._access)

    def from_dlpack(self, value: Any, *, name: str | None = None) -> Array:
        """An array that shares the memory of one of CuPy, JAX, or on the emulator NumPy.

        What its library does with it from then on is not seen here. One of JAX can only be read.
        Raises ArrayError for an array that is not on the device, or not row-major, or whose memory
        another array of the scheduler has.
        """
        return self._adopted(value, name, copy=False)

    def synchronize(self) -> None:
        """Waits for everything. Raises KernelError. Results need no such call: reading waits."""
        self._engine.wait_for_all()

    def graph(self) -> Graph:
        """What was launched, on which streams, and what waited for what. Waits for nothing."""
        return graph(self._engine.log)

    def timeline(self) -> Timeline:
        """When which kernel and transfer ran; waits for everything.

        Raises OptionError for a scheduler without timing.
        """
        clock = self._engine.clock
        if clock is None:
            raise OptionError("Nothing was timed: make the scheduler with timing=True.")
        self.synchronize()
        return clock.timeline(self._engine.log)

    def history(self, kernel: Any) -> list[float]:
        """Milliseconds of each timed launch of a kernel, or of each call of what else the scheduler
        made, on this device; waits for everything.

        Raises OptionError for a scheduler without timing.
        """
        clock = self._engine.clock
        if clock is None:
            raise OptionError("Nothing was timed: make the scheduler with timing=True.")
        self.synchronize()
        return list(clock.history.get(kernel, ()))

    def export(self, path: str | Path) -> None:
        """Writes the graph to a file .dot, or the timeline as a Chrome trace to a file .json.

        Raises OptionError for another ending, and for a timeline without timing.
        """
        path = Path(path)
        timed = path.suffix == ".json" and self._engine.clock is not None
        trace.write(path, self.graph(), self.timeline() if timed else None)

    def clear(self) -> None:
        """Forgets what `graph`, `timeline` and `history` know; waits for everything."""
        self.synchronize()
        self._engine.clear()

    def _new(self, shape: Sequence[int], dtype: np.dtype[Any], name: str | None) -> Array:
        self._access.check_open()
        self._engine.collect()
        shape = tuple(int(n) for n in shape)
        if any(n < 0 for n in shape):
            raise ArrayError(f"{shape} is no shape: sizes are not negative.")
        if dtype.hasobject or dtype.kind in _NO_NUMBERS:
            raise ArrayError(f"An array is one of numbers, and this would be one of {dtype}.")
        return Array(self._access, Storage(shape, dtype, self._label(name)))

    def _adopted(self, value: Any, name: str | None, copy: bool) -> Array:
        return Array(self._access, adopted(self._engine, value, self._label(name), copy))

    def _result(self, lent: Any) -> Array:
        """An array of what JAX made."""
        made = Array(self._access, Storage(lent.shape, lent.dtype, self._label(None)))
        made.storage.lent = lent
        return made

    def _label(self, name: str | None) -> str:
        self._arrays += 1
        return f"a{self._arrays - 1}" if name is None else name

    def __repr__(self) -> str:
        return f"Scheduler on {self.device}: {self.policies}"


#: Kinds of elements that NumPy has, and no device: texts, dates, times.
_NO_NUMBERS = "SUMm"


def _name(fun: Callable[..., Any]) -> str:
    return str(getattr(fun, "__name__", None) or type(fun).__name__)
