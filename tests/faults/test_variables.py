"""Each environment variable rejects invalid values, before anything is compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fusionstitch as fs
from fusionstitch import env
from fusionstitch.commands import cli
from fusionstitch.errors import OptionError

#: variable -> values that are not allowed; FILE and FOLDER stand for paths that exist.
WRONG = {
    "FUSIONSTITCH_BACKEND": ["gpu", "cuda,cpu", "0", " ", "émulé"],
    "FUSIONSTITCH_SCORER": ["fast", "model;paper", "-1"],
    "FUSIONSTITCH_FALLBACK": ["none", "raise", "xla error"],
    "FUSIONSTITCH_NUMERICS": ["exact", "defaults", "\t"],
    "FUSIONSTITCH_TRIAL": ["on", "copy", "\t"],
    "FUSIONSTITCH_LOG": ["verbose", "10", "DEBUGGING"],
    "FUSIONSTITCH_PROGRESS": ["yes", "2", "-1", "None"],
    "FUSIONSTITCH_CHECK": ["yes", "all"],
    "FUSIONSTITCH_DELAYS": ["yes", "2"],
    "FUSIONSTITCH_CACHE_DIR": ["FILE", "~nobody-of-that-name/x", "/" + "x" * 5000],
    "FUSIONSTITCH_CACHE_LIMIT": ["much", "-1", "1.5GB", "2 apples", "GB", "9" * 20],
    "FUSIONSTITCH_PROFILE": ["FOLDER", "missing.json", "~nobody-of-that-name", "/" + "x" * 5000],
    "FUSIONSTITCH_OVERRIDE_DIR": ["FILE", "missing", "~nobody-of-that-name"],
    "FUSIONSTITCH_DUMP_DIR": ["FILE", "~nobody-of-that-name/x"],
    "FUSIONSTITCH_EXAMPLE_SCALE": ["tiny", "1", "fullest"],
}
CASES = [(name, value) for name, values in WRONG.items() for value in values]


@pytest.fixture
def value(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "file").write_text("")
    return {"FILE": str(tmp_path / "file"), "FOLDER": str(tmp_path)}.get(
        request.param, request.param
    )


def test_every_variable_is_in_the_table() -> None:
    assert sorted(WRONG) == sorted(variable.name for variable in env.VARIABLES)


@pytest.mark.parametrize(("name", "value"), CASES, indirect=["value"])
def test_a_wrong_value_is_named_with_what_is_allowed(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [variable] = [v for v in env.VARIABLES if v.name == name]
    monkeypatch.setenv(name, value)
    with pytest.raises(OptionError) as caught:
        variable.get()
    assert f"{name}={value!r} is not allowed" in str(caught.value)
    assert variable.allowed in str(caught.value)
    with pytest.raises(OptionError, match=name):
        fs.jit(lambda x: x + 1, options=fs.Options(**explicit()))(1.0)


def explicit() -> dict[str, str]:
    """Options that do not come from the environment: the others are looked at all the same."""
    return {"backend": "auto", "scorer": "model", "fallback": "xla", "numerics": "default"}


@pytest.mark.parametrize(("name", "value"), CASES[::3], indirect=["value"])
def test_an_empty_value_is_unset_and_doctor_lists_a_wrong_one(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [variable] = [v for v in env.VARIABLES if v.name == name]
    monkeypatch.setenv(name, "")
    assert variable.get() == variable.default
    monkeypatch.setenv(name, value)
    assert cli.main(["doctor"]) == 2
    assert "is not allowed: set it to" in capsys.readouterr().out


def test_the_level_of_the_log_is_checked_at_the_first_call_and_not_at_import() -> None:
    script = """
import fusionstitch as fs
print("imported")
fs.jit(lambda x: x + 1)(1.0)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"FUSIONSTITCH_LOG": "loud", "PYTHONPATH": ":".join(sys.path), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout == "imported\n"
    assert "FUSIONSTITCH_LOG='loud' is not allowed: set it to off, warning, info or debug" in (
        done.stderr
    )


def test_a_name_of_nobody_s_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_BAKCEND", "emulate")
    assert env.unknown() == ["FUSIONSTITCH_BAKCEND"]
    assert cli.main(["doctor"]) == 0
    assert "is set but unknown: misspelt?" in capsys.readouterr().out
