"""Everything in the texts of `report` and `explain` is also in the JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

import fusionstitch as fs
from fusionstitch.commands import cli
from fusionstitch.reports import text as report_text
from fusionstitch.reports.figures import Figures
from tests.cli.test_cli import PROGRAM

#: Fields of a report, and how the text writes them.
SHOWN = (
    *("modelled_us", "modelled_xla_us", "max_rel_error", "max_rel_error_xla", "ops", "device"),
    *("workload", "notes"),
)


@pytest.fixture
def target(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return f"{path}:train_step"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main([*arguments, "--backend", "emulate", "--scorer", "paper"]) == 0
    return capsys.readouterr().out


def test_the_report_s(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], host_compiler: str
) -> None:
    path = tmp_path / "report.json"
    text = printed(capsys, "report", target, "--json", str(path))
    data = json.loads(path.read_text())
    assert set(SHOWN) <= set(data)
    assert f"{data['workload']} on {data['device']}" in text
    assert f", {data['ops']} ops" in text
    row = re.search(r"^modelled time +(\S+) us +(\S+) us$", text, re.MULTILINE)
    assert row is not None
    assert row.groups() == (f"{data['modelled_xla_us']:.1f}", f"{data['modelled_us']:.1f}")
    assert f"error               {data['max_rel_error']:.1e} (" in text
    assert f"XLA alone {data['max_rel_error_xla']:.1e})" in text
    assert data["notes"]
    assert [f"note: {note}" for note in data["notes"]] == [
        line for line in text.splitlines() if line.startswith("note: ")
    ]
    for one in data["patterns"]:
        row = re.search(rf"^{one['id']} .*$", text, re.MULTILINE)
        assert row is not None
        assert row[0].split()[1:4] == [one["kind"], one["scope"], str(len(one["ops"]))]
        assert row[0].endswith(f"{one['wins_us']:.1f} us")


def test_the_plan_s(target: str, capsys: pytest.CaptureFixture[str], host_compiler: str) -> None:
    data = json.loads(printed(capsys, "report", target, "--json", "-"))
    text = printed(capsys, "explain", target, "--rejected")
    assert data["patterns"]
    for one in data["patterns"]:
        assert f"pattern {one['id']}: {one['kernel']} ({one['kind']}, {one['scope']} scope" in text
        assert (
            f"wins {one['wins_us']:.2f} us: modelled {one['modelled_us']:.2f} us against "
            f"{one['xla_us']:.2f} us of XLA" in text
        )
        assert one["source"]
        assert f"from: {', '.join(one['source'][:4])}" in text
        assert all(line in text for line in one["template"].splitlines())
    assert data["rejected"]
    for one in data["rejected"]:
        reason = re.sub(r" \([^()]*\)$", "", one["reason"])  # facts follow, spelt otherwise
        assert f": {reason}" in text
        assert not one["source"] or f" at {one['source'][0]}" in text


def test_every_field_of_a_report_is_in_its_data() -> None:
    import jax.numpy as jnp

    report = fs.report(lambda x: x.sum(), jnp.ones(9), options=fs.Options(backend="emulate"))
    assert set(report.to_dict()) == {field.name for field in dataclasses.fields(Figures)}
    more: Any = {"xla": 1 << 20, "fusionstitch": 3 << 20}
    larger = dataclasses.replace(report, memory_bytes=more)
    assert larger.to_dict()["notes"] == list(report_text.all_notes(larger))
    assert "more device memory" in larger.to_dict()["notes"][-1]
    json.dumps(larger.to_dict(), allow_nan=False)


PRINTS = """
import os, jax, jax.numpy as jnp
print("loads")
os.system("echo another process")

def f(x, n):
    print("traces")
    return x * jnp.tanh(x).sum() * n

def target():
    print("makes")
    return f, (jnp.ones((16, 24)), 2.0)
"""


@pytest.mark.parametrize(
    "command",
    [
        ["report", "--json", "-"],
        ["report", "--trace", "-"],
        ["explain", "--json"],
        ["diff", "TARGET", "--json"],
    ],
)
def test_nothing_else_is_on_stdout(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], host_compiler: str
) -> None:
    path = tmp_path / "program.py"
    path.write_text(PRINTS)
    target = f"{path}:target"
    arguments = [command[0], target, *command[1:], "--backend", "emulate"]
    assert cli.main([target if one == "TARGET" else one for one in arguments]) == 0
    found = capfd.readouterr()
    assert json.loads(found.out)
    assert "loads" in found.err
    assert "another process" in found.err
    assert "makes" in found.err
    assert "traces" in found.err


def test_a_page_on_stdout(
    target: str, capfd: pytest.CaptureFixture[str], host_compiler: str
) -> None:
    page = printed(capfd, "report", target, "--html", "-")
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert not Path("-").exists()
