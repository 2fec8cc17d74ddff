"""Fixtures every test may use. Tests run on the CPU unless JAX_PLATFORMS says otherwise."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pytest
from hypothesis import HealthCheck, settings

from tests.shares import share_out

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=2000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")

_CACHE_VARIABLE = "FUSIONSTITCH_CACHE_DIR"
_cache_key = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


def pytest_configure(config: pytest.Config) -> None:
    # The workers of pytest-xdist inherit the controller's folder, so each object is built once.
    if hasattr(config, "workerinput"):
        return
    folder = tempfile.mkdtemp(prefix="fusionstitch-tests-")
    config.stash[_cache_key] = folder
    os.environ[_CACHE_VARIABLE] = folder


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(_cache_key, None):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)  # before tests are left out by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share_out(items)
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import jax

    if jax.default_backend() == "gpu":
        # what is measured scatters: tests of the guard and of the trial ask for it
        os.environ.setdefault("FUSIONSTITCH_SCORER", "model")
        os.environ.setdefault("FUSIONSTITCH_TRIAL", "off")
        return
    for item in on_gpu:
        item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU (JAX_PLATFORMS=cuda,cpu asks)"))


@dataclass(frozen=True)
class Golden:
    """`golden(text)` asserts that `text` equals the file of this test."""

    path: Path
    update: bool

    def __call__(self, text: str) -> None:
        if self.update:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(text)
            return
        if not self.path.is_file():
            pytest.fail(f"{self.path} is missing: run pytest --update-golden and read the result.")
        assert text == self.path.read_text()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """The file tests/golden/<test file>/<test name>.txt; --update-golden writes it."""
    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    folder = Path(__file__).parent / "golden" / request.path.stem
    return Golden(folder / f"{name}.txt", request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def host_compiler() -> str:
    """Path of the C++ compiler."""
    from fusionstitch.hlo.errors import ToolchainError
    from fusionstitch.runtime.toolchain import compiler

    try:
        return compiler()[0]
    except ToolchainError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def nvrtc() -> ModuleType:
    """`fusionstitch.runtime.nvrtc`, where NVRTC can be loaded: it needs no GPU."""
    from fusionstitch.runtime import nvrtc

    if not (found := nvrtc.available()):
        pytest.skip(found.reason)
    return nvrtc
