"""The command line on small programs: what it prints, writes and refuses."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.commands import cli

PROGRAM = """
import jax, jax.numpy as jnp
import fusionstitch as fs

def mixed(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    s = e / e.sum(-1, keepdims=True)
    return s * (s * x).sum(0)

def train_step():
    return mixed, (jnp.linspace(-1, 1, 16 * 24).reshape(16, 24),)

def by_shape():
    return fs.jit(mixed), [jax.ShapeDtypeStruct((16, 24), jnp.float32)]

def needs(n):
    return mixed, (n,)

def wrong():
    return mixed

def broken():
    return 1 / 0

number = 3

def in_jax():
    return jnp.ones((2, 3)) @ jnp.ones((2, 3))

def leaves():
    raise SystemExit(0)

def untraced():
    return (lambda x: x / (1 // 0)), (1.0,)

def short():
    return (lambda x, y: x), (1.0,)
"""

KEYS = {
    "workload": None,
    "device": None,
    "backend": None,
    "ops": None,
    "kernels": ["unfused", "xla", "fusionstitch"],
    "compression": ["vs_unfused", "vs_xla"],
    "time_us": ["unfused", "xla", "fusionstitch"],
    "speedup_vs_xla": None,
    "modelled_us": None,
    "traffic_bytes": ["unfused", "xla", "fusionstitch"],
    "patterns": [
        *("id", "kind", "ops", "scope", "runs", "score_us", "wins_us", "modelled_us", "xla_us"),
        *("xla_source", "floor_us", "measured_us", "kernel", "source", "template"),
        *("shared_bytes", "registers"),
    ],
    "rejected": ["ops", "source", "reason"],
    "max_rel_error": None,
    "memory_bytes": ["xla", "fusionstitch"],
    "compile_s": ["xla", "plan", "codegen", "toolchain"],
    "fallbacks": ["ops", "reason"],
    "modelled_xla_us": None,
    "max_rel_error_xla": None,
    "floor_us": ["total", "priced", "bound_by", "units", "at_least"],
    "over_floor": ["xla", "fusionstitch", "measured"],
    "notes": None,
}


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def assert_keys(data: dict[str, object]) -> None:
    assert list(data) == list(KEYS)
    for key, wanted in KEYS.items():
        values = data[key] if isinstance(data[key], list) else [data[key]]
        assert isinstance(values, list)
        for value in values:
            if wanted is not None:
                assert list(value) == wanted


def test_report(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    command = ["report", f"{program}:train_step", "--backend", "emulate", "--json", str(path)]
    assert cli.main(command) == 0
    text = capsys.readouterr().out
    assert "program:train_step on emulated (emulated on the host)" in text
    data = json.loads(path.read_text())
    assert_keys(data)
    assert data["workload"] == "program:train_step"
    assert data["backend"] == "emulate"
    xla = data["kernels"]["xla"]
    assert xla > 1
    assert data["kernels"] == {"unfused": 14, "xla": xla, "fusionstitch": 1}
    assert data["compression"] == {"vs_unfused": 14.0, "vs_xla": xla}
    assert data["time_us"] == {"unfused": None, "xla": None, "fusionstitch": None}
    assert data["max_rel_error"] < 1e-6
    assert data["patterns"][0]["registers"] is None
    assert data["fallbacks"] == []


def test_a_page_and_a_trace(
    program: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page, trace = tmp_path / "out.html", tmp_path / "out.json"
    command = ["report", f"{program}:train_step", "--backend", "emulate", "--html", str(page)]
    assert cli.main([*command, "--trace", str(trace)]) == 0
    assert "times fewer than XLA" in capsys.readouterr().out
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "<title>program:train_step: fusionstitch report</title>" in text
    assert "emulated on the host" in text
    assert json.loads(trace.read_text())["otherData"]["workload"] == "program:train_step"
    assert cli.main([*command[:-1], str(tmp_path / "none" / "out.html")]) == 2
    found = capsys.readouterr()
    assert found.out == ""  # said before all the work
    assert found.err.startswith("fusionstitch: ")
    assert "cannot be written" in found.err

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    from fusionstitch.reports.page import kernels

    page.unlink()
    monkeypatch.setattr(kernels, "draw", interrupted)
    assert cli.main(command) == 2
    assert capsys.readouterr().err == "fusionstitch: interrupted\n"
    assert not page.exists()


def test_report_for_a_device_that_is_not_there(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"{program}:by_shape"
    assert cli.main(["report", target, "--device", "a100", "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert_keys(data)
    assert (data["device"], data["backend"]) == ("a100", "model")
    assert data["max_rel_error"] is None
    assert data["compile_s"]["xla"] is None


def test_explain(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", f"{program}:train_step", "--backend", "emulate"]) == 0
    text = capsys.readouterr().out
    assert "1 pattern in 1 kernel" in text
    assert "program.py:7" in text
    assert "candidates rejected: `explain --rejected`" in text


def test_rejected_candidates_are_listed_if_asked_for(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["explain", f"{program}:train_step", "--backend", "emulate", "--rejected"]
    assert cli.main(command) == 0
    text = capsys.readouterr().out
    assert re.search(r"^  rejected \d+: .+\.\n    \w", text, re.MULTILINE)
    assert "candidates rejected" not in text


def test_explain_names_files_from_here(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(program).parent)
    assert cli.main(["explain", f"{program}:train_step", "--backend", "emulate"]) == 0
    assert "from: program.py:6" in capsys.readouterr().out


def test_emit(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    target = f"{program}:train_step"
    assert cli.main(["emit", target, "--device", "h200", "-o", str(folder)]) == 0
    [path] = capsys.readouterr().out.split()
    source = Path(path).read_text()
    assert source.startswith(f"// {Path(path).stem}, generated by fusionstitch from jit_mixed")
    assert "-arch=sm_90" in source
    assert (folder / "fusionstitch.cuh").is_file()


@pytest.mark.parametrize("ending", [".hlo", ".mlir", ".pb"])
def test_modules_in_files(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fun(x: jax.Array, n: jax.Array) -> tuple[jax.Array, jax.Array]:
        s = jax.nn.softmax(x * n.astype(jnp.float32))
        return s * (s * x).sum(0), n + 1

    spec = (jax.ShapeDtypeStruct((16, 24), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32))
    lowered = jax.jit(fun).lower(*spec)
    path = tmp_path / f"module{ending}"
    if ending == ".mlir":
        path.write_text(lowered.as_text())
    elif ending == ".hlo":
        path.write_text(lowered.compiler_ir("hlo").as_hlo_text())
    else:
        path.write_bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    assert cli.main(["report", str(path), "--backend", "emulate", "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["workload"] == "module"
    assert data["kernels"]["fusionstitch"] < data["kernels"]["unfused"]
    assert data["max_rel_error"] < 1e-6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "{file}:absent"], "its module has no such name. A target is file.py:name"),
        (["report", "{file}:number"], "is a int, not a function"),
        (["report", "{file}:needs"], r"needs arguments \(n\)"),
        (["report", "{file}:wrong"], "returned a function. A target is"),
        (["explain", "{file}:broken"], r"raised ZeroDivisionError at .*program.py:23: division"),
        (["explain", "{file}:in_jax"], r"in_jax raised TypeError at .*program.py:28: dot_general"),
        (["emit", "{file}:leaves"], r"leaves raised SystemExit at .*program.py:31: 0"),
        (
            ["report", "{file}:untraced"],
            r"its function raised Zero.* at .*program.py:34: ",
        ),
        (["explain", "{file}:short"], r"short: its function raised TypeError: .*positional arg"),
        (["report", "{file}"], "names no function"),
        (["report", "absent.py:f"], "There is no file absent.py"),
        (["report", "no.such.module:f"], "There is no module no.such.module"),
        (["emit", "absent.hlo"], "There is no file absent.hlo"),
        (["report", "{file}:train_step", "--device", "h900"], "Choose one of: .*h200"),
        (["report", "{file}:train_step", "--backend", "cuda"], "no GPU to stitch for. Name a dev"),
        (["report", "{file}:train_step", "--json", "/no/such/folder/r.json"], "cannot be written"),
    ],
)
def test_mistakes_exit_with_2_and_say_what_to_do(
    program: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    assert cli.main([argument.format(file=program) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("fusionstitch: ")
    assert re.search(message, error), error


def test_bad_module_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text("this is no module")
    assert cli.main(["explain", str(path)]) == 2
    assert capsys.readouterr().err.startswith("fusionstitch: ")


def test_files_that_do_not_parse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.py"
    path.write_text("def f(:")
    assert cli.main(["explain", f"{path}:f"]) == 2
    error = capsys.readouterr().err
    assert error == f"fusionstitch: {path} raised SyntaxError: invalid syntax (bad.py, line 1)\n"


def test_compiled_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "compiled.hlo"
    compiled = jax.jit(lambda x: jnp.tanh(x).T * 2).lower(jnp.ones((64, 48))).compile()
    path.write_text(compiled.as_text())
    assert cli.main(["explain", str(path)]) == 2
    assert "The module holds fusions: it is what XLA has compiled." in capsys.readouterr().err


def test_bad_environment(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_NUMERICS", "exact")
    assert cli.main(["explain", f"{program}:train_step"]) == 2
    assert "FUSIONSTITCH_NUMERICS='exact' is not allowed" in capsys.readouterr().err


def test_doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FUSIONSTITCH_SCORER", "bogus")
    monkeypatch.setenv("FUSIONSTITCH_BAKEND", "cuda")
    assert cli.main(["doctor"]) == 2
    text = capsys.readouterr().out
    assert jax.__version__ in text
    assert "FUSIONSTITCH_SCORER='bogus' is not allowed" in text
    assert "FUSIONSTITCH_BAKEND        is set but unknown" in text


def test_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_CACHE_DIR", str(tmp_path / "cache"))
    from fusionstitch.runtime.cache import Store

    Store().put("key", b"x" * 500_000)
    assert cli.main(["cache", "status"]) == 0
    assert "objects  1, 0.5 MB" in capsys.readouterr().out
    assert cli.main(["cache", "clear"]) == 0
    assert "objects  0, 0.0 MB" in capsys.readouterr().out


def test_runs_as_a_module_and_starts_light() -> None:
    """--help needs neither JAX nor a solver."""
    code = (
        "import sys; sys.argv = ['fusionstitch', '--help']\n"
        "import runpy\n"
        "try: runpy.run_module('fusionstitch', run_name='__main__')\n"
        "except SystemExit as done: assert done.code == 0\n"
        "print([m for m in ('jax', 'numpy', 'pulp', 'cupy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.startswith("usage: fusionstitch")


def test_tune_needs_a_gpu(program: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["tune", f"{program}:train_step"]) == 2
    assert "needs an NVIDIA GPU" in capsys.readouterr().err
    assert cli.main(["calibrate"]) == 2
    assert "needs an NVIDIA GPU" in capsys.readouterr().err
    assert cli.main(["tune"]) == 2
    assert "Name a target to tune" in capsys.readouterr().err


def test_tuned_results_travel_as_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    from fusionstitch.tuning.record import Entry, Record, read, to_json

    monkeypatch.setenv("FUSIONSTITCH_CACHE_DIR", str(tmp_path / "cache"))
    entry = Entry("key", "v", Record("cta_size=64;", 1.0, 2.0, 3.0, 1.5, 9, True, "fs_k", "H200"))
    there, back = tmp_path / "there.json", tmp_path / "back.json"
    there.write_text(to_json("h200", [entry]))
    assert (
        cli.main(["tune", "--import", str(there), "--export", str(back), "--device", "h200"]) == 0
    )
    assert "1 results for h200" in capsys.readouterr().out
    assert read(back) == ("h200", (entry,))
    there.write_text("no")
    assert cli.main(["tune", "--import", str(there)]) == 2
    assert "holds no tuned results" in capsys.readouterr().err


def test_a_target_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, program: str
) -> None:
    from fusionstitch.tuning.outcome import TuneReport

    monkeypatch.setenv("FUSIONSTITCH_CACHE_DIR", str(tmp_path / "cache"))
    done = TuneReport("mine", "h200", "stub", 1.0, (), True)
    tune = importlib.import_module("fusionstitch.tuning.tune")
    monkeypatch.setattr(tune, "tune_call", lambda call, budget, name: done)
    found = tmp_path / "found.json"
    targets = [f"{program}:broken", f"{program}:train_step"]
    arguments = ["tune", *targets, "--export", str(found), "--device", "h200"]
    assert cli.main([*arguments, "--json", str(tmp_path / "report.json")]) == 2
    out, err = capsys.readouterr()
    assert "mine: 0 patterns tuned on stub" in out
    assert "ZeroDivisionError" in err
    assert found.exists()
    assert [r["workload"] for r in json.loads((tmp_path / "report.json").read_text())] == ["mine"]
