"""`fs.report`: what stitching does to a function, next to XLA and to op-by-op execution."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from fusionstitch.hlo.brief import brief
from fusionstitch.reports.figures import Figures
from fusionstitch.reports.text import all_notes, text

if TYPE_CHECKING:
    from fusionstitch.compiler.core import Stitched
    from fusionstitch.plan.plan import Chosen, Plan
    from fusionstitch.reports.counting import Count
    from fusionstitch.reports.trial import Trial
    from fusionstitch.roads.call import Call

#: Passes that count as planning.
_PLANNING = ("import", "simplify", "plan", "export")


class Report(Figures):
    """A comparison to print, to write as JSON, or to read figure by figure: see `Figures`."""

    def __repr__(self) -> str:
        one = self.kernels
        return brief(
            f"Report of {self.workload} on {self.device} ({self.backend}): {self.ops} ops, "
            f"{one['fusionstitch']} kernels, {one['xla']} under XLA, {one['unfused']} op by op; "
            "print it for the rest"
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, ready for JSON; an infinite error is "inf"."""
        data = {**dataclasses.asdict(self), "notes": all_notes(self)}
        return {key: _plain(value) for key, value in data.items()}

    def __str__(self) -> str:
        return text(self)


def report_call(call: Call, name: str = "") -> Report:
    """The report of a call; `name` is the workload's, by default the function's."""
    from fusionstitch.reports import trial

    return report_trial(trial.run(call, name))


def report_trial(trial: Trial) -> Report:
    """The report of a trial."""
    from fusionstitch.reports import counting
    from fusionstitch.reports.lines import source_lines

    stitched, program = trial.stitched, counting.entry(trial.module)
    unfused = counting.unfused(program)
    xla, ours = modelled_counts(stitched)
    kernels = {
        "unfused": unfused.kernels,
        "xla": xla.kernels if trial.xla_kernels is None else trial.xla_kernels,
        "fusionstitch": ours.kernels if trial.kernels is None else trial.kernels,
    }
    xla_us, modelled_us = modelled_times(stitched)
    timings = stitched.timings
    return Report(
        workload=trial.name,
        device=stitched.device.name,
        backend=trial.backend,
        ops=counting.ops(program),
        kernels=kernels,
        compression={
            "vs_unfused": _ratio(kernels["unfused"], kernels["fusionstitch"]),
            "vs_xla": _ratio(kernels["xla"], kernels["fusionstitch"]),
        },
        time_us={
            "unfused": trial.unfused_us,
            "xla": trial.xla_us,
            "fusionstitch": trial.stitched_us,
        },
        speedup_vs_xla=_ratio(trial.xla_us, trial.stitched_us),
        modelled_us=modelled_us,
        traffic_bytes={"unfused": unfused.bytes, "fusionstitch": ours.bytes},
        patterns=tuple(_patterns(stitched)),
        rejected=tuple(
            {
                "ops": [op.name for op in r.ops],
                "source": source_lines(r.ops),
                "reason": str(r.verdict),
            }
            for r in stitched.rejected
        ),
        max_rel_error=trial.error,
        memory_bytes={"xla": trial.xla_bytes, "fusionstitch": trial.stitched_bytes},
        compile_s={
            "xla": trial.xla_s,
            "plan": sum(timings.get(name, 0.0) for name in _PLANNING),
            "codegen": timings.get("codegen", 0.0),
            "toolchain": timings.get("build"),
        },
        fallbacks=tuple({"ops": list(f.ops), "reason": f.reason} for f in stitched.fallbacks),
        modelled_xla_us=xla_us,
        max_rel_error_xla=trial.error_xla,
        notes=trial.notes,
    )


def _plain(value: Any) -> Any:
    """A value of `to_dict` as JSON knows it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, tuple):
        return [dict(one) if isinstance(one, dict) else one for one in value]
    return value


def _repeated(stitched: Stitched) -> dict[Any, int]:
    from fusionstitch.reports import counting

    return counting.runs_of(stitched.plans)


def _dropped(stitched: Stitched, plan: Plan) -> list[Chosen]:
    """Patterns of the plan that were not carried out."""
    carried = {id(one.chosen) for one in stitched.stitches}
    return [chosen for chosen in plan.chosen if id(chosen) not in carried]


def modelled_counts(stitched: Stitched) -> tuple[Count, Count]:
    """(XLA's, ours) as counts of the whole program."""
    from fusionstitch.reports import counting

    xla = ours = counting.Count()
    repeats = _repeated(stitched)
    for plan in stitched.plans:
        dropped = frozenset(c.pattern.bits for c in _dropped(stitched, plan))
        n = repeats.get(plan.program, 0)
        xla += counting.modelled_xla(plan, stitched.device).times(n)
        ours += counting.modelled_stitched(plan, stitched.device, dropped).times(n)
    return xla, ours


def modelled_times(stitched: Stitched) -> tuple[float, float]:
    """(XLA's, ours) as microseconds of the whole program."""
    repeats, xla, ours = _repeated(stitched), 0.0, 0.0
    for plan in stitched.plans:
        n = repeats.get(plan.program, 0)
        xla += n * plan.xla_us
        lost = sum(c.wins_us for c in _dropped(stitched, plan))
        ours += n * (plan.modelled_us + lost)
    return xla, ours


def _patterns(stitched: Stitched) -> list[dict[str, Any]]:
    from fusionstitch.plan.scores import kind_of_pattern
    from fusionstitch.reports.lines import source_lines

    repeats = _repeated(stitched)
    runs = {id(c): repeats.get(p.program, 0) for p in stitched.plans for c in p.chosen}
    return [
        {
            "id": number,
            "kind": kind_of_pattern(one.chosen.pattern.ops),
            "ops": [op.name for op in one.chosen.pattern.ops],
            "scope": one.chosen.facts.scope,
            "runs": runs[id(one.chosen)],
            "score_us": one.chosen.score_us,
            "wins_us": runs[id(one.chosen)] * one.chosen.wins_us,
            "modelled_us": runs[id(one.chosen)] * one.chosen.modelled_us,
            "xla_us": runs[id(one.chosen)] * one.chosen.xla_us,
            "measured_us": one.chosen.measured and dataclasses.asdict(one.chosen.measured),
            "kernel": one.kernel.name,
            "source": source_lines(one.chosen.pattern.ops),
            "template": one.kernel.template,
            "shared_bytes": one.kernel.shared_bytes,
            "registers": one.built.registers if one.built else None,
        }
        for number, one in enumerate(stitched.stitches)
    ]


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
