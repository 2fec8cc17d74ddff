"""Times of XLA's own kernels for small programs on the present GPU, as a table.

Each program runs separately, with its operands in L2. A probe kernel between programs separates
what the profiler recorded.
"""

from __future__ import annotations

import abc
import dataclasses
import datetime
import json
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fusionstitch.compiler.progress import Step, silent
from fusionstitch.errors import MeasureError
from fusionstitch.execution.original import plain_jit
from fusionstitch.hlo.graph import Shape
from fusionstitch.measure import activity, buffers, probes, replay
from fusionstitch.measure.gpu import GpuMeter
from fusionstitch.tuning.record import versions

logger = logging.getLogger(__name__)

#: Runs of each program under the profiler.
RUNS = 16
#: Programs compiled in parallel.
WORKERS = 12
#: JAX's names of the tables' element types.
NAMES = {"f32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Program(abc.ABC):
    """A function for XLA to compile; its fields are columns of its table."""

    @property
    @abc.abstractmethod
    def operands(self) -> tuple[Shape, ...]:
        """The shapes of its operands."""

    @abc.abstractmethod
    def __call__(self, *operands: Any) -> Any:
        """Computes it on JAX arrays."""


@dataclass(frozen=True)
class Timing:
    """One program as XLA runs it: its `kernels`, their durations, the sum of these, and `us`, which
    adds a gap per kernel, as inside a CUDA graph."""

    program: Program
    us: float
    kernel_us: float
    kernels: tuple[str, ...]
    each_us: tuple[float, ...]


def measure(
    meter: GpuMeter, programs: Sequence[Program], seconds: float, step: Step = silent
) -> list[Timing]:
    """The times of the programs that XLA has compiled within about `seconds`; calls `step` for
    each.

    Raises MeasureError if the profiler does not record what ran.
    """
    deadline = time.monotonic() + seconds

    def compiled(program: Program) -> Any:
        return _compiled(program) if time.monotonic() < deadline else None

    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        built = []
        for program, executable in zip(programs, pool.map(compiled, programs), strict=True):
            step(str(program))
            if executable is not None:
                built.append((program, executable))
    gap = meter.gap_us
    found = []
    for (program, _), events in zip(built, _recorded(meter, built), strict=True):
        each = len(events) // RUNS
        if not each or len(events) % RUNS:
            logger.info("%s: %d kernels in %d runs", program, len(events), RUNS)
            continue
        runs = [events[i : i + each] for i in range(0, len(events), each)]
        us = statistics.median(sum(us for _, us in run) for run in runs)
        names = tuple(name for name, _ in runs[-1])
        alone = zip(*([us for _, us in run] for run in runs), strict=True)
        each_us = tuple(round(statistics.median(kernel), 3) for kernel in alone)
        found.append(Timing(program, round(us + gap * each, 3), round(us, 3), names, each_us))
    return found


def to_json(meter: GpuMeter, name: str, timings: Sequence[Timing]) -> str:
    """The text of a table of `name` ("gemms", "reductions"), one program per line."""
    head = {
        "gpu": meter.name,
        "measured": f"fusionstitch calibrate --{name}, {datetime.date.today().isoformat()}, "
        f"{versions()}: the kernels of each program alone under JAX's profiler, median of {RUNS} "
        "runs with warm L2; us adds gap_us for each kernel.",
        "gap_us": round(meter.gap_us, 3),
    }
    lines = [json.dumps({**dataclasses.asdict(t.program), **_numbers(t)}) for t in timings]
    text = json.dumps(head, indent=2).removesuffix("\n}")
    rows = ",\n    ".join(lines)
    return f'{text},\n  "{name}": [\n    {rows}\n  ]\n}}\n'


def _numbers(timing: Timing) -> dict[str, Any]:
    """The columns besides the program's own."""
    return {
        "us": timing.us,
        "kernel_us": timing.kernel_us,
        "kernels": timing.kernels,
        "each_us": timing.each_us,
    }


def _compiled(program: Program) -> Any:
    import jax

    shapes = [jax.ShapeDtypeStruct(shape.dims, NAMES[shape.dtype]) for shape in program.operands]
    return plain_jit()(program.__call__).lower(*shapes).compile()


def _recorded(
    meter: GpuMeter, built: Sequence[tuple[Program, Any]]
) -> list[list[tuple[str, float]]]:
    """The kernels of each program in `RUNS` runs, in order."""
    import jax

    arguments = [
        buffers.inputs([buffers.Operand(shape) for shape in program.operands], meter.device)
        for program, _ in built
    ]
    for (_, executable), values in zip(built, arguments, strict=True):
        jax.block_until_ready(executable(*values))

    def calls(mark: Callable[[], None]) -> None:
        for (_, executable), values in zip(built, arguments, strict=True):
            for _ in range(RUNS):
                result = executable(*values)
            jax.block_until_ready(result)
            mark()

    marker = probes.empty(1)
    events = _marked(meter, marker.name, calls)
    parts: list[list[tuple[str, float]]] = [[]]
    for name, us in events:
        if name == marker.name:
            parts.append([])
        else:
            parts[-1].append((name, us))
    if len(parts) != len(built) + 1:
        raise MeasureError(
            f"The profiler recorded {len(parts) - 1} of {len(built)} programs: run it again."
        )
    return parts[:-1]


def _marked(
    meter: GpuMeter, name: str, calls: Callable[[Callable[[], None]], None]
) -> list[tuple[str, float]]:
    """What the profiler recorded of `calls`, which gets a function that launches `name`."""
    import cupy

    [artifact] = probes.build([probes.empty(1)], meter.profile)
    with cupy.cuda.Device(meter.ordinal):
        launch, module = replay.launcher(artifact, [[]])

        def mark() -> None:
            launch(0)
            cupy.cuda.Device(meter.ordinal).synchronize()

        mark()
        events = activity.recorded(lambda: calls(mark), meter.ordinal)
        del module  # it must outlive the launches
    return events
