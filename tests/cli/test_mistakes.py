"""Mistakes that users make: each gets one message that says what to do, exit code 2, no traceback.

In a process of its own only where the mistake is in what is installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.commands import cli
from fusionstitch.errors import FusionStitchError

PROGRAM = """
import jax, jax.numpy as jnp

def table(x):
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)

def target():
    return table, (jnp.linspace(-1, 1, 16 * 24).reshape(16, 24),)

def new():
    # no cache has a kernel of it
    return table, (jnp.ones((13, 29)),)

def three():
    return table, jnp.ones(3), jnp.ones(3)

def words():
    return table, ("these",)

def shapes():
    return (lambda x, y: x @ y), (jnp.ones((2, 3)), jnp.ones((2, 3)))

def no_function():
    return [table], (jnp.ones(3),)

def ends():
    raise SystemExit

def imports():
    import no_such_package

def needs(size):
    return table, (jnp.ones(size),)

table_of_numbers = [1, 2]
"""
EMULATE = ["--backend", "emulate"]

#: Command (P is the program's file, D a folder), what the environment holds, what is said.
MISTAKES: dict[str, tuple[list[str], dict[str, str], str]] = {
    "a wrong command": (["repport", "P:target"], {}, r"invalid choice: 'repport' .*--help lists"),
    "no target": (["report"], {}, r"required: TARGET\. .*--help lists"),
    "an unknown option": (["report", "P:target", "--bakend", "cuda"], {}, r"arguments: --bakend"),
    "a wrong value of an option": (
        *(["report", "P:target", "--numerics", "exact"], {}),
        r"invalid choice: 'exact' \(choose from .*strict",
    ),
    "a number that makes no sense": (
        *(["tune", "P:target", "--budget", "-5"], {}),
        r"-5 is not a positive number of seconds",
    ),
    "a wrong device": (["explain", "P:target", "--device", "h900"], {}, r"Choose one of: .*h200"),
    "a profile that is none": (
        *(["explain", "P:target", "--device", "D/empty.json"], {}),
        r"holds no device profile .* Write one with `fusionstitch calibrate",
    ),
    "no file": (["report", "absent.py:target"], {}, r"There is no file absent.py\. A target is"),
    "a file without a name": (["report", "P"], {}, r"names no function\. A target is file.py:name"),
    "a wrong name": (
        *(["report", "P:targt"], {}),
        r"has no such name\. Close to it: target\. A target is",
    ),
    "a name that is no function": (["report", "P:table_of_numbers"], {}, r"is a list, not a func"),
    "a maker with arguments": (["report", "P:needs"], {}, r"needs arguments \(size\)\. A target"),
    "a maker that returns something else": (
        *(["report", "P:three"], {}),
        r"returned 3 things and not two\. Keyword arguments .*functools\.partial",
    ),
    "a maker without a function": (["report", "P:no_function"], {}, r"a list for the function"),
    "a maker that ends": (["report", "P:ends"], {}, r"P?:ends raised SystemExit at .*:\d+$"),
    "a page into no folder": (
        *(["report", "P:target", "--html", "D/none/page.html"], {}),
        r"page\.html cannot be written: there is no folder",
    ),
    "a trace into a folder": (["report", "P:target", "--trace", "D"], {}, r"it is a folder"),
    "two answers on stdout": (
        *(["report", "P:target", "--html", "-", "--json", "-"], {}),
        r"Only one of --json, --html and --trace can go to stdout",
    ),
    "results on stdout": (["tune", "P:target", "--export", "-"], {}, r"a file, not to stdout"),
    "an empty question": (["explain", "P:target", "--op", ""], {}, r"empty question \(op\)"),
    "arguments that are no arrays": (
        ["report", "P:words"],
        {},
        r"raised TypeError: .*type <class ",
    ),
    "shapes that do not fit": (
        *(["report", "P:shapes"], {}),
        r"raised TypeError at .*program\.py:\d+: dot_general requires",
    ),
    "a package that is not there": (["report", "P:imports"], {}, r"No module named 'no_such_pack"),
    "a module that is not there": (["report", "no.such:f"], {}, r"There is no module no\.such\. A"),
    "a file that is no Python": (["report", "D/broken.py:f"], {}, r"raised SyntaxError: .*line 1"),
    "a file that is no module": (
        ["report", "D/garbage.hlo"],
        {},
        r"fusionstitch: .*garbage|Stable",
    ),
    "an empty module": (["report", "D/empty.mlir"], {}, r"There is nothing in it\. "),
    "no GPU": (["report", "P:target", "--backend", "cuda"], {}, r"no GPU to .* \(--device h200\)"),
    "tuning without a GPU": (
        ["tune", "P:target"],
        {},
        r"needs an NVIDIA GPU\. .* Run it on a mach",
    ),
    "nothing to tune": (["tune"], {}, r"Name a target to tune, or use --import or --export"),
    "no compiler": (
        *(["report", "P:new", *EMULATE, "--fallback", "error"], {"CXX": "/no/such/g++"}),
        r"'/no/such/g\+\+' named by .* CXX was not found\. Correct CXX, or unset it",
    ),
    "a wrong variable": (
        *(["explain", "P:target"], {"FUSIONSTITCH_SCORER": "best"}),
        r"FUSIONSTITCH_SCORER='best' is not allowed: set it to guarded, model,",
    ),
    "a cache that is a file": (
        *(["report", "P:target", *EMULATE], {"FUSIONSTITCH_CACHE_DIR": "P"}),
        r"FUSIONSTITCH_CACHE_DIR='.*' is not allowed: set it to a folder, or unset it",
    ),
    "a limit of the cache that is none": (
        *(["cache", "status"], {"FUSIONSTITCH_CACHE_LIMIT": "lots"}),
        r"FUSIONSTITCH_CACHE_LIMIT='lots' is not allowed: set it to a size such as 500MB",
    ),
    "a folder of kernels that is not there": (
        *(["explain", "P:target", *EMULATE], {"FUSIONSTITCH_OVERRIDE_DIR": "D/none"}),
        r"FUSIONSTITCH_OVERRIDE_DIR='.*none' is not allowed: set it to a folder that is there",
    ),
    "JSON into no folder": (
        *(["report", "P:target", "--device", "h200", "--json", "D/none/out.json"], {}),
        r"none/out\.json cannot be written: there is no folder",
    ),
    "kernels into a file": (
        *(["emit", "P:target", *EMULATE, "--scorer", "paper", "-o", "P"], {}),
        r"program\.py is a file: name a folder with -o",
    ),
    "a template of no kernel": (
        *(["emit", "P:target", *EMULATE, "--template", "D/fs_none.template"], {}),
        r"No kernel is called fs_none; there are: ",
    ),
    "an op that is not there": (
        *(["explain", "P:target", *EMULATE, "--op", "tabel"], {}),
        r"No op of the program matches op tabel\. Close to it: table",
    ),
    "a line without a number": (
        *(["explain", "P:target", "--line", "program.py"], {}),
        r"'program\.py' names no line: write it as FILE:LINE",
    ),
    "a plan that is none": (
        *(["diff", "D/empty.json", "P:target"], {}),
        r"empty\.json holds no plan that explain or report wrote\. Write one with",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mistakes")
    files = {
        "program.py": PROGRAM,
        "broken.py": "def f(:",
        "garbage.hlo": "this is no module",
        "empty.mlir": "",
        "empty.json": "{}",
        "fs_none.template": "cta_num=1;\na[CTA];\n",
    }
    for name, text in files.items():
        (made / name).write_text(text)
    return made


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_message_that_says_what_to_do(
    mistake: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "GPU" in mistake and jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    command, environment, message = MISTAKES[mistake]

    def filled(word: str) -> str:
        return re.sub(r"^(P|D)(?=[:/]|$)", lambda m: places[m[1]], word)

    places = {"P": str(folder / "program.py"), "D": str(folder)}
    for name, value in environment.items():
        monkeypatch.setenv(name, filled(value))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    ended: object
    try:
        ended = cli.main(list(map(filled, command)))
    except SystemExit as refused:
        ended = refused.code
    found = capsys.readouterr()
    assert ended == 2
    assert re.match(r"fusionstitch[\w ]*: ", found.err), found.err
    assert re.search(message, found.err, re.DOTALL), found.err
    assert "Traceback" not in found.err
    assert "Defect" not in found.err
    assert found.err.count("fusionstitch: ") <= 1
    assert found.out == ""


def test_there_are_more_than_twenty() -> None:
    assert len(MISTAKES) > 20


@pytest.mark.parametrize(
    ("name", "place"),
    [("H200", "h200"), ("nvidia h200", "h200"), ("NVIDIA A100-SXM4-80GB", "a100")],
)
def test_a_device_s_case_is_no_mistake(
    name: str, place: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["explain", f"{folder}/program.py:target", "--device", name]) == 0
    assert f" for {place}: " in capsys.readouterr().out


#: Runs a command where a module is not installed, or where JAX is of another version.
WITHOUT = """
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == what:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

what = sys.argv[1]
if what[0].isdigit():
    import jax
    jax.__version__ = what
sys.meta_path.insert(0, Missing())
sys.argv = ["fusionstitch", *sys.argv[2:]]
runpy.run_module("fusionstitch", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("google.protobuf", "The Python package protobuf is missing: pip install protobuf."),
        ("jax", "The Python package jax is missing: pip install jax."),
        ("0.9.1", "JAX 0.9.1 is not supported: fusionstitch works with JAX 0.10.2 and newer"),
    ],
)
def test_what_is_not_installed_or_of_a_wrong_version(what: str, message: str, folder: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, what, "report", f"{folder}/program.py:target"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"fusionstitch: {message}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["zeros", "nothing"])
def test_no_error_to_measure_by_is_no_mistake(name: str, host_compiler: str) -> None:
    """Results whose norm is zero, or that have no elements, have an error all the same."""

    def zeros(x: jax.Array) -> tuple[jax.Array, ...]:
        s = jax.nn.softmax(x)
        table = s * (s * x).sum(0)
        return table * 0, table[:0]

    def nothing(x: jax.Array) -> jax.Array:
        return x[:0] + 1

    fun = {"zeros": zeros, "nothing": nothing}[name]
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    report = fs.report(fun, jnp.ones((16, 24)), options=options)
    assert report.max_rel_error == 0.0
    assert "error" in str(report)


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda: fs.Options(backend="gpu"), FusionStitchError, r"'auto', 'cuda', 'emulate', 'xla'"),
        (lambda: fs.Options(device="h900"), FusionStitchError, r"Choose one of: .*h200"),
        (lambda: fs.jit(jnp.sin, options="fast"), TypeError, r"takes a fusionstitch.Options, not"),
        (lambda: fs.jit(jnp.sin, donate=0), TypeError, r"unexpected keywords donate; it takes"),
        (lambda: fs.leave(3), TypeError, r"fs.leave takes a function, not int"),
    ],
)
def test_in_python_they_raise_what_says_so(
    wrong: Callable[[], object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        wrong()
