"""`fusionstitch doctor`: missing parts are named, the rest is reported, and the exit code shows
it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from fusionstitch.commands import cli, doctor
from fusionstitch.compiler import builders
from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.hlo.verdict import allow, forbid
from fusionstitch.runtime import nvrtc, prebuilt, toolchain, xla_pass
from fusionstitch.supported import NEEDED

#: Runs the command where modules named as the arguments are not installed.
WITHOUT = """
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

missing = sys.argv[1:]
sys.meta_path.insert(0, Missing())
sys.argv = ["fusionstitch", "doctor"]
runpy.run_module("fusionstitch", run_name="__main__")
"""


def examined(*marked: str) -> str:
    """The text, whose lines of these names are marked and no others."""
    found = doctor.examine()
    lines = re.findall(r"^! (.{26})", found.text, re.MULTILINE)
    assert [line.strip() for line in lines] == [name[:26] for name in marked] == list(found.wrong)
    return found.text


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "compiler", lambda: ("c++",))


def test_nothing_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    text = examined()
    assert f"{jax.__version__} is supported" in text
    assert "jax.extend.xla has it" in text
    assert text.endswith("nothing that this machine needs is missing")
    assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().out.strip() == text


def test_the_json_says_what_the_text_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_CACHE_DIR", str(tmp_path))  # which no other test fills
    monkeypatch.setenv("FUSIONSTITCH_SCORER", "best")
    assert cli.main(["doctor", "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert list(data) == ["versions", "backends", "cache", "environment", "wrong"]
    assert data["wrong"] == ["FUSIONSTITCH_SCORER"]
    assert data["versions"]["jax"] == {"value": jax.__version__, "wrong": False}
    text = examined("FUSIONSTITCH_SCORER")
    for section in list(data)[:-1]:
        for name, found in data[section].items():
            assert f"{'!' if found['wrong'] else ' '} {name:<26} {found['value']}" in text


@pytest.mark.parametrize("module", ["networkx", "google.protobuf", "jax"])
def test_a_missing_module_is_named_and_the_rest_is_reported(module: str) -> None:
    command = [sys.executable, "-c", WITHOUT, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "")
    package = NEEDED[module]
    assert f"! {package:<26} missing: pip install {package}\n" in done.stdout
    for told in ("python ", "numpy ", "FUSIONSTITCH_BACKEND ", "C++ (emulate", "objects "):
        assert f"  {told}" in done.stdout, told
    assert re.search(f"to mend: {package}[ ,]", done.stdout)


def test_an_unsupported_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "__version__", "0.7.2")
    monkeypatch.setattr(xla_pass, "_door", lambda: None)
    text = examined("JAX's version", "JAX's compiler pass")
    assert "works with JAX 0.10.2 and newer, below 0.13" in text
    assert "register_hlo_module_transformation is missing" in text
    assert text.endswith("to mend: JAX's version, JAX's compiler pass (marked !)")


@pytest.mark.parametrize("gpu", [True, False])
def test_what_only_a_gpu_needs(monkeypatch: pytest.MonkeyPatch, gpu: bool) -> None:
    def missing() -> tuple[str, ...]:
        raise ToolchainError("There is no C++ compiler.")

    if gpu:
        monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA H200"))
    monkeypatch.setattr(nvrtc, "available", lambda: forbid("NVRTC cannot be loaded."))
    monkeypatch.setattr(toolchain, "compiler", missing)
    monkeypatch.setattr(prebuilt, "image", lambda *_: None)
    text = examined(*(("NVRTC (cuda)", "C++ (emulate, launcher)") if gpu else ()))
    assert "NVRTC cannot be loaded." in text
    assert "There is no C++ compiler." in text
    monkeypatch.setenv("FUSIONSTITCH_BACKEND", "emulate")
    assert "C++ (emulate, launcher)" in doctor.examine().wrong


def test_a_launcher_that_came_with_the_package_needs_no_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA H200"))
    monkeypatch.setattr(nvrtc, "available", lambda: forbid("NVRTC cannot be loaded."))
    monkeypatch.setattr(toolchain, "COMPILERS", ())
    monkeypatch.setattr(prebuilt, "image", lambda *_: b"an image")
    assert "came with the package" in examined("NVRTC (cuda)")


def test_a_compiler_that_does_not_know_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA H200"))
    monkeypatch.setattr(nvrtc, "available", lambda: allow("faked"))
    monkeypatch.setattr(nvrtc, "version", lambda: "11.0")
    monkeypatch.setattr(nvrtc, "architectures", lambda: ("sm_75", "sm_80"))
    assert "NVRTC 11.0 compiles nothing for sm_90: install another." in examined("NVRTC (cuda)")


def test_a_value_that_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_SCORER", "bogus")
    monkeypatch.setenv("FUSIONSTITCH_BAKEND", "cuda")  # may belong to another program
    assert "is set but unknown" in examined("FUSIONSTITCH_SCORER")
