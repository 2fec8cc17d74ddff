"""What a launch costs the host through CuPy, a call through JAX, and both through the scheduler."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fusionstitch as fs
from fusionstitch.dag.backends.backend import Sizes
from fusionstitch.dag.backends.choice import backend as chosen
from fusionstitch.dag.signature import parse

_CODE = """
extern "C" __global__ void nothing(const float* x, const float* y, float* z, int n) {
  if (n < 0) z[0] = x[0] + y[0];
}
"""
_SIGNATURE = "const pointer float, const pointer float, inout pointer float, sint32"
#: Fewer than the device takes without making the host wait.
_LAUNCHES, _ROUNDS = 500, 15


def rows(backend: str, seconds: float) -> Iterator[dict[str, Any]]:
    """One row with microseconds for each launch."""
    row: dict[str, Any] = {"section": "launches"}
    try:
        row |= _measured(backend)
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"
    yield row


def _measured(backend: str) -> dict[str, Any]:
    device = chosen(backend, 0)  # type: ignore[arg-type]
    few = backend == "emulate"
    launches = 20 if few else _LAUNCHES
    function = device.build(_CODE, "nothing", parse(_SIGNATURE))
    stream, event = device.stream(0), device.event(False)
    arrays = [device.device_array((4,), np.dtype(np.float32)) for _ in range(3)]
    number, sizes = np.int32(4), Sizes((1,), (32,), 0)

    def plain() -> None:
        for _ in range(launches):
            function(sizes, [*arrays, number], stream, None)

    def with_event() -> None:
        for _ in range(launches):
            function(sizes, [*arrays, number], stream, None)
            device.record(event, stream)

    loops: dict[str, Callable[[], None]] = {"CuPy": plain, "CuPy and an event": with_event}
    waits: dict[str, Callable[[], None]] = dict.fromkeys(loops, device.drain)
    for name, change in (("one array after the other", True), ("independent", False)):
        d = fs.dag.Scheduler(backend=device)
        kernel = d.kernel(_CODE, "nothing", _SIGNATURE)
        loops[name], waits[name] = _loop(d, kernel(1, 32), launches, change), d.synchronize
    if not few and (found := _replay(device, launches)):
        loops["replayed"], waits["replayed"] = found
    if not few:
        for name, (loop, wait) in _calls(device, launches).items():
            loops[name], waits[name] = loop, wait
    times: dict[str, list[float]] = {name: [] for name in loops}
    let_go: dict[str, list[float]] = {name: [] for name in loops}
    for name, loop in loops.items():  # kernels are compiled, streams made
        loop()
        waits[name]()
    for _ in range(2 if few else _ROUNDS):
        for name, loop in loops.items():
            start = time.perf_counter()
            loop()
            times[name].append((time.perf_counter() - start) / launches * 1e6)
            device.drain()
            start = time.perf_counter()
            waits[name]()
            let_go[name].append((time.perf_counter() - start) / launches * 1e6)
    us = {name: statistics.median(taken) for name, taken in times.items()}
    beyond = us["one array after the other"] - us["CuPy"]
    return {
        "device": device.device,
        "us": us,
        "us beyond CuPy": beyond,
        "us to let go": {name: statistics.median(taken) for name, taken in let_go.items()},
    }


def _loop(d: Any, launch: Any, launches: int, chained: bool) -> Callable[[], None]:
    x, y, *others = (d.array(4) for _ in range(10))

    def loop() -> None:
        for i in range(launches):
            if not chained:
                launch(x, y, others[i % 8], 4)
            elif i % 2:
                launch(others[0], y, x, 4)
            else:
                launch(x, y, others[0], 4)

    return loop


def _calls(device: Any, launches: int) -> dict[str, tuple[Callable[[], None], Callable[[], Any]]]:
    """Calls of a jitted function, each on what the one before gave."""
    import jax
    import jax.numpy as jnp

    function = jax.jit(lambda x: x + 1)
    d = fs.dag.Scheduler(backend=device)
    last: dict[str, Any] = {"JAX": jnp.zeros(4), "JAX, scheduled": d.array(4)}

    def loop(name: str, call: Any) -> Callable[[], None]:
        def many() -> None:
            x = last[name]
            for _ in range(launches):
                x = call(x)
            last[name] = x

        return many

    return {
        "JAX": (loop("JAX", function), lambda: last["JAX"].block_until_ready()),
        "JAX, scheduled": (loop("JAX, scheduled", d.function(function)), d.synchronize),
    }


def _replay(device: Any, launches: int) -> Any:
    """The same as a recorded sequence, where the scheduler has those."""
    d = fs.dag.Scheduler(backend=device)
    if not hasattr(d, "recorded"):
        return None
    loop = _loop(d, d.kernel(_CODE, "nothing", _SIGNATURE)(1, 32), 10, True)
    replay = d.recorded(loop)
    replay()

    def many() -> None:
        for _ in range(launches // 10):
            replay()

    return many, d.synchronize
