"""What contributors meet besides CONTRIBUTING.md: forms, continuous integration, hooks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.people.checkout import ROOT, python, run

FORMS = ("bug", "feature", "slower_than_xla", "wrong_numbers")
SCHEMAS = {
    ".github/ISSUE_TEMPLATE/config.yml": "vendor.github-issue-config",
    **{f".github/ISSUE_TEMPLATE/{form}.yml": "vendor.github-issue-forms" for form in FORMS},
    ".github/workflows/ci.yml": "vendor.github-workflows",
}


def test_no_file_of_the_host_is_without_its_schema() -> None:
    found = {str(path.relative_to(ROOT)) for path in (ROOT / ".github").rglob("*.yml")}
    assert found == set(SCHEMAS)


@pytest.mark.parametrize("file", SCHEMAS)
def test_files_of_the_host_follow_their_schemas(file: str) -> None:
    run(python("-m", "check_jsonschema", "--builtin-schema", SCHEMAS[file], file), ROOT)


@pytest.mark.parametrize("form", FORMS)
def test_forms_ask_for_what_the_page_says(form: str) -> None:
    text = (ROOT / ".github" / "ISSUE_TEMPLATE" / f"{form}.yml").read_text()
    asked = {part["id"] for part in yaml.safe_load(text)["body"] if "id" in part}
    wanted = {"feature": {"wish"}, "bug": {"program", "doctor"}}
    assert asked >= wanted.get(form, {"program", "doctor", "dump"})


def test_hooks_are_what_make_lint_runs() -> None:
    run(python("-m", "pre_commit", "validate-config"), ROOT)
    [repo] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"
    [lint] = re.findall(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in lint.splitlines()]
    assert [hook["entry"] for hook in repo["hooks"]] == commands


def test_the_page_names_targets_that_there_are() -> None:
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"`make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text())
    assert {"setup", "test", "fuzz", "gpu-test", "check-people"} <= set(named) <= made


def test_the_workflow_tries_every_python_that_is_supported() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    [job] = workflow["jobs"].values()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == said
    assert job["steps"][-1]["run"] == ".ci/run"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


# ---- .ci/run -------------------------------------------------------------------------------------


def run_ci(tmp_path: Path, **stubs: str) -> subprocess.CompletedProcess[str]:
    """.ci/run where there are `stubs`, programs by name, and hardly anything else."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "dirname", "date"):
        (programs / name).symlink_to(str(shutil.which(name)))
    for name, text in stubs.items():
        stub = programs / name.replace("_", "-")
        stub.write_text(f"#!/bin/sh\n{text}\n")
        stub.chmod(0o700)
    (tmp_path / "checkout" / ".ci").mkdir(parents=True)
    script = shutil.copy(ROOT / ".ci" / "run", tmp_path / "checkout" / ".ci")
    return subprocess.run(
        [script],
        env={"PATH": str(programs), "JAX_TESTS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )


MAKE = 'echo "make $1"'
THERE = {"chromium": "", "chromedriver": "", "id": "echo 0"}


def test_continuous_integration_says_what_took_how_long(tmp_path: Path) -> None:
    done = run_ci(tmp_path, make=MAKE, **THERE)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^ +\d+  (.+)$", done.stdout, re.MULTILINE) == [
        "make test",
        "make test-slow",
        "make check-people",
        "make jax-tests",
        "JAX's loops",
    ]
    assert "NO BROWSER" not in done.stdout


@pytest.mark.parametrize(
    ("commit", "share"),
    [
        ("000000aaaa", ["make test-slow"]),
        ("000001aaaa", ["make check-people"]),
        ("ffffffaaaa", ["make test-slow"]),
        ("fffffeaaaa", ["make jax-tests", "JAX's loops"]),
    ],
)
def test_a_commit_decides_which_long_tests_run(
    tmp_path: Path, commit: str, share: list[str]
) -> None:
    done = run_ci(tmp_path, make=MAKE, git=f"echo {commit}", **THERE)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^ +\d+  (.+)$", done.stdout, re.MULTILINE) == ["make test", *share]


def test_continuous_integration_ends_with_the_first_failure(tmp_path: Path) -> None:
    done = run_ci(tmp_path, make='[ "$1" = test ]', **THERE)
    assert done.returncode == 1
    assert re.findall(r"^ +\d+  (.+)$", done.stdout, re.MULTILINE) == ["make test"]


@pytest.mark.parametrize(("user", "asked"), [("0", 2), ("1000", 0)])
def test_a_browser_is_installed_by_root_alone(tmp_path: Path, user: str, asked: int) -> None:
    done = run_ci(tmp_path, make=MAKE, id=f"echo {user}", apt_get='echo "apt-get $1" >&2; exit 0')
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("apt-get ") == asked
    assert "NO BROWSER: pages were not opened" in done.stdout


def test_without_a_browser_the_tests_run_all_the_same(tmp_path: Path) -> None:
    done = run_ci(tmp_path, make=MAKE, id="echo 0", apt_get="exit 100")
    assert done.returncode == 0, done.stderr
    assert "no browser: apt-get could not install" in done.stdout
    assert "make check-people" in done.stdout
