"""The figures of pages are those of the plans and kernels of today."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jax
import pytest

from benchmarks.figures import one_pattern, traced
from benchmarks.figures.__main__ import FIGURES
from benchmarks.figures.cases import JAX
from benchmarks.figures.picture import NAMES, colours

FOLDER = Path(__file__).parents[2] / "docs" / "figures"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.skipif(
    jax.__version__ != JAX, reason=f"ops in the figures have the names that JAX {JAX} gives them"
)
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_drawn_anew_is_the_committed_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER.parents[1])
    assert FIGURES[name]().svg() == (FOLDER / name).read_text("utf-8"), (
        "the plans or kernels changed: run make figures, and look whether the pages still hold"
    )


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_what_it_shows_and_lies_inside_of_its_frame(name: str) -> None:
    root = ElementTree.fromstring((FOLDER / name).read_text("utf-8"))
    title, about = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert title.text
    assert about is not None
    assert about.text
    assert len(about.text) > len(title.text)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for box in root.iter(f"{SVG}rect"):
        assert 0 <= float(box.get("x", 0)) <= float(box.get("x", 0)) + float(box.attrib["width"])
        assert float(box.get("x", 0)) + float(box.attrib["width"]) <= width
        assert float(box.get("y", 0)) + float(box.attrib["height"]) <= height
    for text in root.iter(f"{SVG}text"):
        size, said = float(text.attrib["font-size"]), text.text or ""
        # wide letters of a plain font, and those of one of equal widths
        reach = size * len(said) * (0.62 if "mono" in text.attrib["class"] else 0.56)
        start = {"middle": -0.5, "end": -1.0}.get(text.get("text-anchor", ""), 0.0) * reach
        assert float(text.attrib["x"]) + start >= -1, said
        assert float(text.attrib["x"]) + start + reach <= width + 1, said
        assert 0 < float(text.attrib["y"]) < height


def test_files_on_the_way_of_a_pattern_are_entered_in_their_order() -> None:
    files, (first, second, *rest) = traced.run().files, one_pattern.STEPS
    assert len(one_pattern.STEPS) <= 25
    assert one_pattern.followed(one_pattern.STEPS, files) == list(one_pattern.STEPS)
    with pytest.raises(AssertionError, match=f"{first.file} is entered before {second.file}"):
        one_pattern.followed([second, first, *rest], files)
    with pytest.raises(AssertionError, match=r"elsewhere\.py is not entered"):
        one_pattern.followed([replace(first, file="codegen/loops/elsewhere.py")], files)


def test_every_colour_is_that_of_the_page_of_a_report_in_light_and_dark() -> None:
    found = colours()
    assert set(found) == set(NAMES)
    for name in FIGURES:
        text = (FOLDER / name).read_text("utf-8")
        used = set(re.findall(r"\b[fs]-(\w+)", " ".join(re.findall(r'class="([^"]*)"', text))))
        assert used <= set(NAMES)
        light, dark = text.split("@media (prefers-color-scheme: dark)")
        for colour in used:
            assert found[colour][0] in light
            assert found[colour][1] in dark
