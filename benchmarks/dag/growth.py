"""What a long program leaves behind: memory, streams and objects before and after many launches."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fusionstitch as fs
from benchmarks.dag.random_programs import CODE, SIGNATURES, N
from fusionstitch.dag.backends.choice import backend as chosen

_LAUNCHES = 100_000
#: Launches before the first look, after which everything is made that stays.
_FIRST = 3_000


def rows(backend: str, seconds: float) -> Iterator[dict[str, Any]]:
    """A row for each kind of streams; in one of them the host reads now and then."""
    for streams in ("always-new", "reuse"):
        row: dict[str, Any] = {"section": "growth", "streams": streams}
        try:
            row |= _measured(backend, streams, seconds / 2)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"
        yield row


def _measured(backend: str, streams: str, seconds: float) -> dict[str, Any]:
    device = chosen(backend, 0)  # type: ignore[arg-type]
    d = fs.dag.Scheduler(backend=device, streams=streams, remembered=64)  # type: ignore[arg-type]
    update, into, join = (d.kernel(CODE, name, text)(1, 4) for name, text in SIGNATURES.items())
    a, b, c = (d.array(np.arange(N, dtype=np.int32)) for _ in range(3))

    def launch(count: int, until: float) -> int:
        """As many launches as there is time for; five at once, and an array that nobody keeps."""
        for number in range(0, count, 5):
            made = d.array(N, np.int32)
            update(a, 1, N, 0)
            into(a, b, 1, N, 0)
            into(a, made, 1, N, 0)
            join(b, made, c, 1, N, 0)
            update(c, number % 7, N, 0)
            if streams == "reuse" and number % 100 == 0:
                c[0]
            if time.monotonic() > until:
                return number
        return count

    few = backend == "emulate"
    launch(_FIRST, float("inf"))
    before = _state(d, backend)
    start = time.monotonic()
    launched = launch(_LAUNCHES // 50 if few else _LAUNCHES, start + seconds)
    d.synchronize()
    took = time.monotonic() - start
    return {
        "device": device.device,
        "launches": launched,
        "us": took / max(launched, 1) * 1e6,
        "before": before,
        "after": _state(d, backend),
    }


def _state(d: Any, backend: str) -> dict[str, int]:
    """Streams of the device, Python's objects, and bytes of the process and on the device."""
    d.synchronize()
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    found = {
        "streams": d._engine.lanes.handles,
        "objects": len(gc.get_objects()),
        "bytes of the host": pages * 4096,
    }
    if backend == "cuda":
        import cupy

        found["bytes of the device"] = cupy.get_default_memory_pool().total_bytes()
        free, whole = cupy.cuda.runtime.memGetInfo()
        found["bytes taken from the device"] = whole - free
    return found
