"""How fast this GPU copies its own memory, which bounds all programs that only move data:
python -m benchmarks.ceiling"""

from __future__ import annotations

import json
import statistics
from typing import Any

SIZE = 2 << 30
COPIES = 8
ROUNDS = 7


def copy_bandwidth() -> float | None:
    """Bytes read and written per second by a device-to-device copy of 2 GiB, the median of rounds
    timed by events; None without CuPy or a GPU."""
    try:
        import cupy
        from cupy.cuda import runtime

        source, target = (cupy.full(SIZE // 4, i, cupy.float32) for i in (1, 2))
    except Exception:  # no CuPy, no driver, no GPU: all are answers
        return None
    stream = cupy.cuda.Stream(non_blocking=True)
    rates = []
    for _ in range(ROUNDS):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(stream)
        for _ in range(COPIES):
            kind: Any = runtime.memcpyDeviceToDevice
            runtime.memcpyAsync(target.data.ptr, source.data.ptr, SIZE, kind, stream.ptr)
        end.record(stream)
        end.synchronize()
        ms = cupy.cuda.get_elapsed_time(begin, end)
        rates.append(2 * SIZE * COPIES / (ms * 1e-3))
    return statistics.median(rates)


if __name__ == "__main__":
    print(json.dumps(copy_bandwidth()))
