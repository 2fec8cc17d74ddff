"""Grown graphs as StableHLO files in tests/corpus, each replayed by a test.

A file's first line says which seed its arguments are drawn from.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from fusionstitch.codegen.rewrite.region import with_root
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.load import load
from fusionstitch.hlo.simplify import simplify
from tests.fuzz.hlo_text import to_stablehlo
from tests.fuzz.values import Grown

FOLDER = Path(__file__).parents[1] / "corpus"
_SEED = re.compile(r"// arguments of seed (\d+)\n")


def text(grown: Grown) -> str:
    """The content of a file."""
    return f"// arguments of seed {grown.seed}\n{to_stablehlo(grown.graph)}"


def keep(grown: Grown) -> Path:
    """Writes the file of a failing graph, named for the test that runs: while Hypothesis shrinks,
    smaller graphs replace it."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "by_hand").split("::")[-1].split()[0]
    path = FOLDER / f"found_by_{re.sub(r'[^a-z0-9_]+', '_', test)}.mlir"
    path.write_text(text(grown))
    return path


def read(path: Path) -> Grown:
    """The graph of a file. Raises ImportModuleError where it cannot be read."""
    content = path.read_text()
    seed = _SEED.match(content)
    assert seed, f"{path} does not say which seed its arguments have"
    graph = simplify(from_proto(inline_calls(load(path))).entry)
    if graph.root.opcode != "tuple":
        graph = with_root(graph.name, list(graph.ops), [graph.root])
    return Grown(graph, int(seed[1]))
