"""What one GPU did while something ran: every kernel and copy with its time."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STREAM = re.compile(r"Stream\b")
#: Transfers between host and device do not count as a program's work.
_TRANSFER = re.compile(r"Memcpy(H2D|D2H|H2H)", re.IGNORECASE)
#: The trace statistic that names the launching instruction.
_INSTRUCTION = "hlo_op"
#: JAX's profiler records one session at a time.
_lock = threading.Lock()


@dataclass(frozen=True)
class Activity:
    """A kernel, copy or memset: its name, its duration in microseconds, and the XLA instruction
    that launched it, if the trace has it."""

    name: str
    us: float
    instruction: str = ""


def recorded(run: Callable[[], None], ordinal: int = 0) -> list[tuple[str, float]]:
    """(name, microseconds) of each kernel, copy and memset on GPU `ordinal` while `run` ran, in the
    order of their starts.

    `run` must wait for the work it starts.
    """
    return [(one.name, one.us) for one in _seen(run, ordinal, launched=False)]


def seen(run: Callable[[], None], ordinal: int = 0) -> list[Activity]:
    """Like `recorded`, with the launching instructions. For XLA programs only: jaxlib 0.11.2
    crashes if it is asked for these in a trace of other launches."""
    return _seen(run, ordinal, launched=True)


def _seen(run: Callable[[], None], ordinal: int, launched: bool) -> list[Activity]:
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
        return activities(data, ordinal, launched)


def activities(data: Any, ordinal: int, launched: bool = True) -> list[Activity]:
    """The activities of GPU `ordinal` in a `jax.profiler.ProfileData`, with the launching
    instructions if `launched`."""
    found: list[tuple[float, Activity]] = []
    for plane in data.planes:
        if plane.name.endswith(f"/device:GPU:{ordinal}"):
            for line in plane.lines:
                if _STREAM.match(line.name):
                    found += [(event.start_ns, _activity(event, launched)) for event in line.events]
    found.sort(key=lambda one: (one[0], one[1].name, one[1].us))
    return [one for _, one in found if not _TRANSFER.match(one.name)]


def _activity(event: Any, launched: bool) -> Activity:
    said = dict(event.stats) if launched else {}
    return Activity(event.name, event.duration_ns / 1e3, str(said.get(_INSTRUCTION, "")))
