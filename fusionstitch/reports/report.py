"""`fs.report`: what stitching does to a function, next to XLA and to op-by-op execution."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionstitch.hlo import cards
from fusionstitch.hlo.brief import brief, count
from fusionstitch.hlo.errors import FusionStitchError
from fusionstitch.reports.figures import Figures
from fusionstitch.reports.text import (
    BACKENDS,
    all_notes,
    comparison,
    error_text,
    pattern_rows,
    text,
)

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched
    from fusionstitch.execution.call import Call
    from fusionstitch.reports.trial import Trial

#: Passes that count as planning.
_PLANNING = ("import", "simplify", "plan", "export")


@dataclass(frozen=True, repr=False)
class Report(Figures):
    """A comparison to print, to write as JSON or as a page, or to read figure by figure.

    `fs.report` and `Compiled.report` make it. `print(report)` shows all of it, a notebook a card.

    Attributes:
        trial: what it was made from: plans, kernels, graphs
    """

    trial: Trial | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        one = self.kernels
        ours = f"{count(self.ops, 'op')}, {count(one['fusionstitch'], 'kernel')}"
        return brief(
            f"Report of {self.workload} on {self.device} ({self.backend}): {ours}, "
            f"{one['xla']} under XLA, {one['unfused']} op by op; print it for the rest"
        )

    def __getstate__(self) -> dict[str, Any]:
        # graphs and kernels stay in the process that made them
        return {**self.__dict__, "trial": None}

    def _repr_html_(self) -> str:
        from fusionstitch.reports import bars  # loads the models

        head, *rows = comparison(self)
        names, *patterns = pattern_rows(self)
        return cards.card(
            f"{self.workload} on {self.device} ({BACKENDS[self.backend]}), {self.ops:,} ops",
            cards.table(head, rows),
            bars.card(self),
            cards.table(names, patterns) if patterns else cards.note("nothing was stitched"),
            cards.note(f"error {error_text(self)}"),
            *(cards.note(f"note: {one}") for one in all_notes(self)),
            cards.folded("All of it as text", str(self)),
            cards.note("report.to_html('report.html') writes a page to look around in"),
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data, ready for JSON; an infinite error is "inf"."""
        data = {one.name: getattr(self, one.name) for one in dataclasses.fields(Figures)}
        data["notes"] = all_notes(self)
        return {key: _plain(value) for key, value in data.items()}

    def explain(self, what: str | None = None, *, rejected: bool = False) -> str:
        """What was stitched, what was not, and why, as `Compiled.explain` says it.

        Raises FusionStitchError in a copy of a report, which has left its plan in the process that
        made it."""
        from fusionstitch.reports.explained import explained

        if self.trial is None:
            raise FusionStitchError("A copy of a report has no plan: ask where it was made.")
        return explained(self.trial.stitched, what, rejected)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as a page of HTML that needs nothing else, and opens offline.

        It quotes the user's lines and all kernels. Raises FusionStitchError where `path` cannot be
        written.

        Args:
            path: also write it there
        """
        from fusionstitch.compiler import progress
        from fusionstitch.reports.page.render import page  # loads what makes pages

        with progress.line(self.workload) as step:
            text = page(self, self.trial, step)
        if path is not None:
            _written(Path(path), text)
        return text

    def to_trace(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """The report's timelines as a Chrome trace, for Perfetto; times are in microseconds.

        Raises FusionStitchError where `path` cannot be written.

        Args:
            path: also write it there
        """
        from fusionstitch.reports.trace import of_report

        data = of_report(self, self.trial)
        if path is not None:
            _written(Path(path), json.dumps(data, allow_nan=False))
        return data

    def __str__(self) -> str:
        return text(self)


def report_call(call: Call, name: str = "") -> Report:
    """The report of a call; `name` is the workload's, by default the function's."""
    from fusionstitch.reports import trial

    return report_trial(trial.run(call, name))


def report_trial(trial: Trial) -> Report:
    """The report of a trial."""
    from fusionstitch.reports import counting
    from fusionstitch.reports.floors import floors
    from fusionstitch.reports.lines import source_lines
    from fusionstitch.reports.modelled import modelled_counts, modelled_times
    from fusionstitch.reports.seen import told_of

    stitched, program = trial.stitched, counting.entry(trial.module)
    unfused = counting.unfused(program)
    xla, ours = modelled_counts(stitched)
    kernels = {
        "unfused": unfused.kernels,
        "xla": xla.kernels if trial.xla_kernels is None else trial.xla_kernels,
        "fusionstitch": ours.kernels if trial.kernels is None else trial.kernels,
    }
    xla_us, modelled_us = modelled_times(stitched)
    timings, found = stitched.timings, floors(stitched, trial.module)
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
        traffic_bytes={
            "unfused": unfused.bytes,
            "xla": xla.bytes,
            "fusionstitch": ours.bytes,
        },
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
        floor_us=found.to_dict(),
        over_floor=found.over((trial.xla_us, trial.stitched_us), (xla_us, modelled_us)),
        notes=(*trial.notes, *told_of(stitched.truth)),
        trial=trial,
    )


def _written(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8", "backslashreplace")
    except OSError as error:
        raise FusionStitchError(f"{path} cannot be written: {error.strerror}.") from None


def _plain(value: Any) -> Any:
    """A value of `to_dict` as JSON knows it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return copy.deepcopy(dict(value)) if isinstance(value, dict) else value


def _patterns(stitched: Stitched) -> list[dict[str, Any]]:
    from fusionstitch.plan.scores import kind_of_pattern
    from fusionstitch.reports import counting
    from fusionstitch.reports.floors import pattern_floor
    from fusionstitch.reports.lines import source_lines

    repeats = counting.runs_of(stitched.plans)
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
            "xla_source": one.chosen.xla_source,
            "floor_us": runs[id(one.chosen)] * pattern_floor(one.chosen.pattern, stitched).us,
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
