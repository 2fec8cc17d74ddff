"""`fusionstitch gaps`: what programs lose above their floors, and why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.commands import cli
from fusionstitch.reports.floors import Part, floors, parts
from fusionstitch.reports.report import Report
from tests.conftest import Golden
from tests.kept import kept_sort

PROGRAM = """
import jax, jax.numpy as jnp

def rows(x):
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)

def around_a_sort(x):
    return rows(jax.lax.sort((y := rows(x), y), dimension=0, num_keys=2)[0])

def one():
    return rows, (jax.ShapeDtypeStruct((2048, 1024), jnp.float32),)

def sorted_():
    return around_a_sort, (jax.ShapeDtypeStruct((2048, 1024), jnp.float32),)

def left():
    def step(i, x):
        return jax.lax.sort((y := x * 1.5, y), dimension=0, num_keys=2)[0]
    return (lambda x: jax.lax.fori_loop(0, 10, step, x)), (
        jax.ShapeDtypeStruct((2048, 1024), jnp.float32),
    )
"""
#: How a kernel's name ends.
HASH = re.compile(r"(fs_\w+)_[0-9a-f]{8}\b")
DEVICE = ("--device", "h200", "--scorer", "model")


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.main(["gaps", *arguments, *DEVICE, "--json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def test_the_text(
    program: str, capsys: pytest.CaptureFixture[str], golden: Golden, monkeypatch: Any
) -> None:
    monkeypatch.chdir(Path(program).parent)
    targets = [f"program.py:{name}" for name in ("one", "sorted_", "left")]
    assert cli.main(["gaps", *targets, *DEVICE]) == 0
    golden(HASH.sub(r"\1_HASH", capsys.readouterr().out))


def test_the_largest_come_first_and_a_limit_ends_them(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    every = found(capsys, f"{program}:one", f"{program}:sorted_")
    lost = [one["lost_us"]["fusionstitch"] for one in every["gaps"]]
    assert len(lost) == 3
    assert lost == sorted(lost, reverse=True)
    assert [one["workload"] for one in every["programs"]] == ["program:one", "program:sorted_"]
    first = found(capsys, f"{program}:one", f"{program}:sorted_", "--limit", "1")
    assert first["gaps"] == every["gaps"][:1]
    assert first["programs"] == every["programs"]


def test_a_gap_has_its_op_its_line_and_its_reason(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [gap] = found(capsys, f"{program}:left")["gaps"]
    assert gap["opcode"] == "while"
    assert gap["source"] == [f"{program}:20"]
    assert "sort" in gap["reason"]
    assert gap["kernels"] == []
    assert gap["lost_us"]["xla"] > 0
    [gap] = found(capsys, f"{program}:one")["gaps"]
    assert gap["reason"] == ""
    assert len(gap["kernels"]) == 1
    size = 2048 * 1024 * 4
    assert gap["floor_us"] == pytest.approx(1 + 2 * size / 4.25e12 * 1e6, rel=0.01)
    assert gap["bound_by"] == "DRAM"
    assert gap["lost_us"]["fusionstitch"] == pytest.approx(
        gap["time_us"]["fusionstitch"] - gap["floor_us"]
    )


def test_a_target_that_is_not_there_costs_only_itself(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["gaps", f"{program}:nothing", f"{program}:one", *DEVICE])
    heard = capsys.readouterr()
    assert code == 2
    assert "1 program on h200" in heard.out
    assert heard.err.startswith(f"fusionstitch: {program}:nothing: ")


def report_of(fun: Any, *shape: int) -> Report:
    given = jax.ShapeDtypeStruct(shape, jnp.float32)
    return fs.report(fun, given, device="h200", options=fs.Options(scorer="model"))


def parts_of(report: Report) -> list[Part]:
    assert report.trial is not None
    return parts(report.trial.stitched)


def test_parts_hold_all_that_the_model_has_times_for() -> None:
    def program(x: jax.Array) -> jax.Array:
        y = kept_sort(jax.nn.softmax(x), axis=0)
        return jax.nn.softmax(y) * y.sum(0)

    report = report_of(program, 2048, 1024)
    found = parts_of(report)
    assert sum(part.xla_us for part in found) == pytest.approx(report.modelled_xla_us)
    assert sum(part.ours_us for part in found) == pytest.approx(report.modelled_us)
    assert all(part.floor.us <= min(part.xla_us, part.ours_us) for part in found)


def test_what_the_model_has_no_time_for_is_not_held_against_it() -> None:
    report = report_of(lambda x: jax.nn.softmax(kept_sort(x, axis=0)), 2048, 1024)
    assert report.trial is not None
    of = floors(report.trial.stitched, report.trial.module)
    assert of.priced.us < of.whole.us * 1.01
    assert report.over_floor is not None
    assert report.over_floor["xla"] == pytest.approx(report.modelled_xla_us / of.priced.us)
    assert not report.over_floor["measured"]


def test_the_report_and_explain_say_the_floor() -> None:
    report = report_of(jax.nn.softmax, 8192, 4096)
    assert report.floor_us is not None
    assert report.floor_us["bound_by"] == "DRAM"
    assert f"floor               {report.floor_us['total']:.1f} us, bound by DRAM (" in str(report)
    assert re.search(r"^modelled over floor +1\.\d\d times +1\.\d\d times$", str(report), re.M)
    explained = str(report.explain())
    assert f"floor {report.floor_us['total']:.1f} us, bound by DRAM: modelled at 1." in explained


def test_an_empty_program_has_no_floor() -> None:
    report = report_of(lambda x: x, 8)
    assert report.floor_us is not None
    assert report.floor_us["total"] == 0
    assert report.over_floor == {"xla": None, "fusionstitch": None, "measured": False}
    assert "floor" not in str(report)
