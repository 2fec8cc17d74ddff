"""The figures of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusionstitch.hlo.brief import Facts, Listed, listed


@dataclass(frozen=True)
class Figures:
    """A comparison; None is what could not be measured.

    Attributes:
        workload: the name of what was compared
        device: the GPU, or the profile that was planned for
        backend: where kernels ran: "cuda", "emulate", or "model" where the program was only planned
        ops: of the lowered program
        kernels: of a run by "unfused" (op by op), "xla", "fusionstitch"; loop bodies count as often
            as they run. On a GPU XLA's are counted in what it compiled, elsewhere they are modelled
        compression: how many times fewer kernels: "vs_unfused", "vs_xla"
        time_us: wall time of a call in microseconds by "unfused", "xla", "fusionstitch": medians
            of interleaved, chained runs
        speedup_vs_xla: XLA's time over ours
        modelled_us: the model's time of the stitched program, in microseconds
        traffic_bytes: what crosses DRAM in a call by "unfused", "xla", "fusionstitch", modelled
        patterns: what was stitched, a dict for each: ops, scope, kernel, template, the user's lines
            that it comes from, and times. Modelled times are those of all its `runs` in a call, its
            score and measured times those of one
        rejected: candidates that were turned down, a dict for each: `ops`, `source`, `reason`
        max_rel_error: the largest relative L2 error of an output against a float64 run
        memory_bytes: device memory of a call at its peak by "xla", "fusionstitch", arguments and
            results included
        compile_s: seconds by "xla" (its whole compile), "plan", "codegen", "toolchain"
        fallbacks: what was left to XLA although planned, a dict for each: `ops`, `reason`
        modelled_xla_us: the model's time of XLA's program, in microseconds
        max_rel_error_xla: as `max_rel_error`, of XLA's own code
        floor_us: what the program cannot go below on the device, whoever compiles it: "total", what
            it is "bound_by", the time of each unit alone ("units"), "priced" for the ops that
            modelled times are of, and whether it is "at_least" so much, as the data decides how
            often a loop iterates
        over_floor: how many times its floor a call takes by "xla", "fusionstitch": `time_us` over
            "total" where it was `measured`, else the modelled times over "priced"
        notes: what to know when reading the rest
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
    floor_us: dict[str, Any] | None = None
    over_floor: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def call_us(self) -> tuple[float, float, bool]:
        """Microseconds of a call under XLA and stitched, and whether both were measured: they are
        modelled otherwise."""
        xla, ours = self.time_us["xla"], self.time_us["fusionstitch"]
        if xla is None or ours is None:
            return self.modelled_xla_us, self.modelled_us, False
        return xla, ours, True

    def __post_init__(self) -> None:
        for name in ("patterns", "rejected", "fallbacks"):
            object.__setattr__(self, name, Listed(map(Facts, getattr(self, name))))
        listed(self, "notes")
