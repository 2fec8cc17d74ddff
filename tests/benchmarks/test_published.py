"""The figures of README and of the page of benchmarks are those of the newest results."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from benchmarks import published, tables
from benchmarks.guard import speed
from benchmarks.loops.__main__ import gain
from benchmarks.readings import gpu, ratio, wall

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", published.PAGES)
def test_pages_show_the_newest_results(page: str) -> None:
    """Otherwise: make pages"""
    text = (ROOT / page).read_text()
    assert published.put(text) == text
    for table in published.PAGES[page]:
        assert f"<!-- benchmarks.published: {table} -->" in text


def test_the_page_of_benchmarks_shows_the_newest_results() -> None:
    run = published.newest(published.runs("suites"))
    assert tables.markdown(run.content) in (ROOT / "docs" / "benchmarks.md").read_text()


def test_sentences_of_the_comparison_have_the_figures_of_the_newest_results() -> None:
    text = " ".join((ROOT / "docs" / "compare.md").read_text().split())
    rows = {row["target"]: row for row in published.newest(published.runs("suites")).rows}

    def gains(what: Any, *targets: str) -> list[str]:
        return [f"{ratio(rows[target], what):.2f}" for target in targets]

    dlrm, interests, resnet = gains(
        gpu, *(f"{name}.py:train_step" for name in ("dlrm", "multi_interests", "resnet"))
    )
    assert f"a DLRM step {dlrm}, a recommender with attention {interests}" in text
    assert f"a ResNet block {resnet} |" in text
    names = ("logistic.py:train_step", "adam.py:gpt2_small")
    names += ("perceptron.py:train_step", "var_encoder.py:train_step")
    logistic, adam, perceptron, encoder = gains(wall, *names)
    assert f"logistic regression's step {logistic}, Adam over GPT-2 small's tensors {adam}" in text
    assert f"a perceptron's step {perceptron}, a variational encoder's {encoder} |" in text
    [rank] = [
        gain(row, "span_us")
        for row in published.newest(published.runs("loops")).rows
        if row["target"] == "page_rank"
    ]
    assert f"Measured: page rank {rank:.2f} |" in text
    unseen = published.newest(published.runs("guard"), 0.9).rows
    faster = [speed(row, "gpu", "guarded") for row in unseen]
    unchanged = sum(not row["guarded"]["patterns"] for row in unseen)
    assert f"Of {len(unseen)} of the sixty programs that nothing was fitted to, {unchanged}" in text
    assert f"{sum(one > 1.1 for one in faster)} gained more than 1.1 in GPU time" in text
    assert f"the median is {statistics.median(faster):.2f} |" in text


def guarded(name: str, xla: float, ours: float, patterns: int) -> dict[str, Any]:
    times = {"xla": xla, "guarded": ours}
    return {"name": name, "guarded": {"patterns": patterns}, "gpu_us": times, "wall_us": times}


def write(folder: Path, name: str, date: str, *rows: dict[str, Any]) -> None:
    environment = {"gpu": "NVIDIA H100 80GB HBM3", "date": date, "commit": "0123456789"}
    (folder / name).write_text(json.dumps({"environment": environment, "rows": rows}))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(published, "RESULTS", tmp_path)
    return tmp_path


def test_the_newest_run_counts_and_the_newest_of_all_programs(folder: Path) -> None:
    one, other = (guarded(name, 2.0, 1.0, 1) for name in ("one", "other"))
    write(folder, "h100-2026-01-01-guard.json", "2026-01-01 10:00 UTC", one, other)
    write(folder, "h100-2026-01-01-guard-again.json", "2026-01-01 11:00 UTC", one, other)
    write(folder, "h200-2026-01-02-guard.json", "2026-01-02 10:00 UTC", one)
    write(folder, "h200-2026-01-03-loops.json", "2026-01-03 10:00 UTC", one, other)
    found = published.runs("guard")
    assert [run.path.stem[5:] for run in found] == [
        "2026-01-02-guard",
        "2026-01-01-guard-again",
        "2026-01-01-guard",
    ]
    assert published.newest(found, 0.5) == found[0]
    assert published.newest(found) == found[1]
    assert found[1].told == "H100, 2026-01-01, 0123456"


def test_what_failed_was_not_measured(folder: Path) -> None:
    failed = {"name": "other", "failure": "signal 11"}
    write(folder, "h100-2026-01-01-guard.json", "2026-01-01", guarded("one", 1, 1, 0), failed)
    assert [row["name"] for row in published.runs("guard")[0].rows] == ["one"]


def test_losses_are_named_where_something_was_stitched(folder: Path) -> None:
    rows = [
        guarded("field/left", 0.5, 1.0, 0),
        guarded("field/lost", 0.9, 1.0, 1),
        guarded("field/won", 3.0, 1.0, 1),
    ]
    write(folder, "h100-2026-01-01-guard.json", "2026-01-01", *rows)
    [run] = published.runs("guard")
    speeds = {row["name"]: row["gpu_us"]["xla"] for row in rows}
    assert published._spread("some", run, {"field/lost", "field/won"}, [speeds, speeds]) == [
        "some: H100, 2026-01-01, 0123456",
        "3",
        *("0.70, **0.90**, 1.95", "1.11") * 2,
        "1",
        *("`lost` 0.90",) * 2,
    ]


def test_a_page_without_a_place_for_a_table_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="inductor, sorting, convolutions: none"):
        published.put("# Title\n")
    with pytest.raises(ValueError, match="convolutions: others"):
        published.put("<!-- benchmarks.published: others -->\n\n")


@pytest.mark.parametrize("between", ["", "\n", "\n\n"])
def test_an_empty_line_ends_a_table(monkeypatch: pytest.MonkeyPatch, between: str) -> None:
    monkeypatch.setattr(published, "TABLES", {"one": lambda: ["| a |", "|---|"]})
    marker = "<!-- benchmarks.published: one -->\n\n"
    page = f"{marker}| old |\n{between}Text.\n\n{marker}"
    assert published.put(page) == f"{marker}| a |\n|---|\n\nText.\n\n{marker}| a |\n|---|\n"
