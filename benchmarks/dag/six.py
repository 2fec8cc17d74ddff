"""The six benchmarks: every version, what overlapped, and the bound without contention."""

from __future__ import annotations

import functools
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.dag.by_hand import ByHand, Graph
from benchmarks.dag.program import Program
from benchmarks.dag.programs import BLOCKS, PROGRAMS, SIZES, TINY
from benchmarks.dag.scheduled import Scheduled
from benchmarks.measuring import in_turns
from benchmarks.paired import ratios
from fusionstitch.dag.backends.choice import backend as chosen

Row = dict[str, Any]
#: Rounds of all versions, at least and at most.
_LEAST, _MOST = 4, 20
#: Every version has arrays of its own, of no more than so many bytes.
_MOST_BYTES = 6e9


def rows(name: str, backend: str, seconds: float) -> Iterator[Row]:
    """A row of a tiny size, whose results are checked, and one for each size and number of threads,
    the smallest size first, as time allows."""
    until = time.monotonic() + seconds
    yield _tried(name, TINY[name], 32, backend, seconds / 10) | {"check": True}
    if backend == "emulate":
        return
    cases = [(SIZES[name][0], block) for block in (256, 32, 1024, 128)]
    cases += [(size, block) for size in SIZES[name][1:] for block in (256, 32)]
    took = 0.0
    for size, block in cases:
        start = time.monotonic()
        left = until - start
        if left < 1.2 * took:
            break
        yield _tried(name, size, block, backend, min(left, seconds / 4))
        took = max(took, time.monotonic() - start)


def _tried(name: str, size: int, block: int, backend: str, seconds: float) -> Row:
    row: Row = {"section": "six", "benchmark": name, "size": size, "block": block}
    try:
        grid = {"grid": 2} if backend == "emulate" else {}
        row |= measured(PROGRAMS[name](size, block, **grid), backend, seconds)
    except Exception as error:  # the other rows are worth having
        row["error"] = f"{type(error).__name__}: {error}"
    gc.collect()
    if backend == "cuda":
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
    return row


def measured(program: Program, backend: str, seconds: float) -> Row:
    """Milliseconds of each version by the host's clock, and what follows from them."""
    start = time.monotonic()
    device = chosen(backend, 0)  # type: ignore[arg-type]
    inputs = program.inputs()
    whole = sum(math.prod(s) * t.itemsize for s, t in map(program.shape, program.arrays))
    if whole > _MOST_BYTES:
        return {"error": f"{whole / 1e9:.1f} GB are too much to have every version at once"}
    hosts = {name: device.host_array(value.shape, value.dtype) for name, value in inputs.items()}
    for name, value in inputs.items():
        hosts[name][...] = value
    makes: dict[str, Callable[[], Any]] = {
        "serial": lambda: Scheduled(program, hosts, backend=device, policy="sync"),
        "async": lambda: Scheduled(program, hosts, backend=device),
        "async, no prefetch": lambda: Scheduled(program, hosts, backend=device, prefetch=False),
        "async, no const": lambda: Scheduled(program, hosts, backend=device, const=False),
        "hand": lambda: ByHand(program, hosts, device, prefetch=False),
        "hand, prefetch": lambda: ByHand(program, hosts, device),
        "one stream": lambda: ByHand(program, hosts, device, streams=False),
    }
    if device.name == "cuda":
        makes["graph"] = lambda: Graph(program, hosts, device)
        makes["graph, one stream"] = lambda: Graph(program, hosts, device, streams=False)
    failed: dict[str, str] = {}
    versions: dict[str, Any] = {}
    first: dict[str, np.ndarray] = {}
    for name, make in makes.items():
        try:
            versions[name] = make()
            versions[name].run()
            first[name] = versions[name].compared()
        except Exception as error:
            versions.pop(name, None)
            failed[name] = f"{type(error).__name__}: {error}"
    takers = {n: functools.partial(milliseconds, one.run) for n, one in versions.items()}
    times = in_turns(takers, _LEAST, seconds - (time.monotonic() - start), _MOST)
    ms = {name: statistics.median(taken) for name, taken in times.items()}
    row: Row = {
        "device": device.device,
        "rounds": len(times["async"]),
        "ms": ms,
        "speedup": ratios(times["serial"], times["async"]).median,
        "failed": failed,
        "same as serial": {n: _distance(v, first["serial"]) for n, v in first.items()},
    }
    hand = [n for n in ms if n.startswith(("hand", "graph", "one stream"))]
    if hand:
        best = min(hand, key=ms.__getitem__)
        row |= {"best by hand": best, "vs best by hand": ratios(times[best], times["async"]).median}
    if program.size == TINY[program.name]:
        row["error of results"] = _distance(first["serial"], program.expected(inputs))
    graph = _one_iteration(program, versions["async"])
    row["graph"] = {
        "vertices": len(graph.vertices),
        "edges": len(graph.edges),
        "streams": graph.streams,
        "waits": graph.waits,
    }
    versions.clear()
    gc.collect()
    row |= _timed(program, hosts, device, graph)
    row["bound over async"] = row["bound ms"] / ms["async"] if ms["async"] else 0.0
    return row


def milliseconds(run: Callable[[], Any]) -> float:
    """What one run takes."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def _distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """The relative L2 distance; of integers the share that differs."""
    if wanted.dtype.kind == "i":
        return float(np.mean(found != wanted))
    wanted = wanted.astype(np.float64)
    return float(np.linalg.norm(found - wanted) / max(float(np.linalg.norm(wanted)), 1e-30))


def _one_iteration(program: Program, version: Any) -> Any:
    """The graph of one iteration alone."""
    version.d.clear()
    version.run()
    version.d.clear()
    for launch, args in version.launches:
        launch(*args)
    graph = version.d.graph()
    version.d.synchronize()
    return graph


def _timed(program: Program, hosts: Any, device: Any, graph: Any) -> Row:
    """Overlap of both ways, by events, and the longest path of serial times."""
    row: Row = {"overlap": {}}
    for name, options in (("async", {}), ("serial", {"policy": "sync"})):
        version = Scheduled(program, hosts, backend=device, timing=True, **options)
        version.run()
        version.d.clear()
        version.run()
        timeline = version.d.timeline()
        overlap = timeline.overlap()
        row["overlap"][name] = {
            key: getattr(overlap, key) for key in ("ct", "tc", "cc", "tot", "cc_both_ways")
        }
    return row | {"bound ms": bound(program, timeline, graph)}


def bound(program: Program, timeline: Any, graph: Any) -> float:
    """The longest path through the graph of a run, in milliseconds, by the times of a serial run.

    A kernel counts with what is sent for it. Iterations follow each other, as the host writes
    between them.
    """
    sent = {span.name: span.milliseconds for span in timeline.spans if span.kind == "to device"}
    kernels = [span.milliseconds for span in timeline.spans if span.kind == "kernel"]
    steps, number = program.steps, {v.number: i for i, v in enumerate(graph.vertices)}
    total = 0.0
    for iteration in range(program.iterations):
        unsent = {*program.reset, *(program.sent if iteration == 0 else ())}
        reached: list[float] = []
        for i, step in enumerate(steps):
            own = kernels[iteration * len(steps) + i]
            for arg in step.args:
                if arg in unsent:
                    unsent.remove(arg)
                    own += sent.get(arg, 0.0)
            before = [reached[number[e.before]] for e in graph.edges if number[e.after] == i]
            reached.append(own + max(before, default=0.0))
        total += max(reached)
    return total


__all__ = ["BLOCKS", "measured", "rows"]
