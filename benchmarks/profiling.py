"""What the GPU did, from a trace of JAX's profiler: kernels, copies and their times.

The profiler changes how XLA launches a program: it is profiled or timed, never both at once.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Planes of a trace that hold a GPU's activity, and their lines with one event per activity.
_DEVICE = re.compile(r"/device:GPU:\d+")
_STREAM = re.compile(r"Stream\b")
#: Activities that are no kernels. Uploads and downloads are not the program's own work.
_TRANSFER = re.compile(r"Memcpy(H2D|D2H|H2H)", re.IGNORECASE)
_COPY = re.compile(r"Mem(cpy|set)", re.IGNORECASE)
#: Kernels and copies that are listed with their time.
LISTED = 8

Activity = dict[str, Any]


def profile(run: Callable[[int], None], calls: int) -> Activity | None:
    """`run(calls)` makes that many calls and waits for them; the activity of one of them.

    None where the trace holds no GPU.
    """
    import jax

    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = 0
    options.python_tracer_level = 0
    options.enable_hlo_proto = False
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            run(calls)
        [path] = Path(folder).glob("**/*.xplane.pb")
        return activity(jax.profiler.ProfileData.from_file(str(path)), calls)


def activity(data: Any, calls: int) -> Activity | None:
    """One call's activity in a `jax.profiler.ProfileData` of `calls` calls.

    `kernels`, `copies` (in device memory, memset included) and `transfers` (from and to the host)
    are counts per call; `kernel_us` and `gpu_us` are the summed times of the kernels, and of
    kernels and copies. `top` are those that took longest, each with its count and microseconds
    per call.
    """
    planes = [plane for plane in data.planes if _DEVICE.match(plane.name)]
    if not planes:
        return None
    counts: dict[str, int] = defaultdict(int)
    times: dict[str, float] = defaultdict(float)
    for plane in planes:
        for line in plane.lines:
            if _STREAM.match(line.name):
                for event in line.events:
                    counts[event.name] += 1
                    times[event.name] += event.duration_ns / 1e3
    transfers = {name for name in counts if _TRANSFER.match(name)}
    copies = {name for name in counts if _COPY.match(name)} - transfers
    kernels = set(counts) - copies - transfers

    def per_call(names: set[str]) -> float:
        return _tidy(sum(counts[name] for name in names) / calls)

    longest = sorted(kernels | copies, key=lambda name: (-times[name], name))[:LISTED]
    return {
        "kernels": per_call(kernels),
        "copies": per_call(copies),
        "transfers": per_call(transfers),
        "kernel_us": round(sum(times[name] for name in kernels) / calls, 2),
        "gpu_us": round(sum(times[name] for name in kernels | copies) / calls, 2),
        "top": [
            {
                "name": name[:100],
                "count": _tidy(counts[name] / calls),
                "us": round(times[name] / calls, 2),
            }
            for name in longest
        ],
    }


def _tidy(count: float) -> float:
    """A count per call; whole numbers as such."""
    return int(count) if count == int(count) else round(count, 2)
