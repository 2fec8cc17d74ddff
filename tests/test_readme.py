"""README, as a new user follows it: its programs in an empty folder, its commands in a checkout."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.pages import ROOT, blocks, commands, run

README = (ROOT / "README.md").read_text("utf-8")
PROGRAMS = [text for _, text in blocks(README, "python")]
LINES = [line for _, block in blocks(README, "sh") for line in commands(block)]
COMMANDS = [line for line in LINES if line.startswith("fusionstitch ")]
#: Those that build an environment: what they name is looked up, and nothing is run.
OTHERS = [line for line in LINES if line not in COMMANDS]


def output(arguments: list[str], folder: Path, **environment: str) -> str:
    done = run(arguments, folder, **environment)
    assert done.code == 0, done.err
    return done.out


def program(number: int, folder: Path, **environment: str) -> str:
    (folder / "step.py").write_text(PROGRAMS[number])
    return output(["step.py"], folder, **environment)


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
    assert "2 patterns in 2 kernels" in text
    assert 'extern "C" __global__' in text


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_on_a_gpu(number: int, tmp_path: Path) -> None:
    assert "loss 3." in program(number, tmp_path)


def command(line: str, folder: Path, **environment: str) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")
    text = output(["-m", *line.split()], folder, **environment)
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
