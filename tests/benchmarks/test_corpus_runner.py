"""The runner of the corpus on the CPU: rows, failures, shares, and the pages made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus import __main__ as command
from benchmarks.corpus import summary
from benchmarks.corpus.table import find, template, templates
from benchmarks.corpus.worker import OURS, XLA, compared


def test_a_program_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    words = ["--seed", "5", "--only", "hashed_rows", "--small", "--rounds", "4"]
    assert command.main([*words, "--json", str(path), "--commit", "abc"]) == 0
    results = json.loads(path.read_text())
    assert results["command"].startswith("python -m benchmarks.corpus --seed 5 --only hashed_rows")
    assert results["environment"]["commit"] == "abc"
    [row] = results["rows"]
    assert (row["target"], row["kind"], row["seed"], row["step"]) == (
        *("hashed_rows", "hashing", 5),
        "done",
    )
    assert row["arguments"][0].startswith("uint32[")
    assert set(row["first_call_s"]) == set(row["wall_us"]) == {"xla", OURS, "xla again"}
    assert row["wall_ratio"]["rounds"] == row["wall_same"]["rounds"] >= 4
    assert row["wall_ratio"]["low"] <= row["wall_ratio"]["median"] <= row["wall_ratio"]["high"]
    assert "span_us" not in row
    assert row["repeats"] == {"xla": True, OURS: True}
    assert row["serves"] == []
    assert row["floor_us"] is None or row["floor_us"] > 0
    assert not any(row["apart"])
    assert row["check"]["outputs"] == len(row["apart"]) == 2
    assert not row["check"]["wrong"]
    text = summary.text(summary.read([str(path)]))
    assert "| hashed_rows | hashing |" in text
    assert "| wall time | 1 | " in text


def test_a_process_that_fails_or_takes_too_long_leaves_a_row(tmp_path: Path) -> None:
    [known] = find(["hashed_rows"])
    env = command.environment_of(tmp_path)
    row = command.measured(known, tmp_path / "a", ["--seed", "x"], env, 60)
    assert row["failure"] == "exit code 2 in step 'start'"
    assert "invalid int value: 'x'" in row["output"]
    row = command.measured(known, tmp_path / "b", ["--seed", "1"], env, 0.01)
    assert row["failure"] == "stopped after 0.01 s in step 'start'"
    assert (row["target"], row["kind"]) == ("hashed_rows", "hashing")


def test_shares_hold_every_program_once() -> None:
    found = [command.arguments(["--seed", "1", "--share", f"{i}/3"]).templates for i in (1, 2, 3)]
    assert sorted(one.name for part in found for one in part) == sorted(templates())
    only = command.arguments(["--seed", "1", "--kinds", "hashing", "--only", "corners"])
    assert {one.kind for one in only.templates} == {"hashing", "processing"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--share", "3/2"], "3/2 is no share such as 1/4"),
        (["--only", "nothing"], "No template is called nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.arguments(["--seed", "1", *words])
    assert said in capsys.readouterr().err


def test_a_name_is_taken_once() -> None:
    with pytest.raises(AssertionError, match="corners"):
        template(templates()["corners"].make)


def row(name: str, kind: str, span: float, wall: float, **more: Any) -> dict[str, Any]:
    times = {
        "span": {XLA: [span * 10] * 9, OURS: [10.0] * 9},
        "wall": {XLA: [wall * 20] * 9, OURS: [20.0] * 9, "xla again": [20 * wall] * 9},
    }
    found = {"target": name, "kind": kind, "first_call_s": {XLA: 1.0, OURS: 2.0}}
    found["stitched"] = {"patterns": [{}], "kernels": [{}]}
    for what, values in times.items():
        found |= compared(what, values)
    return {**found, **more}


def test_the_page_names_losses_late_calls_and_what_is_wrong() -> None:
    nothing = {"patterns": [], "kernels": []}
    rows = [
        row("a", "vision", 4.0, 2.0, floor_us=10.0, repeats={XLA: True, OURS: True}),
        row(
            *("b", "vision", 1.0, 0.5),
            first_call_s={XLA: 1.0, OURS: 5.2},
            serves=[XLA],
            floor_us=2.5,
            repeats={XLA: True, OURS: False},
        ),
        row("c", "speech", 0.99, 1.0, stitched=nothing, check={"error": 1.0, "wrong": [1]}),
        {"target": "d", "kind": "speech", "failure": "exit code 1 in step 'wall'"},
    ]
    where = {"gpu": "a GPU", "commit": "abc", "date": "today"}
    text = summary.text({"command": "run", "environment": where, "rows": rows})
    assert "| GPU time | 3 | 1.58 | 0.99 | 0.99 | 1.00 | 2.50 | 4.00 | 0 |" in text
    assert "| wall time | 3 | 1.00 | 0.50 | 0.75 | 1.00 | 1.50 | 2.00 | 1 |" in text
    assert "XLA serves 67% of 3 programs, unchanged." in text
    assert "Turned back by a trial: b." in text
    assert "| xla | 2 | 4.00 | 4.00 | 4.00 | 4.00 |" in text
    assert "The same bits in each of many calls: 1 of 2; not in b." in text
    assert "| wall time | 3 | 1.00 | 1.00 | 1.00 |" in text
    assert "| vision | 2 | 2.00 | 1.00 | 1 |" in text
    assert "Slower in GPU time: none." in text
    assert "Slower in wall time: b (0.50)." in text
    assert "First calls over 2.3 times jax.jit's and 0.3 s, as a multiple of it: b (2.00)." in text
    assert "Wrong: c." in text
    assert "Failed: d (exit code 1 in step 'wall')." in text
    assert "| a | vision | 1 | 40.0 | 10.0 | 4.00 | 4.00 to 4.00 | 40.0 | 20.0 | 2.00 |" in text
