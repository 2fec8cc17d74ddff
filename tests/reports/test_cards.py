"""What notebooks and REPLs show of reports, plans, kernels and explanations."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import pytest

from fusionstitch.hlo import cards
from fusionstitch.hlo.brief import CARDS, Listed
from fusionstitch.reports.explain import explain
from fusionstitch.reports.explained import Explained
from fusionstitch.reports.report import Report
from tests.reports.conftest import HOSTILE


class Text(HTMLParser):
    """The text of a card, whose elements are closed."""

    def __init__(self, html: str):
        super().__init__()
        self.text, self.open = "", list[str]()
        self.tags: set[str] = set()
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_of_a_report(report: Report) -> None:
    shown = Text(report._repr_html_()).text
    assert f"{report.modelled_us:.1f} us" in shown
    assert report.device in shown
    assert str(report).split("\n")[-1] in shown
    assert "left to win" in shown
    assert f"{report.patterns[0]['floor_us']:.1f} us" in shown
    hostile = dataclasses.replace(report, workload=HOSTILE)
    assert Text(hostile._repr_html_()).tags.isdisjoint({"img", "script"})


def test_of_plans(report: Report) -> None:
    for plan in report.trial.stitched.plans:
        shown = Text(plan._repr_html_()).text
        assert plan.graph.name in shown
        assert f"{plan.xla_us:.1f} us" in shown
        assert all(one.reason in shown for one in plan.rejected)
        assert all(f"{one.wins_us:.2f} us" in shown for one in plan.chosen)


def test_of_kernels(report: Report) -> None:
    kernels = report.trial.stitched.kernels
    for kernel in kernels:
        shown = Text(kernel._repr_html_()).text
        assert kernel.source in shown
        assert kernel.template in shown
    together = Text(kernels._repr_html_()).text
    assert all(kernel.name in together for kernel in kernels)


def test_of_an_explanation(report: Report) -> None:
    text = explain(report.trial.stitched)
    explained = Explained(text)
    assert explained == text
    assert repr(explained) == text  # a REPL shows lines, not "\n"
    shown = Text(explained._repr_html_())
    assert shown.tags.isdisjoint({"img", "script"})
    assert HOSTILE not in explained._repr_html_()
    for line in text.splitlines():
        assert line.strip() in shown.text


def test_a_tuple_shows_its_first_cards() -> None:
    class One:
        def _repr_html_(self) -> str:
            return "<p>one</p>"

    many = Text(Listed([One()] * (CARDS + 5))._repr_html_() or "").text
    assert many.count("one") == CARDS
    assert "and 5 more" in many
    assert Listed([1, 2])._repr_html_() is None
    assert Listed()._repr_html_() is None


@pytest.mark.parametrize("part", [cards.note, lambda text: cards.card(text)])
def test_parts_are_escaped(part: object) -> None:
    assert callable(part)
    html = part(HOSTILE) + cards.table([HOSTILE], [[HOSTILE]]) + cards.folded(HOSTILE, HOSTILE)
    html += cards.facts([(HOSTILE, HOSTILE)])
    shown = Text(html)
    assert shown.tags.isdisjoint({"img", "script"})
    assert shown.text.count(HOSTILE) == 7
    hostile = Text(cards.bars((HOSTILE,), [cards.Bar(HOSTILE, 1.0, 1.0, 1.0, (HOSTILE,))]))
    assert hostile.tags.isdisjoint({"img", "script"})
    assert hostile.text.count(HOSTILE) == 3


def test_tables_leave_out_empty_columns() -> None:
    shown = Text(cards.table(["ops", "measured", "scope"], [["7", "", ""], ["8", "", "grid"]])).text
    assert shown == "opsscope78grid"


def test_bars_are_drawn_on_one_scale() -> None:
    rows = [cards.Bar("long", 90.0, 10.0, 5.0, ("a",)), cards.Bar("short", 3.0, 15.0)]
    assert cards.scale(rows) == 45.0  # what is longer than three of ours is cut off
    html = cards.bars(("", "", ""), rows)
    widths = re.findall(r"width:([\d.]+)%", html)
    assert widths == ["100.00", "22.22", "6.67", "33.33"]
    assert re.findall(r"left:([\d.]+)%", html) == ["11.11"]
    assert Text(html).text == "longashort"
    assert cards.bars(("",), []) == ""
    assert cards.scale([]) == 0


def test_long_texts_are_cut() -> None:
    assert len(cards.folded("long", "x" * (3 * cards.MOST))) < 2 * cards.MOST
