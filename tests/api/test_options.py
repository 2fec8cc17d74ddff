"""Options and environment variables: which values are allowed, and the messages for others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fusionstitch as fs
from fusionstitch import env
from fusionstitch.errors import OptionError


def test_defaults() -> None:
    options = fs.Options()
    assert (options.backend, options.scorer, options.fallback) == ("auto", "guarded", "xla")
    assert options.exploratory
    assert options.packing
    assert options.sharing


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "backend",
            "gpu",
            r"Options.backend is 'gpu'; choose one of 'auto', 'cuda', 'emulate', 'xla'\.",
        ),
        ("scorer", None, "choose one of 'guarded', 'model', 'paper', 'measured'"),
        ("fallback", "raise", "choose one of 'xla', 'error'"),
        ("numerics", "exact", "choose one of 'default', 'strict', 'fast'"),
        ("sharing", 1, "Options.sharing is 1; it takes True or False"),
        ("max_patterns", 0, "Options.max_patterns is 0; it takes a whole number above 0"),
        ("max_pattern_ops", True, "whole number"),
        ("max_solver_nodes", 2.5, "whole number"),
        (
            "device",
            Path("mine.json"),
            r"Options.device is .*Path\(.*\); it takes a prof",
        ),
        ("device", "h900", "No device profile is named 'h900'. Choose one of: .*h200"),
    ],
)
def test_refused_values(name: str, value: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fs.Options(**{name: value})  # type: ignore[arg-type]


def test_replace_names_what_is_unknown() -> None:
    assert fs.Options().replace(backend="emulate").backend == "emulate"
    with pytest.raises(OptionError, match="Options has no bakend"):
        fs.Options().replace(bakend="emulate")


def test_token_is_the_content() -> None:
    assert fs.Options().token == fs.Options(scorer="guarded").token
    tokens = {
        fs.Options(**change).token  # type: ignore[arg-type]
        for change in ({}, {"sharing": False}, {"numerics": "strict"}, {"device": "a100"})
    }
    assert len(tokens) == 4


@pytest.mark.parametrize(
    ("variable", "field", "value"),
    [
        ("BACKEND", "backend", "emulate"),
        ("SCORER", "scorer", "paper"),
        ("FALLBACK", "fallback", "error"),
        ("NUMERICS", "numerics", "strict"),
    ],
)
def test_environment_gives_defaults(
    monkeypatch: pytest.MonkeyPatch, variable: str, field: str, value: str
) -> None:
    monkeypatch.setenv(f"FUSIONSTITCH_{variable}", value.upper())
    assert getattr(fs.Options(), field) == value
    monkeypatch.setenv(f"FUSIONSTITCH_{variable}", "")
    assert getattr(fs.Options(), field) != value
    monkeypatch.setenv(f"FUSIONSTITCH_{variable}", "bogus")
    with pytest.raises(OptionError, match=f"FUSIONSTITCH_{variable}='bogus' is not allowed: set"):
        fs.Options()


def test_flags_and_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FUSIONSTITCH_PROGRESS", raising=False)
    assert env.PROGRESS.get() is None
    monkeypatch.setenv("FUSIONSTITCH_PROGRESS", "1")
    assert env.PROGRESS.get() is True
    monkeypatch.setenv("FUSIONSTITCH_PROGRESS", "maybe")
    with pytest.raises(OptionError, match="set it to 1 or 0, or unset it"):
        env.PROGRESS.get()
    monkeypatch.setenv("FUSIONSTITCH_DUMP_DIR", str(tmp_path))
    assert env.DUMP_DIR.get() == tmp_path


def test_misspelt_variables_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_BAKEND", "cuda")
    assert env.unknown() == ["FUSIONSTITCH_BAKEND"]


def test_import_is_light() -> None:
    """No GPU, compiler or solver library is needed, or paid for, by the import."""
    heavy = ("cupy", "pulp", "networkx", "jax", "numpy")
    code = f"import sys, fusionstitch; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
