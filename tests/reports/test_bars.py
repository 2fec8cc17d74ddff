"""Where the time goes: bars of kernels and components, what they are sorted by and lead to."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.plan.findings import Comparison
from fusionstitch.reports import bars, timeline
from fusionstitch.reports.bars import Bar
from fusionstitch.reports.floors import parts
from fusionstitch.reports.page.bars import KEPT, MOST, Chart, Where, where
from fusionstitch.reports.page.kernels import kernels
from fusionstitch.reports.report import Report


@pytest.fixture(scope="module")
def own(report: Report) -> list[dict[str, Any]]:
    return kernels(report.trial, lambda step: None)


@pytest.fixture(scope="module")
def found(report: Report, own: list[dict[str, Any]]) -> Where:
    return where(report, report.trial.stitched, own)


@pytest.fixture(scope="module")
def with_products() -> Report:
    """A product that a library keeps, and two components beside it."""

    def fun(x: jax.Array, w: jax.Array) -> jax.Array:
        y = jax.nn.softmax(jnp.sin(x) @ w)
        return y * jnp.tanh(y).sum(0)

    shape = jax.ShapeDtypeStruct((4096, 4096), jnp.float32)
    return fs.report(fun, shape, shape, device="h200", options=fs.Options(scorer="model"))


def test_rows_are_sorted_by_what_is_left_to_win(found: Where) -> None:
    for chart in (found.kernels, found.components):
        left = [row.bar.left_us for row in chart.rows]
        assert left == sorted(left, reverse=True)
        assert left[0] > 0
        for row in chart.rows:
            assert row.bar.left_us == max(0.0, row.bar.ours_us - row.bar.floor_us)
            assert row.bar.floor_us > 0
            assert row.bar.bound_by


def test_kernels_take_what_the_timeline_has(report: Report, found: Where) -> None:
    spans = timeline.ours(report.trial.stitched)
    ours = sum(row.bar.ours_us for row in found.kernels.rows)
    assert ours == pytest.approx(sum(span.us for span in spans))
    names = {kernel.name for kernel in report.trial.stitched.kernels}
    assert {row.bar.name for row in found.kernels.rows if row.scope} == names
    for row in found.kernels.rows:
        if not row.scope:
            assert row.reason
            assert row.bar.xla_us == row.bar.ours_us  # XLA's own


def test_components_are_the_parts(report: Report, found: Where) -> None:
    known = {part.longest[0].name: part for part in parts(report.trial.stitched)}
    rows = [row for row in found.components.rows if row.bar.name != KEPT]
    assert {row.bar.name for row in rows} == known.keys()
    for row in rows:
        part = known[row.bar.name]
        assert row.bar.left_us == pytest.approx(max(0.0, part.lost_us))
        assert row.bar.bound_by == part.floor.bound_by
        assert row.kernels == part.kernels
    assert "a loop of 7 iterations" in {row.what for row in rows}


def test_what_is_left_is_summed_by_what_binds(found: Where) -> None:
    for unit, us in found.binds:
        bound = [row.bar.left_us for row in found.left if row.bar.bound_by == unit]
        assert us == pytest.approx(sum(bound), abs=1e-6)
    assert [us for _, us in found.binds] == sorted((us for _, us in found.binds), reverse=True)


def test_what_libraries_keep_is_a_component_that_nobody_is_to_win(with_products: Report) -> None:
    stitched = with_products.trial.stitched
    made = where(with_products, stitched, kernels(with_products.trial, lambda step: None))
    [kept] = [row for row in made.components.rows if row.bar.name == KEPT]
    assert kept.bar.bound_by == "tensor cores"
    assert kept.what == "1 kernel"
    assert kept not in made.left
    assert made.left
    [product] = [row for row in made.kernels.rows if "dot" in row.bar.name and not row.scope]
    assert product.bar.ours_us == kept.bar.ours_us
    assert made.units[0][0] == "tensor cores"
    assert ("a launch", pytest.approx(stitched.device.launch_us)) in made.units


def test_rows_lead_into_the_graph_that_is_drawn(found: Where, page: str) -> None:
    [text] = re.findall(r'id="data-graphs">(.*?)</script>', page)
    graphs = json.loads(text)
    for row in (*found.kernels.rows, *found.components.rows):
        if row.bar.name == KEPT:
            continue
        _, number, kind, op = row.address.split("/")
        name, _, _, unit, *_ = graphs[int(number)]["ops"][int(op)]
        if kind == "op":
            assert name == row.bar.name
        else:
            assert graphs[int(number)]["units"][unit]["title"] == row.bar.name
        assert f'href="{row.address}"' in page


def test_bars_are_drawn_on_one_scale(found: Where) -> None:
    longest = max(row.bar.ours_us for row in found.kernels.rows)
    chart = found.kernels
    assert longest <= chart.whole_us <= 3 * longest
    assert all(0 <= chart.share(row.bar.xla_us) <= 100 for row in chart.rows)
    assert chart.share(longest) == pytest.approx(100 * longest / chart.whole_us)
    assert max(row.bar.xla_us for row in chart.rows) > chart.whole_us  # a bar that is cut off
    assert Chart([], 0.0).share(1.0) == 0


def test_rows_that_are_not_drawn_are_counted(
    report: Report, own: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusionstitch.reports.page import bars as drawn

    whole = where(report, report.trial.stitched, own).kernels
    assert len(whole.rows) <= MOST
    monkeypatch.setattr(drawn, "MOST", 2)
    cut = where(report, report.trial.stitched, own).kernels
    assert len(cut.rows) == 2
    assert cut.more == len(whole.rows) - 2
    assert cut.more_us == pytest.approx(sum(row.bar.left_us for row in whole.rows[2:]))


def _measured(report: Report, patterns: int) -> Stitched:
    """The same program, as if the guard had measured its first pattern."""
    stitched = report.trial.stitched
    first = stitched.stitches[0]
    chosen = dataclasses.replace(first.chosen, measured=Comparison(5.0, 9.0, patterns))
    plans = tuple(
        dataclasses.replace(
            plan, chosen=tuple(chosen if c is first.chosen else c for c in plan.chosen)
        )
        for plan in stitched.plans
    )
    stitches = (dataclasses.replace(first, chosen=chosen), *stitched.stitches[1:])
    return dataclasses.replace(stitched, plans=plans, stitches=stitches)


@pytest.mark.parametrize(("patterns", "times"), [(1, "measured"), (2, "modelled")])
def test_what_was_measured_alone_is_shown_so(report: Report, patterns: int, times: str) -> None:
    trial = dataclasses.replace(report.trial, stitched=_measured(report, patterns))
    made = where(report, trial.stitched, kernels(trial, lambda step: None)).kernels
    name = trial.stitched.stitches[0].kernel.name
    [row] = [row for row in made.rows if row.bar.name == name]
    assert row.bar.times == times
    if times == "measured":
        assert (row.bar.ours_us, row.bar.xla_us) == (5.0, 9.0)
        assert made.times == ""  # the others are modelled
        assert "Measured times include" in dataclasses.replace(report, trial=trial).to_html()
    else:
        assert row.bar.ours_us != 5.0
        assert made.times == "modelled"


def test_the_whole_program_is_measured_where_both_sides_were(report: Report) -> None:
    modelled = bars.of_program(report)
    assert modelled is not None
    assert (modelled.times, modelled.ours_us) == ("modelled", report.modelled_us)
    times = {"unfused": 900.0, "xla": 300.0, "fusionstitch": 120.0}
    over = {"xla": 9.0, "fusionstitch": 4.0, "measured": True}
    again = dataclasses.replace(report, time_us=times, over_floor=over)
    measured = bars.of_program(again)
    assert measured is not None
    assert (measured.times, measured.xla_us, measured.ours_us) == ("measured", 300.0, 120.0)
    assert "A call, measured" in dataclasses.replace(again, trial=None).to_html()
    assert bars.of_program(dataclasses.replace(report, floor_us=None)) is None


def test_bars_of_cards_are_those_of_patterns(report: Report) -> None:
    rows = bars.of_patterns(report)
    assert {bar.name for bar in rows} == {one["kernel"] for one in report.patterns}
    first = report.patterns[0]
    [bar] = [bar for bar in rows if bar.name == first["kernel"]]
    assert bar.ours_us == first["modelled_us"]
    assert bar.xla_us == pytest.approx(first["modelled_us"] + first["wins_us"])
    found = {"ours_us": 5.0, "xla_us": 9.0, "patterns": 1}
    again = dataclasses.replace(report, patterns=({**first, "runs": 3, "measured_us": found},))
    [bar] = bars.of_patterns(again)
    assert bar == Bar(first["kernel"], 27.0, 15.0, first["floor_us"], times="measured")
