"""Kernels under CUDA graph replay, through CuPy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusionstitch.runtime.artifact import Artifact

#: Microseconds that one replay should take, so that the cost of starting it is negligible.
REPLAY_US = 400.0
MOST_LAUNCHES = 256
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_STATIC_LIMIT = 48 * 1024

Launch = Callable[[int], None]


def launcher(artifact: Artifact, arguments: Sequence[Sequence[int]]) -> tuple[Launch, Any]:
    """(launch, module): `launch(i)` launches the kernel with the i-th set of pointers, round robin.

    The module must outlive the launches. Call this with the kernel's device as the current one.
    """
    import cupy

    module = cupy.cuda.function.Module()
    module.load(artifact.image)
    function = module.get_function(artifact.entry)
    if artifact.shared_bytes > _STATIC_LIMIT:
        cupy.cuda.driver.funcSetAttribute(function.ptr, _MAX_DYNAMIC_SHARED, artifact.shared_bytes)
    sets = [tuple(np.uint64(pointer) for pointer in one) for one in arguments]
    options = {"enable_cooperative_groups": True} if artifact.cooperative else {}

    def launch(number: int) -> None:
        function(
            (artifact.grid,),
            (artifact.block,),
            sets[number % len(sets)],
            shared_mem=artifact.shared_bytes,
            **options,
        )

    return launch, module


def graph_us(launch: Launch, cycle: int, rounds: int, ordinal: int = 0) -> float:
    """Median microseconds per launch in a CUDA graph of many launches, over `rounds` replays.

    `cycle` launches use every set of arguments once; a graph contains whole cycles.
    """
    import cupy

    with cupy.cuda.Device(ordinal):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            launch(0)  # loads the kernel, which is not allowed during capture
            stream.synchronize()
            count = max(cycle, 4)
            graph = _captured(stream, launch, count)
            once = _replay_us(stream, graph, 2) / count
            wanted = min(MOST_LAUNCHES, int(REPLAY_US / max(once, 0.1)))
            if wanted > count:
                count = -(-wanted // cycle) * cycle
                graph = _captured(stream, launch, count)
            return _replay_us(stream, graph, rounds) / count


def stream_us(launch: Launch, count: int, rounds: int, ordinal: int = 0) -> float:
    """Median microseconds per launch of `count` launches by the host, one after another."""
    import cupy

    with cupy.cuda.Device(ordinal):
        stream = cupy.cuda.Stream(non_blocking=True)

        def work() -> None:
            for number in range(count):
                launch(number)

        with stream:
            return _timed(stream, work, rounds) / count


def _captured(stream: Any, launch: Launch, count: int) -> Any:
    stream.begin_capture()
    try:
        for number in range(count):
            launch(number)
    finally:
        graph = stream.end_capture()
    graph.upload(stream)
    return graph


def _replay_us(stream: Any, graph: Any, rounds: int) -> float:
    return _timed(stream, lambda: graph.launch(stream), rounds)


def _timed(stream: Any, work: Callable[[], Any], rounds: int) -> float:
    """Median microseconds of `work` on the stream, which is busy when it begins."""
    import cupy

    work()
    times = []
    for _ in range(rounds):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        work()  # lets the host get ahead of the device
        start.record(stream)
        work()
        end.record(stream)
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end) * 1e3)
    return statistics.median(times)
