"""What a build brings: the launchers, where there are a compiler and jaxlib's headers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import jax
import pytest

from fusionstitch.runtime import prebuilt

ROOT = Path(__file__).parents[2]
#: The folders that packages of fusionstitch are links to.
FLOORS = ("hlo", "costmodel", "codegen")
#: The first setuptools that makes wheels by itself and reads this project's metadata.
NEEDED = 77

try:
    _major = int(metadata.version("setuptools").split(".")[0])
except metadata.PackageNotFoundError:
    _major = 0
pytestmark = pytest.mark.skipif(_major < NEEDED, reason=f"needs setuptools {NEEDED} or newer")

#: Stands for a compiler: it writes to its last argument, and knows no processor by its name.
STUB = """#!/bin/sh
for last; do case "$last" in -march*) exit 1;; esac; done
printf image > "$last"
"""
LIBRARIES = sorted(
    f"fusionstitch/runtime/launchers/{path.name}"
    for launcher in prebuilt.LAUNCHERS
    for path in (launcher.image, launcher.seal)
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The project's files that a build reads, in a folder of their own."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    left = shutil.ignore_patterns("__pycache__", "launchers")
    for folder in (*FLOORS, "fusionstitch"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=left, symlinks=True)
    return tree


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    stub = tmp_path / "compiler"
    stub.write_text(STUB)
    stub.chmod(0o700)
    return stub


def build(tree: Path, what: str, compiler: str) -> Path:
    """What is built, as a file."""
    code = f"from setuptools.build_meta import {what}; print({what}({str(tree.parent)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env={**os.environ, "CXX": compiler},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return tree.parent / done.stdout.splitlines()[-1]


def files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_a_wheel_has_the_launchers(
    tree: Path, stub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = build(tree, "build_wheel", f"{stub} -march=native")
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path, LIBRARIES)
    monkeypatch.setattr(prebuilt, "FOLDER", (tmp_path / LIBRARIES[0]).parent)
    ffi = Path(jax.ffi.include_dir())
    assert [prebuilt.image(one, ffi) for one in prebuilt.LAUNCHERS] == [b"image"] * 2


@pytest.mark.parametrize("compiler", ["false", "/no/such/compiler", 'g++ "'])
def test_without_a_compiler_a_wheel_has_none(tree: Path, stub: Path, compiler: str) -> None:
    """Nor those that a build before left in the tree."""
    build(tree, "build_wheel", str(stub))
    found = files(build(tree, "build_wheel", compiler))
    assert not [name for name in found if "runtime/launchers/" in name]
    assert "fusionstitch/runtime/launcher_cuda.cc" in found


def test_an_editable_install_has_them_in_place(tree: Path, stub: Path) -> None:
    build(tree, "build_editable", str(stub))
    assert all((tree / name).is_file() for name in LIBRARIES)


def test_sources_have_what_a_build_needs(tree: Path, stub: Path) -> None:
    """But not what one in place has left there."""
    build(tree, "build_editable", str(stub))
    with tarfile.open(build(tree, "build_sdist", str(stub))) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    needed = {
        path.resolve().relative_to(ROOT) for one in prebuilt.LAUNCHERS for path in one.headers
    }
    assert found >= {"setup.py", *map(str, needed), "fusionstitch/runtime/launcher_cpu.cc"}
    assert not found & set(LIBRARIES)


# ---- names ---------------------------------------------------------------------------------------


def test_a_wheel_has_one_name(tree: Path, stub: Path) -> None:
    """Others' packages are called `codegen` and `hlo`, too."""
    found = files(build(tree, "build_wheel", str(stub)))
    names = {name.partition("/")[0] for name in found}
    assert sorted(name for name in names if not name.endswith(".dist-info")) == ["fusionstitch"]
    for floor in FLOORS:
        here = {path.relative_to(ROOT) for path in (ROOT / floor).rglob("*.py")}
        assert found >= {f"fusionstitch/{path}" for path in here}
    assert found >= {
        "fusionstitch/py.typed",
        "fusionstitch/codegen/cuda/fusionstitch.cuh",
        "fusionstitch/costmodel/profiles/h200.json",
        *(f"fusionstitch/reports/page/{part}" for part in ("static/main.js", "static/page.css")),
        "fusionstitch/reports/page/templates/page.html.j2",
    }


def test_no_file_is_imported_twice() -> None:
    """By its own name and by the folder's, as it stands at the top of a checkout."""
    code = """
import pkgutil, sys, importlib, fusionstitch
for module in pkgutil.walk_packages(fusionstitch.__path__, "fusionstitch."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from pathlib import Path
modules = list(sys.modules.values())  # to ask some for their file loads others
files = [Path(m.__file__).resolve() for m in modules if getattr(m, "__file__", None)]
files = [file for file in files if "site-packages" not in file.parts]
print(sorted({str(f) for f in files if files.count(f) > 1 and f.is_relative_to(Path.cwd())}))
print([name for name in ("hlo", "costmodel", "codegen") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "[]"]
