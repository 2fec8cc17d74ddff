"""The page of a report as people use it: clicks, keys, colours, in a headless Chromium."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import browser
from tests.people.driving import assert_quiet, click_unit, details, kernel_of, press, unit_of, wait
from tests.reports.conftest import HOSTILE

PARTS = ("time", "summary", "graph", "kernels", "rejected", "timeline")

#: Texts that are seen, with their contrast and what it has to be (WCAG 2.1, AA).
CONTRAST = """
const part = document.getElementById(arguments[0]);
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
function rgba(colour) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255];
}
function under(element) {
  for (let e = element; e; e = e.parentElement) {
    const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 0.99) return c;
  }
  return [255, 255, 255, 1];
}
function luminance([r, g, b]) {
  const f = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
}
const bad = []; let seen = 0;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.textContent.trim(), own = walker.currentNode.parentElement;
  if (!text || own.closest("script, style, title, .bar-text")) continue;
  if (!own.getClientRects().length || !(part.contains(own) || own.closest("header"))) continue;
  const style = getComputedStyle(own), svg = own.closest("svg");
  const a = luminance(rgba(svg ? style.fill : style.color)), b = luminance(under(own));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const large = parseFloat(style.fontSize) >= 24;
  seen++;
  if (ratio < (large ? 3 : 4.5)) bad.push([text.slice(0, 40), ratio.toFixed(2), style.color]);
}
return [seen, bad];
"""
#: What can be worked but says not what it is, to who hears it.
NAMELESS = """
return [...document.querySelectorAll("button, input, select, [role=application], [tabindex='0']")]
  .filter(e => e.getClientRects().length && !(e.textContent.trim() || e.ariaLabel
    || e.labels?.length || document.getElementById(e.getAttribute("aria-labelledby") || "")))
  .map(e => e.outerHTML.slice(0, 90));
"""


def test_every_part_and_every_button(opened: Any) -> None:
    for part in PARTS:
        browser.show(opened, part)
        panel = opened.find_element("id", part)
        assert panel.is_displayed()
        others = [opened.find_element("id", other) for other in PARTS if other != part]
        assert not any(other.is_displayed() for other in others)
        for button in panel.find_elements("css selector", "button, summary"):
            if button.is_displayed() and opened.execute_script(
                "return arguments[0].isConnected && !arguments[0].matches('.link')", button
            ):
                button.click()
        assert opened.find_element("id", part).text
    for wanted in ("light", "dark", "system"):
        theme = opened.find_element("id", "theme")
        theme.click()
        assert theme.text == f"Theme: {wanted}"
    assert_quiet(opened)


def test_an_address_that_leads_nowhere_is_harmless(opened: Any, page: Path) -> None:
    for where in ("graph/99/op/1", "graph/0/op/999999", "kernels/none", "graph/x/op/y"):
        opened.get("about:blank")
        opened.get(f"{page.as_uri()}#{where}")
        assert opened.find_element("id", where.split("/")[0]).is_displayed()
    assert_quiet(opened)


def test_nothing_was_loaded(opened: Any) -> None:
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_names_are_text(opened: Any) -> None:
    browser.show(opened, "graph")
    assert opened.execute_script("return document.querySelectorAll('img').length") == 0
    opened.execute_script(
        "const g = currentGraph(), s = g.scopes.findIndex(x => x.includes('onerror'));"
        "chooseOp(0, g.ops.findIndex(op => op[6] === s))"
    )
    shown = opened.execute_script(
        "return [...document.querySelectorAll('.path code')].map(e => e.textContent).join('/')"
    )
    assert HOSTILE in shown
    assert_quiet(opened)


def test_the_graph_is_drawn_in_the_colours_of_the_page(themed: Any, page: Path) -> None:
    """Paper in the corner, and where kernels are, other colours than that."""
    browser.go(themed, page, "graph")
    wait(themed, "graphView.scene")
    paper, drawn = themed.execute_script(
        "const canvas = document.getElementById('graph-canvas'), g = canvas.getContext('2d');"
        "paint(canvas, graphView.scene, graphView.view, null, palette());"
        "const all = g.getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();"
        "for (let i = 0; i < all.length; i += 4) seen.add(`${all[i]}, ${all[i+1]}, ${all[i+2]}`);"
        "return [getComputedStyle(document.body).backgroundColor, [...seen]]"
    )
    assert paper == f"rgb({drawn[0]})"
    assert len(drawn) > 20


def test_a_click_says_what_it_is(opened: Any) -> None:
    browser.show(opened, "graph")
    number = unit_of(opened, "u.kind === 'stitched' && !u.times")
    title = opened.execute_script("return currentGraph().units[arguments[0]].title", number)
    click_unit(opened, number)
    assert title in details(opened)
    assert "scope" in details(opened)
    assert "s = jax.nn.softmax(x)" not in details(opened)  # that is said of ops
    click_unit(opened, number, twice=True)
    wait(opened, "graphView.scene.ops.size")
    opened.execute_script(
        "chooseOp(0, currentGraph().ops.findIndex(op => op[1] === 'exponential'))"
    )
    assert "s = jax.nn.softmax(x)" in details(opened)
    assert "mixed" in details(opened)


def test_a_loop_opens_its_body(opened: Any) -> None:
    browser.show(opened, "graph")
    number = unit_of(opened, "u.kind === 'control'")
    click_unit(opened, number, twice=True)
    assert opened.execute_script("return graphView.number") > 0
    assert "runs a call" in details(opened)
    assert "7" in details(opened)


def test_what_was_left_says_why(opened: Any) -> None:
    browser.show(opened, "graph")
    opened.execute_script("chooseOp(0, currentGraph().ops.findIndex(op => op[1] === 'sort'))")
    assert "Why it is not stitched" in details(opened)


def test_search_with_the_keyboard(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(opened, "graph")
    opened.find_element("id", "graph-search").click()
    press(opened, "exponential")
    found = opened.find_elements("css selector", "#graph-found li")
    assert found
    assert all("exponential" in item.text for item in found)
    press(opened, Keys.ARROW_DOWN, Keys.ENTER)
    assert "exponential" in details(opened)
    assert opened.execute_script("return document.activeElement.id") == "graph-canvas"
    assert opened.execute_script("return graphView.scene.ops.has(graphView.chosen.op)")
    opened.find_element("id", "graph-search").click()
    press(opened, "qqqq")
    assert not opened.find_element("id", "graph-found").is_displayed()


def test_the_graph_with_the_keyboard(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(opened, "graph")
    opened.execute_script("document.getElementById('graph-canvas').focus()")
    press(opened, Keys.ARROW_DOWN)
    first = opened.execute_script("return graphView.chosen.unit")
    press(opened, Keys.ARROW_DOWN)
    assert opened.execute_script("return graphView.chosen.unit") != first
    opened.execute_script(
        "choose({unit: arguments[0]}, true)", unit_of(opened, "u.kind === 'stitched'")
    )
    press(opened, Keys.ENTER)
    assert opened.execute_script("return graphView.unfolded.size") == 1
    scale = opened.execute_script("return graphView.view.scale")
    press(opened, "+")
    assert opened.execute_script("return graphView.view.scale") > scale
    press(opened, "0", Keys.ESCAPE)
    assert opened.execute_script("return graphView.chosen") is None
    assert_quiet(opened)


def test_tabs_with_the_keyboard(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    opened.execute_script(f"document.getElementById('tab-{PARTS[0]}').focus()")
    for part in (*PARTS[1:], PARTS[0]):
        press(opened, Keys.ARROW_RIGHT)
        assert opened.find_element("id", part).is_displayed()
        assert opened.execute_script("return document.activeElement.id") == f"tab-{part}"
    press(opened, Keys.END)
    assert opened.find_element("id", "timeline").is_displayed()


def test_a_kernel_in_full(opened: Any) -> None:
    browser.show(opened, "kernels")
    rows = opened.find_elements("css selector", "#kernel-table tbody tr")
    assert len(rows) > 1
    rows[0].click()
    code = opened.find_element("css selector", "#kernel-text .code")
    wait(opened, "document.querySelectorAll('#kernel-text .row').length > 20")
    assert '#include "fusionstitch.cuh"' in code.text
    assert opened.find_elements("css selector", ".code .k")
    tabs = opened.find_elements("css selector", ".subtabs [role=tab]")
    assert {"CUDA-C", "Template", "Shared memory", "IR"} <= {tab.text for tab in tabs}
    for tab in tabs:
        tab.click()
        assert opened.find_element("id", "kernel-text").text.strip()
        assert tab.get_attribute("aria-selected") == "true"
    assert_quiet(opened)


def test_a_loop_says_what_it_carries(opened: Any) -> None:
    kernel_of(opened, "k.loops")
    card = opened.find_element("id", "kernel-details")
    loop = card.find_element("css selector", ".loop")
    assert "A loop of 50 iterations" in loop.text
    heads = [head.text for head in loop.find_elements("css selector", "th")]
    assert heads[:4] == ["Element", "Type", "Role", "Lives in"]
    assert "counter" in loop.text
    assert "f32[384]" in loop.text
    assert "rows" in card.find_element("css selector", ".scope-loop").text
    kernel_of(opened, "!k.loops")
    assert not opened.find_elements("css selector", "#kernel-details .loop")


def test_phases_are_drawn_with_their_waits(opened: Any) -> None:
    kernel_of(opened, "k.cooperative")
    strip = opened.find_element("css selector", ".strip")
    boxes = strip.find_elements("css selector", ".phase")
    waits = strip.find_elements("css selector", ".wait")
    assert len(boxes) == len(waits) + 1 > 1
    assert all(one.text.startswith("grid") and one.size["height"] > 20 for one in waits)
    stages = [one.text for one in strip.find_elements("css selector", "li")]
    assert any(name.startswith("reduce") for name in stages)
    source = opened.execute_script("return data('kernels').findIndex(k => k.cooperative)")
    text = opened.execute_script("return data(`kernel-${arguments[0]}`).texts[0].text", source)
    assert text.count("fs_grid_barrier();") == len(waits)
    assert_quiet(opened)


def test_phases_of_a_loop_are_inside_of_it(opened: Any) -> None:
    """As the strip draws a kernel whose blocks wait in each iteration."""
    drawn = opened.execute_script(
        "const phases = [[null, 'block'], [0, 'block'], [0, 'block'], [null, '']].map("
        "  ([loop, ends], i) => ({groups: [[[[`s${i}`], false]]], ends, loop}));"
        "const [head, box] = phasesOf({phases, wait_us: {block: 0.1}},"
        "  {loops: [{iterations: 1}]});"
        "return [head.textContent, box.querySelector('.iterations').textContent,"
        "  box.querySelectorAll('.wait').length, box.textContent,"
        "  phasesOf({phases: [], wait_us: {}}, null).length];"
    )
    head, inside, waits, whole, none = drawn
    assert head == "4 phases, 3 waits of the block"
    assert "1 iteration" in inside
    assert "s1" in inside
    assert "s2" in inside
    assert "s0" not in inside
    assert "s3" not in inside
    assert "s3" in whole
    assert (waits, none) == (3, 0)


def test_loops_are_marked_in_the_graph(opened: Any) -> None:
    """In a corner of the unit the colour that its edge has."""
    browser.show(opened, "graph")
    wait(opened, "graphView.scene")
    marked = opened.execute_script(
        "const canvas = document.createElement('canvas');"
        "Object.assign(canvas, {width: 300, height: 120});"
        "const g = canvas.getContext('2d'), colours = palette(), {scene} = graphView;"
        "return scene.units.filter(b => b.unit.kernel !== undefined).map(b => {"
        "  g.setTransform(1, 0, 0, 1, 0, 0); g.clearRect(0, 0, 300, 120);"
        "  g.setTransform(1, 0, 0, 1, 10 - b.x, 10 - b.y); paintUnit(g, scene, b, 1, colours);"
        "  const corner = g.getImageData(10 + b.w - 24, 16, 18, 20).data, seen = new Set();"
        "  for (let i = 0; i < corner.length; i += 4)"
        "    seen.add(`rgb(${corner[i]}, ${corner[i+1]}, ${corner[i+2]})`);"
        "  return [Boolean(b.unit.times), seen.has(colours[accent(b.unit)]),"
        "    about(scene.graph, b.unit)]; })"
    )
    assert {loop for loop, _, _ in marked} == {True, False}
    assert all(loop == seen for loop, seen, _ in marked)
    assert [text.startswith("rows loop of 50") for loop, _, text in marked if loop] == [True]


def test_one_is_no_plural_where_scripts_write(opened: Any) -> None:
    browser.show(opened, "graph")
    browser.show(opened, "kernels")
    texts = opened.execute_script(
        "const texts = [];"
        "data('kernels').forEach((_, n) => {"
        "  showKernel(n); texts.push(byId('kernel-details').textContent); });"
        "data('graphs').forEach((graph, n) => { openGraph(n);"
        "  texts.push(...graph.units.map(unit => about(graph, unit)),"
        "    byId('graph-details').textContent, byId('graph-select').textContent); });"
        "return texts"
    )
    nouns = "ops|runs|inputs|outputs|blocks|threads|values|iterations|phases|waits|bytes"
    assert any("1 output" in text for text in texts)
    assert [found for text in texts if (found := re.findall(rf"\b1 (?:{nouns})\b", text))] == []


def test_kernels_sort(opened: Any) -> None:
    browser.show(opened, "kernels")
    head = opened.find_elements("css selector", "#kernel-table th")[2]
    for order in ("descending", "ascending"):
        head.find_element("tag name", "button").click()
        assert head.get_attribute("aria-sort") == order
        cells = opened.find_elements("css selector", "#kernel-table tbody td:nth-child(3)")
        values = [float(cell.get_attribute("data-value")) for cell in cells]
        assert values == sorted(values, reverse=order == "descending")


def test_an_address_leads_to_a_kernel(opened: Any, page: Path) -> None:
    name = opened.execute_script("return data('kernels')[1].name")
    opened.get("about:blank")
    opened.get(f"{page.as_uri()}#kernels/{name}")
    assert opened.find_element("css selector", "#kernel-details h2").text == name


def test_rejections_open_and_filter(opened: Any) -> None:
    browser.show(opened, "rejected")
    reasons = opened.find_elements("css selector", "#rejected-reasons details")
    reasons[0].find_element("tag name", "summary").click()
    wait(opened, "document.querySelectorAll('#rejected-reasons tbody tr').length")
    opened.find_element("id", "rejected-filter").send_keys("no such thing")
    assert not any(one.is_displayed() for one in reasons)


def test_timelines_zoom_and_lead_to_kernels(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(opened, "timeline")
    lanes = opened.find_elements("css selector", ".lane")
    assert len(lanes) == 2
    width = lanes[0].size["width"]
    opened.find_element("id", "timeline-zoom").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert lanes[0].size["width"] == pytest.approx(2 * width, rel=0.02)
    opened.find_elements("css selector", "rect[data-kernel]")[0].click()
    assert opened.find_element("id", "kernels").is_displayed()
    assert opened.find_element("css selector", "#kernel-details h2").text.startswith("fs_")


@pytest.mark.parametrize("part", PARTS)
def test_contrast(themed: Any, page: Path, part: str) -> None:
    browser.go(themed, page, part)
    if part == "kernels":
        themed.find_element("css selector", "#kernel-table tbody tr").click()
    if part == "rejected":
        themed.find_element("css selector", "summary").click()
    seen, bad = themed.execute_script(CONTRAST, part)
    assert seen > 10
    assert bad == []


@pytest.mark.parametrize("part", PARTS)
def test_everything_has_a_name(opened: Any, part: str) -> None:
    browser.show(opened, part)
    assert opened.execute_script(NAMELESS) == []


@pytest.mark.parametrize("width", [700, 1100])
def test_narrow_windows(opened: Any, width: int) -> None:
    opened.set_window_size(width, 800)
    try:
        for part in PARTS:
            browser.show(opened, part)
            over = "return document.documentElement.scrollWidth - innerWidth"
            assert opened.execute_script(over) <= 0, part
    finally:
        opened.set_window_size(1440, 900)
