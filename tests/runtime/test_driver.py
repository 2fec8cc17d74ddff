"""GPUs as the driver describes them, and the profile that planning uses for each."""

from __future__ import annotations

import dataclasses
import functools
import logging

import pytest

from fusionstitch.compiler import builders
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.properties import from_properties
from fusionstitch.hlo.errors import OptionError
from fusionstitch.hlo.verdict import allow
from fusionstitch.options import Options
from fusionstitch.runtime import driver
from tests.gpus import GPUS, FakeDriver


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiles of GPUs are kept for the process."""
    monkeypatch.setattr(builders, "_of_gpu", builders._of_gpu.__wrapped__)


def install(monkeypatch: pytest.MonkeyPatch, fake: FakeDriver, number: int = 0) -> None:
    monkeypatch.setattr(driver, "library", lambda: fake)
    kind = fake.found[number].name if fake.found else "NVIDIA H200"
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind=kind, number=number))


@pytest.mark.parametrize("name", GPUS)
def test_the_driver_s_description_is_read(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    install(monkeypatch, FakeDriver(*GPUS.values()))
    assert driver.properties(list(GPUS).index(name)) == GPUS[name]


def test_an_old_driver_knows_no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = GPUS["NVIDIA GH200 480GB"]
    install(monkeypatch, FakeDriver(gpu, unknown=(driver.CLUSTERS,)))
    assert not driver.properties(0).clusters
    install(monkeypatch, FakeDriver(gpu, unknown=(driver.ATTRIBUTES["sm_count"],)))
    with pytest.raises(OptionError, match="does not answer"):
        driver.properties(0)


def test_a_gpu_without_a_measured_profile_gets_one_and_one_notice(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(builders, "_of_gpu", functools.cache(builders._of_gpu))
    install(monkeypatch, FakeDriver(GPUS["NVIDIA B200"], GPUS["NVIDIA L40S"]), 1)
    with caplog.at_level(logging.WARNING, "fusionstitch"):
        for _ in range(3):
            found = builders.profile(Options(backend="auto"))
    assert found == from_properties(GPUS["NVIDIA L40S"])
    [notice] = caplog.records
    assert "NVIDIA L40S has no measured device profile" in notice.getMessage()
    assert "142 multiprocessors of compute capability 8.9, 778 GB/s" in notice.getMessage()
    assert "fusionstitch calibrate" in notice.getMessage()


def test_a_name_is_believed_if_the_driver_agrees(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An H200 is an H200; a card or a part of one that shares its name is not."""
    whole = dataclasses.replace(GPUS["NVIDIA GH200 480GB"], name="NVIDIA H200")
    install(monkeypatch, FakeDriver(whole))
    with caplog.at_level(logging.WARNING, "fusionstitch"):
        assert builders.profile(Options(backend="auto")) == device("h200")
        assert not caplog.records
        part = dataclasses.replace(whole, name="NVIDIA H200 MIG 1g.18gb", sm_count=16)
        install(monkeypatch, FakeDriver(part))
        found = builders.profile(Options(backend="auto"))
    assert (found.sm_count, found.name) == (16, "h200-mig-1g.18gb")
    assert len(caplog.records) == 1


def test_without_a_driver_the_name_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise OSError("libcuda.so.1: no such file")

    monkeypatch.setattr(driver, "library", missing)
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA H100 80GB HBM3"))
    assert builders.profile(Options(backend="auto")) == device("h100")
    monkeypatch.setattr(builders, "gpu", lambda: allow("faked", kind="NVIDIA B999"))
    with pytest.raises(OptionError, match=r"'NVIDIA B999': The CUDA driver cannot be loaded: lib"):
        builders.profile(Options(backend="auto"))
