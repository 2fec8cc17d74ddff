"""The part of a page that says where the time goes, as people use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import browser
from tests.people.driving import assert_quiet, details, press, wait


def test_a_page_opens_with_where_the_time_goes(opened: Any, page: Path) -> None:
    opened.get(page.as_uri())
    assert opened.find_element("id", "time").is_displayed()
    assert "Where the time goes" in opened.find_element("id", "tab-time").text
    assert "left to win" in opened.find_element("id", "time").text.lower()


def test_charts_by_kernel_and_by_component(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(opened, "time")
    kernels, components = (
        opened.find_element("id", f"by-{one}") for one in ("kernel", "component")
    )
    assert kernels.is_displayed()
    assert not components.is_displayed()
    opened.find_element("id", "tab-by-component").click()
    assert components.is_displayed()
    assert not kernels.is_displayed()
    assert "a loop of 7 iterations" in components.text
    press(opened, Keys.ARROW_LEFT)
    assert kernels.is_displayed()
    assert opened.execute_script("return document.activeElement.id") == "tab-by-kernel"
    assert_quiet(opened)


def test_charts_are_as_long_as_their_numbers(opened: Any) -> None:
    browser.show(opened, "time")
    rows = opened.find_elements("css selector", "#by-kernel tbody tr")
    assert len(rows) > 3
    drawn = opened.execute_script(
        "return [...document.querySelectorAll('#by-kernel tbody tr')].map(row => {"
        " const ours = row.querySelector('.bar-ours'), floor = row.querySelector('.floor');"
        " const left = row.querySelector('.track').getBoundingClientRect().left;"
        " return [ours.getBoundingClientRect().width, floor.getBoundingClientRect().left - left,"
        "  ...[...row.cells].slice(3, 5).map(cell => Number(cell.dataset.value))]; })"
    )
    [width, floor, ours_us, floor_us] = max(drawn)
    for one, other, us, least_us in drawn:
        assert one == pytest.approx(width * us / ours_us, abs=2.5)
        assert other == pytest.approx(floor * least_us / floor_us, abs=2.5)


def test_charts_sort(opened: Any) -> None:
    browser.show(opened, "time")
    heads = opened.find_elements("css selector", "#by-kernel th")
    left = [number for number, head in enumerate(heads) if head.text.startswith("Left to win")]

    def values(column: int) -> list[float]:
        cells = opened.find_elements("css selector", f"#by-kernel td:nth-child({column + 1})")
        return [float(cell.get_attribute("data-value")) for cell in cells]

    assert values(left[0]) == sorted(values(left[0]), reverse=True)
    heads[2].find_element("tag name", "button").click()
    assert values(2) == sorted(values(2), reverse=True)
    assert values(left[0]) != sorted(values(left[0]), reverse=True)
    assert heads[2].get_attribute("aria-sort") == "descending"
    assert heads[left[0]].get_attribute("aria-sort") is None


def test_what_is_left_leads_to_kernels_and_into_the_graph(opened: Any) -> None:
    browser.show(opened, "time")
    link = opened.find_element("css selector", ".left a[href^='#kernels/']")
    name = link.text
    link.click()
    wait(opened, "document.querySelector('#kernel-details h2')")
    assert opened.find_element("css selector", "#kernel-details h2").text == name
    browser.show(opened, "time")
    shown = opened.find_elements("css selector", ".left li")
    for number, one in enumerate(shown):
        op = one.find_element("css selector", "code").text
        one.find_element("css selector", "a[href^='#graph/']").click()
        wait(opened, "graphView.chosen")
        assert opened.find_element("css selector", "#graph-details h2").text == op, number
        browser.show(opened, "time")
    row = opened.find_element("css selector", "#by-kernel tbody tr")
    title = row.find_element("css selector", "code").text
    row.find_element("css selector", "a[href*='/unit/']").click()
    wait(opened, f"currentGraph().units[graphView.chosen.unit].title === {title!r}")
    assert title in details(opened)
    assert_quiet(opened)
