"""An interrupt, a wrong variable, a wrong name: one line on stderr and exit code 2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fusionstitch.commands import cli

#: Every command with what it needs.
COMMANDS = {
    "report": ["report", "TARGET"],
    "explain": ["explain", "TARGET"],
    "gaps": ["gaps", "TARGET"],
    "diff": ["diff", "TARGET", "TARGET"],
    "emit": ["emit", "TARGET", "-o", "FOLDER"],
    "tune": ["tune", "TARGET"],
    "calibrate": ["calibrate"],
    "doctor": ["doctor"],
    "cache": ["cache", "status"],
}
PROGRAM = """
import os, signal
import jax, jax.numpy as jnp

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs behind

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)

def fun(x):
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)

def target():
    return fun, (jnp.ones((16, 24)),)

def before():
    interrupt()
    return target()

class Loud:
    def __del__(self):
        interrupt()

def lost():
    Loud()  # Python mentions what a destructor raises, and goes on
    import time
    time.sleep(600)
    return target()

def traced():
    return lambda x: interrupt() or fun(x), (jnp.ones((16, 24)),)

def stitched():
    import threading
    from fusionstitch.compiler import planning
    plain, done = planning.draft, threading.Event()

    def draft(*args):
        assert threading.current_thread() is not threading.main_thread()
        interrupt()
        done.wait(1)
        return plain(*args)

    planning.draft = draft
    return target()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def filled(command: str, program: Path, name: str = "target") -> list[str]:
    places = {"TARGET": f"{program}:{name}", "FOLDER": str(program.parent / "out")}
    return [places.get(word, word) for word in COMMANDS[command]]


def process(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fusionstitch", *arguments],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def assert_one_line(text: str, message: str) -> None:
    assert text.endswith("\n")
    assert text.count("\n") == 1, text
    assert re.match(message, text), text


def test_every_command_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert re.findall(r"^    (\w+)(?: |$)", text, re.MULTILINE) == list(COMMANDS)


def test_without_a_command_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert capsys.readouterr().out == cli.command_line().format_help()


@pytest.mark.parametrize("command", COMMANDS)
def test_an_interrupt(
    command: str,
    program: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def late(parsed: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, f"_{command}", late)
    assert cli.main(filled(command, program)) == 2
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "fusionstitch: interrupted\n")


@pytest.mark.parametrize("name", ["before", "lost", "traced", "stitched"])
def test_a_signal_at_each_stage(name: str, program: Path, host_compiler: str) -> None:
    arguments = [*filled("report", program, name), "--backend", "emulate", "--scorer", "paper"]
    done = process(arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "fusionstitch: interrupted\n")


@pytest.mark.parametrize("command", ["report", "explain", "emit", "tune"])
def test_a_signal_while_jax_is_imported(command: str, program: Path) -> None:
    code = f"""
import os, signal, sys
from fusionstitch.commands import cli

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy.lib._npyio_impl":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
sys.exit(cli.main({filled(command, program)}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "fusionstitch: interrupted\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_level_of_the_log(command: str, program: Path) -> None:
    done = process(filled(command, program), FUSIONSTITCH_LOG="loud")
    why = "FUSIONSTITCH_LOG='loud' is not allowed: set it to"
    assert done.returncode == 2
    if command == "doctor":  # which lists it with the rest
        assert (why in done.stdout, done.stderr) == (True, "")
    else:
        assert_one_line(done.stderr, f"fusionstitch: {why}")
        assert done.stdout == ""


@pytest.mark.parametrize("command", ["report", "explain", "emit", "tune", "calibrate"])
@pytest.mark.parametrize("device", ["h900", "no such", "missing.json"])
def test_a_wrong_name_of_a_device(
    command: str, device: str, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: object
    try:
        ended = cli.main([*filled(command, program), "--device", device])
    except SystemExit as refused:  # calibrate takes a number, which the parser checks
        ended = refused.code
    assert ended == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert_one_line(found.err, f"fusionstitch.*{re.escape(device)}")


@pytest.mark.parametrize(
    "arguments", [["report"], ["unknown"], ["report", "x:y", "--backend", "gpu"]]
)
def test_what_the_parser_refuses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(arguments)
    assert refused.value.code == 2
    assert_one_line(capsys.readouterr().err, "fusionstitch.*--help lists what it takes")
