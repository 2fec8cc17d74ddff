"""How lowering is put together, which no kernel shows."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import fusionstitch
from fusionstitch.codegen.dots.tile import Kind
from fusionstitch.codegen.lower.tiles import WALKS

FILES = sorted((Path(fusionstitch.__file__).parent / "codegen" / "lower").glob("*.py"))


def classes() -> list[ast.ClassDef]:
    nodes = [node for file in FILES for node in ast.walk(ast.parse(file.read_text()))]
    return [node for node in nodes if isinstance(node, ast.ClassDef)]


def test_no_class_derives_from_another_of_lowering() -> None:
    names = Counter(one.name for one in classes())
    assert len(names) > 10
    bases = {base.id for one in classes() for base in one.bases if isinstance(base, ast.Name)}
    assert bases.isdisjoint(names)


def test_every_kind_of_tile_has_a_way_to_walk_it() -> None:
    assert WALKS.keys() == set(Kind)
