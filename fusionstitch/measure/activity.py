"""What one GPU did while something ran: every kernel and copy with its time."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

_STREAM = re.compile(r"Stream\b")
#: Uploads and downloads are not a program's own work.
_TRANSFER = re.compile(r"Memcpy(H2D|D2H|H2H)", re.IGNORECASE)
#: JAX's profiler records one session at a time.
_lock = threading.Lock()


def recorded(run: Callable[[], None], ordinal: int = 0) -> list[tuple[str, float]]:
    """(name, microseconds) of each kernel, copy and memset on GPU `ordinal` while `run` ran, in the
    order in which they began.

    `run` must wait for what it starts.
    """
    import jax

    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = 0
    options.python_tracer_level = 0
    options.enable_hlo_proto = False
    with _lock, tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            run()
        [path] = Path(folder).glob("**/*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(path))
    found: list[tuple[float, str, float]] = []
    for plane in data.planes:
        if plane.name.endswith(f"/device:GPU:{ordinal}"):
            for line in plane.lines:
                if _STREAM.match(line.name):
                    found += [(e.start_ns, e.name, e.duration_ns / 1e3) for e in line.events]
    return [(name, us) for _, name, us in sorted(found) if not _TRANSFER.match(name)]
