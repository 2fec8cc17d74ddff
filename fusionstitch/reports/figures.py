"""The figures of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.brief import Facts, Listed, listed


@dataclass(frozen=True)
class Figures:
    """A comparison; None is what could not be measured.

    `kernels` are per run, loop bodies counted as often as they run; on a GPU XLA's are counted in
    what it compiled, elsewhere they are modelled. `time_us` are wall times of a call, medians of
    interleaved, chained runs. `modelled_us` is the model's time of the stitched program,
    `modelled_xla_us` that of XLA's; `traffic_bytes` crosses DRAM. `max_rel_error` is the largest
    relative L2 error of an output against a float64 run, `max_rel_error_xla` that of XLA's own
    code. Each of the `patterns` names its kernel and the user's lines that it comes from; its
    modelled times are those of all its `runs` in a call, its score and measured times those of one.
    `memory_bytes` is the device memory of a call at its peak, arguments and results included.
    `compile_s` are seconds: XLA's whole compile next to our passes.
    """

    workload: str
    device: str
    backend: str
    ops: int
    kernels: dict[str, int]
    compression: dict[str, float | None]
    time_us: dict[str, float | None]
    speedup_vs_xla: float | None
    modelled_us: float
    traffic_bytes: dict[str, int]
    patterns: tuple[dict[str, Any], ...]
    rejected: tuple[dict[str, Any], ...]
    max_rel_error: float | None
    memory_bytes: dict[str, int | None]
    compile_s: dict[str, float | None]
    fallbacks: tuple[dict[str, Any], ...]
    modelled_xla_us: float = 0.0
    max_rel_error_xla: float | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("patterns", "rejected", "fallbacks"):
            object.__setattr__(self, name, Listed(map(Facts, getattr(self, name))))
        listed(self, "notes")
