"""What the GPU did, from a trace of JAX's profiler: kernels, copies and their times.

The profiler changes how XLA launches a program: it is profiled or timed, never both at once.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

#: Planes of a trace that hold a GPU's activity, and their lines with one event per activity.
_DEVICE = re.compile(r"/device:GPU:\d+")
_STREAM = re.compile(r"Stream\b")
#: Activities that are no kernels. Uploads and downloads are not the program's own work.
_TRANSFER = re.compile(r"Memcpy(H2D|D2H|H2H)", re.IGNORECASE)
_MEMCPY, _MEMSET = (re.compile(f"Mem{what}", re.IGNORECASE) for what in ("cpy", "set"))
#: Kernels of matrix products and convolutions, from libraries and from XLA's own generator.
_GEMM = re.compile(
    "gemm|gemv|nvjet|cutlass|xmma|cublas|cudnn|conv(?!ert)|[wd]grad|splitK|(^|_)dot(_|$)",
    re.IGNORECASE,
)
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

    `kernels`, `memcpys` and `memsets` (in device memory), `copies` (both) and `transfers` (from
    and to the host) are counts per call; `kernel_us` and `gpu_us` are the summed times of the
    kernels, and of kernels and copies. `top` are those that took longest, each with its count and
    microseconds per call, and `names` holds (count, microseconds) of every kernel.
    """
    planes = [plane for plane in data.planes if _DEVICE.match(plane.name)]
    if not planes:
        return None
    events: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for plane in planes:
        for line in plane.lines:
            if _STREAM.match(line.name):
                for event in line.events:
                    found = events[event.name]
                    found[0] += 1
                    found[1] += event.duration_ns / 1e3
    return summed({name: (n / calls, us / calls) for name, (n, us) in events.items()})


def summed(events: Mapping[str, tuple[float, float]]) -> Activity:
    """An activity from what ran: (count, microseconds) per call by name."""
    transfers = {name for name in events if _TRANSFER.match(name)}
    memcpys = {name for name in events if _MEMCPY.match(name)} - transfers
    memsets = {name for name in events if _MEMSET.match(name)}
    kernels = set(events) - memcpys - memsets - transfers

    def count(names: Iterable[str]) -> float:
        return _tidy(sum(events[name][0] for name in names))

    def us(names: Iterable[str]) -> float:
        return round(sum(events[name][1] for name in sorted(names)), 2)

    own = set(events) - transfers
    longest = sorted(own, key=lambda name: (-events[name][1], name))[:LISTED]
    return {
        "kernels": count(kernels),
        "memcpys": count(memcpys),
        "memsets": count(memsets),
        "copies": count(memcpys | memsets),
        "transfers": count(transfers),
        "kernel_us": us(kernels),
        "gpu_us": us(own),
        "top": [{"name": n[:100], "count": count([n]), "us": us([n])} for n in longest],
        "names": {name: events[name] for name in sorted(kernels)},
    }


def classified(activity: Activity, stitched: Mapping[str, str]) -> Activity:
    """`activity` with kernels and microseconds per class of kernel in place of `names`.

    `stitched` holds the paper's class of each stitched kernel ("elemwise", "reduction", "gemm") by
    its name, whose microseconds are listed. All others are "gemm" (products and convolutions, by
    their names) or "memory".
    """
    classes: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    own = {}
    for name, (count, us) in activity["names"].items():
        if name in stitched:
            own[name] = round(us, 2)
            found = classes[f"stitched {stitched[name]}"]
        else:
            found = classes["gemm" if _GEMM.search(name) else "memory"]
        found[0] += count
        found[1] += us
    shown = {key: value for key, value in activity.items() if key != "names"}
    return {
        **shown,
        "classes": {
            name: {"kernels": _tidy(count), "us": round(us, 2)}
            for name, (count, us) in sorted(classes.items())
        },
        "stitched": own,
    }


def _tidy(count: float) -> float:
    """A count per call; whole numbers as such."""
    return int(count) if count == int(count) else round(count, 2)
