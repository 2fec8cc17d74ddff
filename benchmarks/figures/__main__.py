"""Draws figures and writes tables: those of docs/how and docs/architecture.md.

Run it by `python -m benchmarks.figures`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.figures import (
    axes,
    dag,
    flow,
    layers,
    loops,
    one_pattern,
    planning,
    scopes,
    sharing,
    tables,
    trial,
)
from benchmarks.figures.cases import ROOT
from benchmarks.figures.picture import Picture

FIGURES: Mapping[str, Callable[[], Picture]] = {
    "one-pattern.svg": one_pattern.draw,
    "how-flow.svg": flow.draw,
    "how-scopes.svg": scopes.draw,
    "how-axes.svg": axes.draw,
    "how-dominance.svg": sharing.draw_tree,
    "how-lives.svg": sharing.draw_lives,
    "how-cycle.svg": planning.draw,
    "how-layers.svg": layers.draw,
    "how-loops.svg": loops.draw,
    "how-trial.svg": trial.draw,
    "how-dag.svg": dag.draw,
}


def pages(docs: Path) -> list[Path]:
    """The pages that show them."""
    return [docs / "architecture.md", *sorted((docs / "how").glob("*.md"))]


def main(docs: Path) -> None:
    for name, draw in FIGURES.items():
        (docs / "figures" / name).write_text(draw().svg(), "utf-8")
    for page in pages(docs):
        page.write_text(tables.filled(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(ROOT / "docs")
