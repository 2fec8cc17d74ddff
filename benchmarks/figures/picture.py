"""Drawings as SVG: boxes, texts, lines, in the colours of reports, for light and dark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import fusionstitch

COLOURS = Path(fusionstitch.__file__).parent / "reports" / "page" / "static" / "colours.css"
#: What is drawn with: of each a colour on paper and one in the dark.
NAMES = (
    *("paper", "panel", "sunken", "line", "ink", "soft", "xla"),
    *("thread", "warp", "block", "cluster", "grid", "loop"),
)
SANS = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
Point = tuple[float, float]


def colours() -> dict[str, tuple[str, str]]:
    """By name, the colour in the light and in the dark."""
    css = COLOURS.read_text("utf-8")
    found = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\);", css)
    return {name: (light, dark) for name, light, dark in found if name in NAMES}


def _style() -> str:
    """Classes for fills and strokes: f-ink, s-ink. A drawing has paper of its own, so that it can
    be read wherever it lies."""
    light = [f"text {{ font-family: {SANS}; }} .mono {{ font-family: {MONO}; }}"]
    dark: list[str] = []
    for name, pair in colours().items():
        for rules, colour in zip((light, dark), pair, strict=True):
            rules.append(f".f-{name} {{ fill: {colour}; }} .s-{name} {{ stroke: {colour}; }}")
    return "\n".join([*light, "@media (prefers-color-scheme: dark) {", *dark, "}"])


class Picture:
    """One drawing. `about` says in words what it shows, to who cannot see it."""

    def __init__(self, width: int, height: int, title: str, about: str):
        self.root = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {width} {height}",
                "width": str(width),
                "height": str(height),
                "role": "img",
                "aria-labelledby": "title about",
            },
        )
        ElementTree.SubElement(self.root, "title", {"id": "title"}).text = title
        ElementTree.SubElement(self.root, "desc", {"id": "about"}).text = about
        ElementTree.SubElement(self.root, "style").text = _style()
        self._add("rect", {"width": str(width), "height": str(height), "class": "f-paper"})

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "panel",
        stroke: str = "line",
        weight: float = 1,
        opacity: float = 1,
        round_: float = 5,
    ) -> None:
        attributes = {"x": x, "y": y, "width": width, "height": height, "rx": round_}
        looks = {"class": f"f-{fill} s-{stroke}", "stroke-width": _number(weight)}
        if opacity < 1:
            looks["fill-opacity"] = _number(opacity)
        self._add("rect", {**{k: _number(v) for k, v in attributes.items()}, **looks})

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 12,
        colour: str = "ink",
        anchor: str = "start",
        bold: bool = False,
        mono: bool = False,
    ) -> None:
        looks = {"class": f"f-{colour}" + (" mono" if mono else ""), "font-size": _number(size)}
        if anchor != "start":
            looks["text-anchor"] = anchor
        if bold:
            looks["font-weight"] = "600"
        self._add("text", {"x": _number(x), "y": _number(y), **looks}).text = text

    def line(
        self,
        points: Sequence[Point],
        colour: str = "soft",
        weight: float = 1.2,
        arrow: bool = False,
        dashed: bool = False,
    ) -> None:
        """Through points; an arrow ends in a head."""
        path = "M" + " L".join(f"{_number(x)} {_number(y)}" for x, y in points)
        looks = {"class": f"s-{colour}", "fill": "none", "stroke-width": _number(weight)}
        if dashed:
            looks["stroke-dasharray"] = "5 4"
        self._add("path", {"d": path, **looks})
        if arrow:
            self._head(points[-2], points[-1], colour)

    def _head(self, start: Point, end: Point, colour: str, size: float = 7) -> None:
        across, down = end[0] - start[0], end[1] - start[1]
        length = (across * across + down * down) ** 0.5
        x, y = across / length * size, down / length * size
        left = end[0] - x - y / 2, end[1] - y + x / 2
        right = end[0] - x + y / 2, end[1] - y - x / 2
        path = "M" + " L".join(f"{_number(a)} {_number(b)}" for a, b in (end, left, right)) + " Z"
        self._add("path", {"d": path, "class": f"f-{colour}"})

    def _add(self, tag: str, attributes: dict[str, str]) -> ElementTree.Element:
        return ElementTree.SubElement(self.root, tag, attributes)

    def svg(self) -> str:
        ElementTree.indent(self.root)
        return ElementTree.tostring(self.root, encoding="unicode") + "\n"


def _number(value: float) -> str:
    """The same digits on every machine."""
    return f"{round(value, 1):g}"
