"""The benchmark of the guard: its programs, its bars, workers that die."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import guard, guard_worker
from benchmarks.unseen.table import PROGRAMS


def row(name: str, gpu: float, wall: float, spent: float = 1.0) -> dict[str, Any]:
    """One whose guarded side is so many times as fast as XLA; the model's is half as fast."""
    times = {"xla": 10.0, "guarded": 10.0 / gpu, "model": 20.0}
    return {
        "name": name,
        "gpu_us": times,
        "wall_us": times | {"guarded": 10.0 / wall},
        "xla_s": 0.5,
        "guarded_pass_s": spent * 0.5,
        "model_pass_s": 0.1,
        "check": {s: {"difference": 1e-7, "wrong": []} for s in ("guarded", "model")},
        **{scorer: {"patterns": 1, "measured": 1} for scorer in ("guarded", "model")},
    }


def test_bars() -> None:
    rows = [row("fast", 2.0, 2.0), row("slow", 0.5, 0.94, 16.0), {"name": "dead", "failure": "-9"}]
    again = [row("fast", 1.0, 1.0, 0.001), row("slow", 1.0, 1.0, 4.0)]
    found = guard.summary(rows, again)
    assert found["gpu guarded"] == pytest.approx(1.0)
    assert found["gpu model"] == pytest.approx(0.5)
    assert (found["first"], found["second"]) == (pytest.approx(4.0), pytest.approx(0.2))
    assert guard.misses(found) == [
        "dead failed",
        "slow: 0.50 times as fast as XLA (gpu)",
        "slow: 0.94 times as fast as XLA (wall)",
        "compiling, first process: 4.00 of XLA's, bar 2.0",
        "compiling, second process: 0.20 of XLA's, bar 0.1",
    ]
    same = row("same", 0.9, 0.8) | {"guarded": {"patterns": 0, "measured": 1}}
    found = guard.summary([*rows, same], again)
    assert found["wall guarded below 0.95"] == {"slow": pytest.approx(0.94)}
    assert (found["gpu noise"], found["wall noise"]) == ([0.9, 0.9], [0.8, 0.8])
    fine = row("fast", 1.0, 1.0)
    assert not guard.misses(guard.summary([fine], []))
    wrong = fine | {"check": {"guarded": {"difference": 1.0, "wrong": [{"output": 0}]}}}
    assert guard.misses(guard.summary([wrong], [])) == ["fast: wrong numbers"]
    lines = guard.table(rows, again).splitlines()
    assert len(lines) == 5
    assert len({line.count("|") for line in lines}) == 1


def test_the_page_shows_the_published_rows() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "benchmarks.md").read_text()
    section = page.split("## Sixty programs that nothing was fitted to", 1)[1]
    named = re.search(r"h\d+-[-0-9]*-guard\.json", section)
    assert named
    content = json.loads((root / "benchmarks" / "results" / named[0]).read_text())
    assert guard.table(content["rows"], content["second"]) in page
    assert {row["name"] for row in content["rows"]} == set(PROGRAMS)


def test_a_file_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "guard.json"
    file.write_text(json.dumps({"rows": [row("slow", 0.5, 0.94)], "second": []}))
    assert guard.main(["--show", str(file)]) == 1
    assert "slow: 0.94 times as fast as XLA (wall)" in capsys.readouterr().out


def test_a_worker_that_dies_costs_one_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = """
import json, os, sys
for name in sys.argv[2:]:
    print("noise")
    print(json.dumps({"begun": name}), flush=True)
    if name == "dies":
        os.kill(os.getpid(), 9)
    print(json.dumps({"name": name}), flush=True)
"""
    stub = tmp_path / "stub.py"
    stub.write_text(code)
    plain = guard.subprocess.Popen
    monkeypatch.setattr(
        guard.subprocess,
        "Popen",
        lambda command, **rest: plain([sys.executable, str(stub), *command[4:]], **rest),
    )
    rows = list(guard.rows_of("first", ["a", "dies", "b"], str(tmp_path), math.inf))
    assert [json.dumps(r) for r in rows] == [
        '{"name": "a"}',
        '{"name": "dies", "failure": "the process ended with -9"}',
        '{"name": "b"}',
    ]
    assert list(guard.rows_of("first", ["a"], str(tmp_path), -math.inf)) == []


def test_runs_are_told_by_the_pauses_between_them() -> None:
    gap = guard_worker.GAP_NS + 1
    one = [(0.0, 5.0), (10.0, 5.0), (12.0, 1.0)]
    other = [(15.0 + gap, 7.0)]
    assert guard_worker.runs_of([*other, *one]) == [11.0, 7.0]
    assert guard_worker.runs_of([]) == []


def test_results_are_checked_against_float64_where_they_differ_by_more_than_rounding() -> None:
    import jax.numpy as jnp
    import numpy as np

    args = (np.linspace(-3.0, 3.0, 50, dtype=np.float32),)

    def rounding(x: Any) -> Any:
        return jnp.exp(x), jnp.round(x * 1.5).astype(jnp.int8)

    def off(x: Any) -> Any:
        return jnp.exp(x) * 1.001, rounding(x)[1]

    program = (rounding, args)
    found = guard_worker.checked(program, {"xla": rounding, "good": rounding, "bad": off}, args)
    assert found["good"] == {"difference": 0.0, "wrong": []}
    assert [one["output"] for one in found["bad"]["wrong"]] == [0]
    assert found["bad"]["difference"] == pytest.approx(1e-3, rel=0.01)

    def flipped(x: Any) -> Any:
        whole = rounding(x)[1]
        return rounding(x)[0], whole.at[3].add(1)

    # one more than XLA's none is wrong, as many again as XLA's own is not
    assert guard_worker.checked(program, {"xla": rounding, "one": flipped}, args)["one"]["wrong"]
    other = lambda x: (rounding(x)[0], rounding(x)[1].at[7].add(1))  # noqa: E731
    assert not guard_worker.checked(program, {"xla": other, "one": flipped}, args)["one"]["wrong"]
