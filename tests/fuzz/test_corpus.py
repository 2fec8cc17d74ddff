"""Graphs that once failed, or that hold what is easily broken, replayed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.codegen.generate import CodegenOptions
from fusionstitch.compiler import builders, core
from fusionstitch.hlo.evaluate import evaluate
from tests.fuzz import corpus
from tests.fuzz.growth import from_seed
from tests.fuzz.hlo_text import to_proto
from tests.fuzz.ways import DEVICES, check, cut, report, whole

FILES = sorted(corpus.FOLDER.glob("*.mlir"))


def test_there_is_a_corpus() -> None:
    assert len(FILES) >= 12


@pytest.mark.usefixtures("host_compiler")
def test_every_file_is_right_in_several_ways() -> None:
    ways = []
    for path in FILES:
        grown = corpus.read(path)
        for name, device in DEVICES.items():
            ways.append(whole(grown, f"{path.name} on {name}", device, CodegenOptions("strict")))
        middle = len(grown.graph) // 2
        ways.append(cut(grown, f"{path.name} cut", device, CodegenOptions(), (middle,)))
    check(ways)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_planned_without_a_fallback(path: Path) -> None:
    for scorer in ("paper", "model"):
        options = fs.Options(backend="emulate", scorer=scorer, fallback="error")
        module = to_proto(corpus.read(path).graph)
        result = core.stitch(module, options, builders.profile(options), None)
        assert result.fallbacks == ()


def test_a_file_holds_the_graph_that_was_written(tmp_path: Path) -> None:
    for seed in range(20):
        grown = from_seed(seed)
        path = tmp_path / f"{seed}.mlir"
        path.write_text(corpus.text(grown))
        again = corpus.read(path)
        assert len(again.args) == len(grown.args)
        for one, other in zip(
            evaluate(grown.graph, grown.args), evaluate(again.graph, again.args), strict=True
        ):
            np.testing.assert_array_equal(one.astype(np.float64), other.astype(np.float64))


def test_a_failure_leaves_the_smallest_graph_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hypothesis tries smaller graphs, each of which replaces the file of the one before."""
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    for seed in (3, 4):
        way = whole(from_seed(seed), "one kernel", DEVICES["one multiprocessor"], CodegenOptions())
        told = report(way, "forward order, output 0: error 1.0e+00")
    [path] = tmp_path.iterdir()
    assert str(path) in told
    assert path.name.startswith("found_by_test_a_failure_leaves")
    assert path.read_text() == corpus.text(from_seed(4))
