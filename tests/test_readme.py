"""README, as a new user follows it: its programs in an empty folder, its commands in a checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


PROGRAMS = blocks("python")
LINES = [line.partition("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
COMMANDS = [line for line in LINES if line.startswith("fusionstitch ")]
#: Those that build an environment: what they name is looked up, and nothing is run.
OTHERS = [line for line in LINES if line and line not in COMMANDS]


def run(arguments: list[str], folder: Path, **environment: str) -> str:
    """What a process of a new user prints; it may use no variable of ours that is not given."""
    kept = {name: value for name, value in os.environ.items() if "FUSIONSTITCH" not in name}
    found = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept |= {"PYTHONPATH": found, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    kept |= {"FUSIONSTITCH_CACHE_DIR": os.environ["FUSIONSTITCH_CACHE_DIR"], **environment}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=kept,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def program(number: int, folder: Path, **environment: str) -> str:
    (folder / "step.py").write_text(PROGRAMS[number])
    return run(["step.py"], folder, **environment)


def test_there_is_something_to_run() -> None:
    assert PROGRAMS
    assert {line.split()[1] for line in COMMANDS} == {"report", "explain", "diff", "emit", "doctor"}


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_without_a_gpu(number: int, tmp_path: Path) -> None:
    text = program(number, tmp_path, JAX_PLATFORMS="cpu")
    assert "loss 3." in text
    assert "Nothing was stitched" in text
    assert "FUSIONSTITCH_BACKEND=emulate" in text


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_on_the_emulator(number: int, tmp_path: Path, host_compiler: str) -> None:
    text = program(number, tmp_path, JAX_PLATFORMS="cpu", FUSIONSTITCH_BACKEND="emulate")
    assert "loss 3." in text
    assert "1 pattern in 1 kernel" in text
    assert 'extern "C" __global__' in text


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_on_a_gpu(number: int, tmp_path: Path) -> None:
    assert "loss 3." in program(number, tmp_path)


def command(line: str, folder: Path, **environment: str) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")
    text = run(["-m", *line.split()], folder, **environment)
    assert text.strip()
    if " emit " in line:
        assert [path for path in text.split() if (folder / path).is_file()] == text.split()


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_without_a_gpu(line: str, tmp_path: Path, host_compiler: str) -> None:
    command(line, tmp_path, JAX_PLATFORMS="cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("line", COMMANDS)
def test_commands_on_a_gpu(line: str, tmp_path: Path) -> None:
    command(line, tmp_path)


def test_what_is_installed_and_made_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["fusionstitch"] == "fusionstitch.commands.cli:main"
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in OTHERS:
        what, *rest = line.split()
        if what == "make":
            assert set(rest) <= set(targets)
        else:
            assert line.startswith("pip install ")
            extra = re.search(r"\[(\w+)\]", line)
            assert extra is None or extra[1] in project["optional-dependencies"]


@pytest.mark.parametrize("option", re.findall(r"`report (--\w+) ", README))
def test_options_that_the_text_names_are_taken(option: str, capsys: pytest.CaptureFixture) -> None:
    from fusionstitch.commands import cli

    with pytest.raises(SystemExit) as ended:
        cli.main(["report", "--help"])
    assert ended.value.code == 0
    assert option in capsys.readouterr().out
