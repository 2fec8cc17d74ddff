"""The package as users get it: built by `python -m build`, installed by pip, and run in an empty
folder."""

from __future__ import annotations

import json
import shutil
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fusionstitch.runtime import prebuilt
from fusionstitch.version import __version__
from tests.people.checkout import attempt, copied, python, run, tracked
from tests.test_readme import PROGRAMS

#: What an sdist has beside the files of the checkout.
MADE = {"PKG-INFO", "setup.cfg", "fusionstitch.egg-info"}
#: The folders that packages of fusionstitch are links to.
FLOORS = ("codegen", "costmodel", "hlo")

TARGET = """
import jax.numpy as jnp


def unit_rows():
    def fun(x):
        return x / jnp.sqrt((x * x).sum(axis=1, keepdims=True))

    return fun, (jnp.ones((64, 256)),)
"""


@dataclass(frozen=True)
class Built:
    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist of the checkout and the wheel of that, each built in an environment of its own."""
    folder = tmp_path_factory.mktemp("built")
    run(python("-m", "build", "--outdir", folder), copied(tmp_path_factory.mktemp("checkout")))
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Built(sdist, wheel)


def test_an_index_takes_the_packages(built: Built, tmp_path: Path) -> None:
    run(python("-m", "twine", "check", "--strict", built.sdist, built.wheel), tmp_path)


def test_an_sdist_is_the_checkout(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        members = {m.name.partition("/")[2]: m for m in archive.getmembers() if not m.isdir()}
    assert {name for name in members if name.partition("/")[0] not in MADE} == set(tracked())
    links = {name: m.linkname for name, m in members.items() if m.issym()}
    assert links == {f"fusionstitch/{floor}": f"../{floor}" for floor in FLOORS}


def test_a_wheel_is_the_package_and_its_launchers(built: Built, host_compiler: str) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    links = {f"fusionstitch/{floor}" for floor in FLOORS}
    packages = {name for name in tracked() if name.startswith("fusionstitch/")} - links
    packages |= {f"fusionstitch/{name}" for name in tracked() if name.partition("/")[0] in FLOORS}
    packages = {name for name in packages if not name.endswith(".md")}  # for who reads a checkout
    files = {path for one in prebuilt.LAUNCHERS for path in (one.image, one.seal)}
    launchers = {f"fusionstitch/runtime/launchers/{path.name}" for path in files}
    assert found == packages | launchers


def test_tests_run_in_an_unpacked_sdist(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [folder] = tmp_path.iterdir()
    tests = ("tests/test_docs.py", "tests/test_readme.py", "tests/integration/test_packaging.py")
    few = "links or paths or made or taken or twice"
    text = run(
        python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", few, *tests),
        folder,
        JAX_PLATFORMS="cpu",
    )
    assert " passed" in text


# ---- installed -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["", "[cuda13]"])
def bin(
    request: pytest.FixtureRequest, built: Built, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The programs of an environment with the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    wheel = f"{built.wheel}{request.param}"
    run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", wheel], folder)
    yield folder / "bin"
    shutil.rmtree(folder)  # CUDA's libraries take gigabytes


def test_the_first_program_of_the_readme(bin: Path, tmp_path: Path) -> None:
    """Without a GPU, JAX's plugin for CUDA may be there or not."""
    (tmp_path / "step.py").write_text(PROGRAMS[0])
    text = run([bin / "python", "step.py"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert "loss 3." in text
    assert "Nothing was stitched" in text
    assert "FUSIONSTITCH_BACKEND=emulate" in text


def test_a_report_of_a_small_file(bin: Path, tmp_path: Path, host_compiler: str) -> None:
    (tmp_path / "small.py").write_text(TARGET)
    command = [bin / "fusionstitch", "report", "small.py:unit_rows", "--json", "report.json"]
    run(command, tmp_path, CUDA_VISIBLE_DEVICES="")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["backend"] == "emulate"
    assert report["kernels"]["fusionstitch"] == 1
    assert report["fallbacks"] == []


def test_what_the_doctor_says(bin: Path, tmp_path: Path, host_compiler: str) -> None:
    done = attempt([bin / "fusionstitch", "doctor", "--json"], tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stdout
    said = json.loads(done.stdout)
    assert said["versions"]["fusionstitch"]["value"] == __version__
    assert said["backends"]["GPU"]["value"].startswith("none: ")
    assert said["wrong"] == []
