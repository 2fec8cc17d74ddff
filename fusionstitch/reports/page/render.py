"""A report as one page of HTML: templates, styles, scripts and data in one file.

Everything that a module may have said goes through Jinja's escaping, or into blocks of JSON that
the scripts read and write out as text. The page's policy lets no other script run.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2

from fusionstitch.compiler.progress import silent
from fusionstitch.hlo.brief import count
from fusionstitch.reports import timeline
from fusionstitch.reports.modelled import modelled_counts, modelled_times
from fusionstitch.reports.page import bars, graphs, kernels, lanes, places, rejections, roofline
from fusionstitch.reports.sizes import size as bytes_text
from fusionstitch.reports.text import BACKENDS, all_notes, compile_text, error_text
from fusionstitch.version import __version__

if TYPE_CHECKING:
    from fusionstitch.reports.figures import Figures
    from fusionstitch.reports.trial import Trial

#: In the order in which they are run.
SCRIPTS = (
    *("dom.js", "tabs.js", "arrange.js", "paint.js", "graph.js", "details.js", "search.js"),
    *("code.js", "memory.js", "phases.js", "loops.js", "kernels.js", "rejected.js", "timeline.js"),
    *("bars.js", "main.js"),
)
STYLES = ("colours.css", "page.css", "bars.css", "phases.css", "graph.css", "tables.css")


def page(report: Figures, trial: Trial | None, step: Callable[[str], None] = silent) -> str:
    """The page of a report: its figures, and with the `trial` they come from all the rest. `step`
    is told what takes long."""
    script = "\n".join(map(_static, SCRIPTS))
    facts: dict[str, Any] = {
        "report": report,
        "version": __version__,
        "backend": BACKENDS[report.backend],
        "notes": all_notes(report),
        "error": error_text(report),
        "compile": compile_text(report),
        "style": "\n".join(map(_static, STYLES)),
        "script": script,
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "data": {},
        "kernels": [],
        "texts": [],
        "rejected": [],
        "roofline": None,
        "where": bars.where(report),
        "lanes": [],
        "passes": [],
    }
    if trial is not None:
        facts |= _of_trial(report, trial, step)
    return _environment().get_template("page.html.j2").render(facts)


def _of_trial(report: Figures, trial: Trial, step: Callable[[str], None]) -> dict[str, Any]:
    """What the report's figures do not hold."""
    stitched = trial.stitched
    step("drawing the graph")
    own = kernels.kernels(trial, step)
    where = places.Places(stitched.given or trial.module)
    drawn = graphs.drawings(stitched, where, {one["name"]: n for n, one in enumerate(own)})
    turned_down = rejections.rejections(stitched)
    xla, ours = timeline.under_xla(stitched), timeline.ours(stitched)
    whole = max(sum(span.us for span in side) for side in (xla, ours)) if xla or ours else 0.0
    counts, times = modelled_counts(stitched), modelled_times(stitched)
    texts = [{key: one.pop(key) for key in ("texts", "memory", "phases")} for one in own]
    return {
        "kernels": own,
        "texts": texts,
        "rejected": turned_down,
        "roofline": roofline.roofline(stitched),
        "where": bars.where(report, stitched, own),
        "lanes": [
            lanes.lane("XLA alone", xla, whole, counts[0].kernels, times[0]),
            lanes.lane("fusionstitch", ours, whole, counts[1].kernels, times[1]),
        ],
        "passes": _passes(stitched.timings),
        "data": {
            "graphs": drawn,
            "places": where.table,
            "kernels": own,
            "rejected": turned_down,
        },
    }


def _passes(timings: dict[str, float]) -> Sequence[tuple[str, float]]:
    return sorted(timings.items(), key=lambda item: -item[1])


def _static(name: str) -> str:
    return (resources.files(__package__) / "static" / name).read_text("utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    """Escapes everything; an undefined name is a mistake."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    found.filters |= {"us": us, "size": bytes_text, "count": lambda n: f"{n:,}", "many": count}
    found.filters["unit_rows"] = unit_rows
    return found


def unit_rows(units: Iterable[tuple[str, float]]) -> list[tuple[str, float, str, str]]:
    """Units and their microseconds as rows of the macro `bars`."""
    return [(unit, value, us(value), "bar-floor") for unit, value in units]


def us(value: float | None) -> str:
    """Microseconds with three digits; milliseconds where there are many."""
    if value is None:
        return "–"  # noqa: RUF001
    if value >= 10_000:
        return f"{value / 1000:,.1f} ms"
    return f"{value:.3g} µs" if value < 100 else f"{value:,.0f} µs"
