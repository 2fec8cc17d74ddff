"""Imports point down: no file needs one that needs it, not even in a function or for its types."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx

import fusionstitch

ROOT = Path(fusionstitch.__file__).parent
#: Floors, and the packages of codegen, each of which may import those before it.
FLOORS = ("hlo", "costmodel", "codegen")
PACKAGES = (
    "text",
    "index_maps",
    "rewrite",
    "loops",
    "dots",
    "schedule",
    "memory",
    "ir",
    "lower",
    "count",
)


@cache
def modules() -> dict[str, Path]:
    folders = [ROOT, *(ROOT / floor for floor in FLOORS)]  # links are not walked
    found: dict[str, Path] = {}
    for file in sorted({file for folder in folders for file in folder.rglob("*.py")}):
        parts = file.relative_to(ROOT).with_suffix("").parts
        name = ".".join(part for part in ("fusionstitch", *parts) if part != "__init__")
        found[name] = file
    return found


def imported(file: Path) -> Iterator[str]:
    """The modules of ours that a file imports anywhere in it."""
    known = modules()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                yield from (name for name in (module, node.module) if name in known)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)


@cache
def graph() -> nx.DiGraph:
    found = nx.DiGraph()
    for name, file in modules().items():
        # a package's own file is what its modules are looked up in, and nothing of it is read
        edges = (other for other in imported(file) if not name.startswith(f"{other}."))
        found.add_edges_from((name, other) for other in edges if other != name)
    return found


def test_no_file_needs_one_that_needs_it() -> None:
    assert len(graph()) > 250
    circles = [sorted(c) for c in nx.strongly_connected_components(graph()) if len(c) > 1]
    assert circles == []


def floor_of(name: str) -> int:
    part = name.split(".")[1:2]
    return FLOORS.index(part[0]) if part and part[0] in FLOORS else len(FLOORS)


def test_floors_import_what_is_below() -> None:
    up = [edge for edge in graph().edges if floor_of(edge[0]) < floor_of(edge[1])]
    assert up == []


def test_packages_of_codegen_stand_in_the_order_of_a_pattern_s_way() -> None:
    def place(name: str) -> int | None:
        package = name.removeprefix("fusionstitch.codegen.").partition(".")[0]
        return PACKAGES.index(package) if package in PACKAGES else None

    up = []
    for one, other in graph().edges:
        here, there = place(one), place(other)
        if here is not None and there is not None and here < there:
            up.append((one, other))
    assert up == []


def test_only_templates_are_parsed_by_patterns() -> None:
    """Nothing in code generation reads C text back."""
    parsing = {
        name
        for name, file in modules().items()
        if name.startswith("fusionstitch.codegen.")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import) and any(alias.name == "re" for alias in node.names)
    }
    schedule = "fusionstitch.codegen.schedule"
    assert parsing == {f"{schedule}.parser", f"{schedule}.template"}


def test_only_templates_are_read_as_text() -> None:
    """What code generation knows it has in types: it looks for nothing in texts of its own."""
    reading = {
        name
        for name, file in modules().items()
        if name.startswith("fusionstitch.codegen.")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        if "re" in [getattr(node, "module", None), *(alias.name for alias in node.names)]
    }
    assert reading == {f"fusionstitch.codegen.schedule.{name}" for name in ("parser", "template")}
