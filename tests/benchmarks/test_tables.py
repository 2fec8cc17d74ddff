"""Results as tables: ratios, means, losses, goals; a recorded run as pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bars, paper, plots, readings, tables
from benchmarks.readings import best_flags, gpu, launches, of_ceiling, read, wall

#: Four workloads on an H200.
RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())


def side(kernels: int, gpu_us: float, copies: int = 0) -> dict[str, Any]:
    counts = {"kernels": kernels, "memcpys": copies, "memsets": 0, "copies": copies}
    return {**counts, "gpu_us": gpu_us, "kernel_us": gpu_us - copies}


def row(target: str, ours: dict[str, Any], ours_us: float = 50.0, **values: Any) -> dict[str, Any]:
    return {
        "target": target,
        "wall_us": {"xla": {"median": 100.0}, "fusionstitch": {"median": ours_us}},
        "profile": {"xla": side(8, 40.0), "fusionstitch": ours, "unfused": side(30, 170.0, 90)},
        "check": {"reference": "float64", "outputs": 2, "error": 1e-7, "error_xla": 2e-7}
        | {"wrong": []},
        **values,
    }


WIN = row("softmax.py:rows", side(2, 10.0))
LOSS = row("lorenz.py:scan", side(3, 100.0, copies=13), 104.0)
FAILED = {"target": "norms.py:forward", "failure": "signal 11 in step 'run'"}


def written(folder: Path, *runs: dict[str, Any]) -> list[str]:
    """Files with the recorded run, changed."""
    paths = [folder / f"{number}.json" for number in range(len(runs))]
    for path, changes in zip(paths, runs, strict=True):
        environment = RECORDED["environment"] | changes.get("environment", {})
        path.write_text(json.dumps(RECORDED | changes | {"environment": environment}))
    return list(map(str, paths))


def test_the_last_run_of_a_workload_counts(tmp_path: Path) -> None:
    again = row(WIN["target"], side(1, 9.0))
    found = read(written(tmp_path, {"rows": [WIN, LOSS]}, {"rows": [again], "command": "more"}))
    assert found["rows"] == [again, LOSS]
    assert found["command"] == f"{RECORDED['command']}` and `more"
    assert found["environment"] == RECORDED["environment"]


def test_runs_of_one_product_belong_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(readings, "output", lambda command: asked.append(command) or "")
    paths = written(tmp_path, {}, {"environment": {"commit": "another"}})
    commit = RECORDED["environment"]["commit"]
    assert read(paths)["environment"]["commit"] == f"{commit}, another"
    [command] = asked
    assert command == ["git", "diff", "--quiet", commit, "another", "--", *readings.PRODUCT]


@pytest.mark.parametrize("what", ["commit", "gpu", "driver"])
def test_runs_of_different_things_do_not(tmp_path: Path, what: str) -> None:
    # a commit that git does not know is another product
    paths = written(tmp_path, {}, {"environment": {what: "0" * 12}})
    with pytest.raises(ValueError, match=f"Runs of different {what} do not belong on one page"):
        read(paths)


def test_copies_count_for_both_compilers_and_not_op_by_op() -> None:
    assert launches(LOSS, "fusionstitch") == 16
    assert launches(LOSS, "unfused") == 30
    assert gpu(LOSS, "unfused") == 80.0
    line = "| lorenz.py:scan | 30 | 8 + 0 + 0 | 3 + 13 + 0 | 1.88 | 0.50 |"
    assert line in tables.kernels_table([LOSS])


def test_geometric_means() -> None:
    assert tables.kernels_table([WIN, LOSS, FAILED])[-1] == (
        "| geometric mean |  |  |  | 5.30 | 1.41 |"
    )
    assert tables.times_table([WIN, LOSS, FAILED])[-1] == (
        "| geometric mean |  |  |  |  | 2.53 | 1.26 | - |"
    )
    assert tables.wall_table([WIN, LOSS, FAILED])[-1] == "| geometric mean |  |  |  | 1.39 | 1.39 |"


def test_the_best_of_xlas_flags() -> None:
    times = {"xla": 100.0, "xla, short graphs": 80.0, "fusionstitch": 50.0}
    flagged = {**WIN, "wall_us": {name: {"median": us} for name, us in times.items()}}
    assert (wall(flagged, "xla"), wall(flagged, "xla best")) == (100.0, 80.0)
    assert best_flags(flagged) == "short graphs"
    assert best_flags(WIN) == ""
    line = "| softmax.py:rows | 100.0 | 80.0 (short graphs) | 50.0 | 2.00 | 1.60 |"
    assert line in tables.wall_table([flagged])


def test_the_share_of_a_copys_rate() -> None:
    assert of_ceiling({**WIN, "floor_bytes": 20_000_000}, "fusionstitch", 4e12) == pytest.approx(
        0.5
    )
    assert of_ceiling(WIN, "fusionstitch", 4e12) is None
    assert of_ceiling({**WIN, "floor_bytes": 20_000_000}, "fusionstitch", None) is None


def test_losses_say_what_was_lost() -> None:
    wrong = [{"output": 1, "elements": 1, "error": 9e-6, "xla": 1e-6, "allowed": 2e-6}]
    bad = row("adam.py:gpt2_small", side(2, 10.0), check={"outputs": 2, "wrong": wrong})
    part = {**WIN, "failed_parts": {"inductor": {"failure": "exit code 1 in step 'compile'"}}}
    assert tables.losses([WIN]) == ["None."]
    assert tables.losses([WIN, LOSS, FAILED, bad, part]) == [
        "- lorenz.py:scan: kernels 2.00 times XLA's; **GPU time 2.50 times XLA's**; "
        "wall time 1.04 times XLA's.",
        "- norms.py:forward: not measured: signal 11 in step 'run'.",
        "- adam.py:gpt2_small: 1 of 2 outputs over the limit, the first, of 1 elements, with "
        "error 9.0e-06 where XLA's is 1.0e-06 and 2.0e-06 is allowed.",
        "- softmax.py:rows: inductor not measured: exit code 1 in step 'compile'.",
    ]


def test_what_was_not_measured_is_a_dash_and_what_was_modelled_is_marked() -> None:
    assert tables.kernels_table([FAILED])[2] == "| norms.py:forward | - | - | - | - | - |"
    modelled = row("lorenz.py:scan", side(3, 10.0), modelled={"unfused": {"kernels": 14000}})
    del modelled["profile"]["unfused"]
    assert tables.kernels_table([modelled])[2].startswith("| lorenz.py:scan | ~14000 | 8 + 0 ")


def test_tuned_against_untuned() -> None:
    found = {"patterns": 2, "schedules": 3, "complete": False, "rank_correlation": 0.5}
    tuned = row("softmax.py:rows", side(2, 10.0), tuning={**found, "points": [[1, 2], [3, 4]]})
    tuned["profile"]["fusionstitch tuned"] = side(2, 8.0)
    assert tables.tuning_table([tuned, WIN])[2:] == [
        "| softmax.py:rows | 2 | 3 of more | 10.0 | 8.0 | 1.25 | 0.50 |",
        "| all |  | 2 |  |  | 1.25 | 1.00 |",
    ]
    assert tables.tuning_table([WIN]) == ["Not tuned."]


def test_goals_name_what_misses_them() -> None:
    slow = row("norms.py:backward", side(2, 50.0), floor_bytes=100_000_000)
    quick = row("softmax.py:rows", side(2, 30.0), floor_bytes=100_000_000)
    results = {"rows": [slow, quick], "method": {"copy_bytes_per_s": 4e12}}
    lines = bars.table(results)
    rate = "share of a copy's rate"
    assert f"| {rate} | 2 workloads | norms.py:backward 0.50 | >= 0.7 | 0.50 |" in lines
    assert f"| {rate}, geometric mean | 2 workloads | the mean | >= 0.8 | 0.65 |" in lines
    slower = "GPU time, XLA / fs"
    assert f"| {slower} | 2 workloads | norms.py:backward 0.80 | >= 0.97 | 0.80 |" in lines


def test_pages_of_a_recorded_run(golden: Any) -> None:
    golden(tables.markdown(RECORDED) + "\n" + paper.markdown(RECORDED))


def test_bars_and_points_of_a_recorded_run() -> None:
    found = dict(plots.speedups(RECORDED["rows"]))
    assert list(found) == ["logistic", "softmax rows", "norms backward", "norms batch backward"]
    assert found["norms backward"]["GPU time"] == pytest.approx(130.54 / 124.76)
    points = plots.rooflines(RECORDED["rows"])
    assert len(points) == 4 * 2 + 3
    copy = RECORDED["method"]["copy_bytes_per_s"]
    assert all(rate < 1.1 * intensity * copy for *_, intensity, rate in points)


def test_pictures_are_drawn_again_to_the_byte(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, again = (plots.draw(RECORDED, tmp_path / name) for name in ("one", "two"))
    assert [path.name for path in first] == ["speedup.svg", "roofline.svg", "paper.svg"]
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_the_page_keeps_what_is_above_its_marker() -> None:
    page = f"# Title\n\n{tables.MARKER}\n\nold\n"
    assert tables.put("new\n", page) == f"# Title\n\n{tables.MARKER}\n\nnew\n"
    with pytest.raises(ValueError, match="The page has no line"):
        tables.put("new", "# Title")


def test_tables_of_an_earlier_commit_follow(tmp_path: Path) -> None:
    newest, before = written(tmp_path, {"rows": [WIN]}, {"rows": [LOSS]})
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{tables.MARKER}\n\nold\n")
    tables.main([newest, tables.BEFORE, before, str(page)])
    first, second = page.read_text().split("\n## Results before: ")
    assert tables.markdown(read([newest])) in f"{first}\n"
    assert second.startswith(RECORDED["environment"]["date"][:10])
    assert second.endswith(tables.markdown(read([before])))
    assert "lorenz" not in first
    tables.main([newest, str(page)])
    assert page.read_text() == f"{first}"


def test_floors_where_rows_have_them() -> None:
    win, loss = {**WIN, "floor_us": 8.0}, {**LOSS, "floor_us": 2.0}
    results = {**RECORDED, "rows": [win, loss, FAILED]}
    page = tables.markdown(results)
    assert (
        "GPU time of 2 programs: fusionstitch takes 7.91 times the floor, XLA 10.00 times; XLA / "
        "fusionstitch is 1.26 (geometric means)." in page
    )
    assert "| softmax.py:rows | 8.0 | 5.00 | 1.25 | 4.00 |" in page
    assert "| lorenz.py:scan | 2.0 | 20.00 | 50.00 | 0.40 |" in page
    # an old run says nothing of floors
    assert "floor" not in tables.markdown({**RECORDED, "rows": [WIN, LOSS, FAILED]})
