"""`fusionstitch calibrate --gemms`: what XLA's own dots take on the present GPU, as a table.

XLA picks a library routine or a Triton kernel for each dot by trying them, splits some along the
contraction, and adds the kernel that joins the parts: none of which follows from rates.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fusionstitch.errors import MeasureError
from fusionstitch.measure import activity, buffers, probes, replay
from fusionstitch.measure.gpu import GpuMeter
from fusionstitch.tuning.record import versions
from hlo.graph import Shape

logger = logging.getLogger(__name__)

#: Which operands lie with the contracted dim where a row-major product does not want it.
LAYOUTS = ("nn", "nt", "tn")
DTYPES = ("f32", "bf16")
#: Extents of the grid; a dot and its transpose take the same, so m <= n.
EXTENTS = (16, 64, 256, 1024)
#: Batched products: (batch, m, n, k).
BATCHED = ((8, 32, 32, 16), (64, 32, 32, 64), (64, 128, 128, 64), (512, 128, 128, 16))
#: Runs of each program under the profiler.
RUNS = 16
#: Programs that XLA compiles side by side.
WORKERS = 12


@dataclass(frozen=True)
class Gemm:
    """`batch` products [m, k] x [k, n]; layout "nt" holds the second operand as [n, k], "tn" the
    first one as [k, m]."""

    dtype: str
    m: int
    n: int
    k: int
    batch: int = 1
    layout: str = "nn"

    @property
    def operands(self) -> tuple[Shape, Shape]:
        lhs = (self.k, self.m) if self.layout == "tn" else (self.m, self.k)
        rhs = (self.n, self.k) if self.layout == "nt" else (self.k, self.n)
        batch = (self.batch,) if self.batch > 1 else ()
        return Shape(self.dtype, batch + lhs), Shape(self.dtype, batch + rhs)

    @property
    def dimension_numbers(self) -> tuple[Any, Any]:
        """As `jax.lax.dot_general` takes them."""
        shift = int(self.batch > 1)
        batch = tuple(range(shift))
        lhs, rhs = int(self.layout != "tn"), int(self.layout == "nt")
        return ((lhs + shift,), (rhs + shift,)), (batch, batch)


@dataclass(frozen=True)
class Timing:
    """One dot as XLA runs it: its `kernels`, their summed durations, and `us` with a gap each, as
    inside a CUDA graph."""

    gemm: Gemm
    us: float
    kernel_us: float
    kernels: tuple[str, ...]


def grid() -> Iterator[Gemm]:
    """What is measured by default, the most telling shapes first."""
    shapes = [s for s in itertools.product(EXTENTS, repeat=3) if s[0] <= s[1]]
    # every second extent first: what is cut short still spans the whole range
    shapes.sort(key=lambda shape: sum(EXTENTS.index(n) % 2 for n in shape))
    for (m, n, k), dtype in itertools.product(shapes, DTYPES):
        yield Gemm(dtype, m, n, k)
    for (batch, m, n, k), dtype in itertools.product(BATCHED, DTYPES):
        yield Gemm(dtype, m, n, k, batch)
    for (m, n, k), dtype, layout in itertools.product(shapes, DTYPES, LAYOUTS[1:]):
        if 64 in (m, n) and 16 not in (m, n):
            yield Gemm(dtype, m, n, k, layout=layout)


def measure(meter: GpuMeter, gemms: Sequence[Gemm], seconds: float) -> list[Timing]:
    """The times of those that XLA has compiled within about `seconds`.

    Each is a program of its own; a probe kernel between them tells apart what the profiler saw.
    Raises MeasureError where the profiler does not see what ran.
    """
    deadline = time.monotonic() + seconds

    def compiled(gemm: Gemm) -> Any:
        return _compiled(gemm) if time.monotonic() < deadline else None

    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        programs = zip(gemms, pool.map(compiled, gemms), strict=True)
        built = [(gemm, program) for gemm, program in programs if program is not None]
    gap = meter.gap_us
    found = []
    for (gemm, _), events in zip(built, _recorded(meter, built), strict=True):
        each = len(events) // RUNS
        if not each or len(events) % RUNS:
            logger.info("%s: %d kernels in %d runs", gemm, len(events), RUNS)
            continue
        runs = [events[i : i + each] for i in range(0, len(events), each)]
        us = statistics.median(sum(us for _, us in run) for run in runs)
        names = tuple(name for name, _ in runs[-1])
        found.append(Timing(gemm, round(us + gap * each, 3), round(us, 3), names))
    return found


def to_json(meter: GpuMeter, timings: Sequence[Timing]) -> str:
    """The text of a table's file, one dot per line."""
    head = {
        "gpu": meter.name,
        "measured": f"fusionstitch calibrate --gemms, {datetime.date.today().isoformat()}, "
        f"{versions()}: the kernels of each dot alone under JAX's profiler, median of {RUNS} runs "
        "with warm L2; us adds gap_us for each kernel.",
        "gap_us": round(meter.gap_us, 3),
    }
    lines = [
        json.dumps({**dataclasses.asdict(timing.gemm), **_numbers(timing)}) for timing in timings
    ]
    text = json.dumps(head, indent=2).removesuffix("\n}")
    rows = ",\n    ".join(lines)
    return f'{text},\n  "dots": [\n    {rows}\n  ]\n}}\n'


def _numbers(timing: Timing) -> dict[str, Any]:
    return {"us": timing.us, "kernel_us": timing.kernel_us, "kernels": list(timing.kernels)}


def _compiled(gemm: Gemm) -> Any:
    import jax

    def product(lhs: Any, rhs: Any) -> Any:
        return jax.lax.dot_general(lhs, rhs, gemm.dimension_numbers)

    dtype = {"f32": "float32", "bf16": "bfloat16"}[gemm.dtype]
    shapes = [jax.ShapeDtypeStruct(shape.dims, dtype) for shape in gemm.operands]
    return jax.jit(product).lower(*shapes).compile()


def _recorded(meter: GpuMeter, built: Sequence[tuple[Gemm, Any]]) -> list[list[tuple[str, float]]]:
    """What ran for each program in `RUNS` runs, in order."""
    import jax

    arguments = [buffers.inputs(gemm.operands, meter.device) for gemm, _ in built]
    for (_, program), values in zip(built, arguments, strict=True):
        jax.block_until_ready(program(*values))

    def calls(mark: Callable[[], None]) -> None:
        for (_, program), values in zip(built, arguments, strict=True):
            for _ in range(RUNS):
                result = program(*values)
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
    """What the profiler saw of `calls`, which is given a function that launches `name`."""
    import cupy

    [artifact] = probes.build([probes.empty(1)], meter.profile)
    with cupy.cuda.Device(meter.ordinal):
        launch, module = replay.launcher(artifact, [[]])

        def mark() -> None:
            launch(0)
            cupy.cuda.Device(meter.ordinal).synchronize()

        mark()
        events = activity.recorded(lambda: calls(mark), meter.ordinal)
        del module  # it had to outlive the launches
    return events
