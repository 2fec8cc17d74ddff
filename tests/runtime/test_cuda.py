"""The CUDA backend without a GPU: artifacts, the store, what cannot be launched."""

from __future__ import annotations

import ctypes
import dataclasses

import pytest

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.hlo.verdict import Verdict
from fusionstitch.runtime import cuda, nvrtc, prebuilt
from fusionstitch.runtime.cuda import Built
from fusionstitch.runtime.handlers import HANDLERS
from fusionstitch.runtime.nvrtc import Resources
from fusionstitch.runtime.toolchain import MemoryStore

needs_nvrtc = pytest.mark.skipif(not nvrtc.available(), reason=nvrtc.available().reason)

H200 = device("h200")


def scaled(name: str, factor: int = 2) -> Kernel:
    source = f"""#include "fusionstitch.cuh"
extern "C" __global__ void {name}(const float* x, float* y) {{
  y[blockIdx.x * 256 + threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x] * {factor}.0f;
}}
"""
    return Kernel(
        name=name,
        source=source,
        inputs=(),
        outputs=(),
        scratch=(),
        grid=8,
        block=256,
        shared_bytes=0,
        cooperative=False,
        template="",
    )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that reached NVRTC."""
    sources: list[str] = []
    compile = nvrtc.compile

    def counting(source: str, arch: str, options: tuple[str, ...]) -> nvrtc.Compiled:
        sources.append(source)
        return compile(source, arch, options)

    monkeypatch.setattr(nvrtc, "compile", counting)
    return sources


@needs_nvrtc
def test_artifacts_come_in_the_order_of_the_kernels() -> None:
    kernels = [scaled(f"k{i}", i) for i in range(5)]
    artifacts = cuda.build(kernels, H200)
    assert [a.entry for a in artifacts] == ["k0", "k1", "k2", "k3", "k4"]
    assert all(a.image[:4] == b"\x7fELF" for a in artifacts)
    assert len({a.key for a in artifacts}) == 5
    assert {(a.grid, a.block, a.shared_bytes, a.cooperative) for a in artifacts} == {
        (8, 256, 0, False)
    }


@needs_nvrtc
def test_equal_sources_are_compiled_once(counted: list[str]) -> None:
    small, large = scaled("k"), dataclasses.replace(scaled("k"), grid=16)
    artifacts = cuda.build([small, large, small], H200)
    assert len(counted) == 1
    assert [a.grid for a in artifacts] == [8, 16, 8]
    assert len({a.key for a in artifacts}) == 1


@needs_nvrtc
def test_a_store_spares_the_compile(counted: list[str]) -> None:
    store = MemoryStore()
    first = cuda.build_each([scaled("k")], H200, store)
    again = cuda.build_each([scaled("k")], H200, store)
    assert len(counted) == 1
    assert first == again
    cuda.build([scaled("k")], H200, store, arch="sm_80")
    cuda.build([scaled("k")], H200, store, options=(nvrtc.NO_FMA,))
    assert len(counted) == 3


@needs_nvrtc
def test_stored_kernels_need_no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = MemoryStore(), scaled("other")
    first = cuda.build_each([scaled("k"), scaled("l", 3)], H200, store)
    monkeypatch.setattr(nvrtc, "_binding", lambda: None)
    kept, missing, again = cuda.build_each([scaled("l", 3), other, scaled("k")], H200, store)
    assert [again, kept] == first
    assert isinstance(missing, ToolchainError)
    assert "NVRTC cannot be loaded" in str(missing)
    for changed in ({"arch": "sm_80"}, {"options": (nvrtc.NO_FMA,)}):
        [missing] = cuda.build_each([scaled("k")], H200, store, **changed)
        assert isinstance(missing, ToolchainError)
    [missing] = cuda.build_each([scaled("k")], H200)
    assert isinstance(missing, ToolchainError)


@needs_nvrtc
def test_one_broken_kernel_does_not_take_the_others_along() -> None:
    broken = dataclasses.replace(scaled("broken"), source='extern "C" int broken() { return x; }')
    outcomes = cuda.build_each([scaled("a"), broken, scaled("b")], H200)
    assert [type(outcome) for outcome in outcomes] == [Built, ToolchainError, Built]
    with pytest.raises(ToolchainError, match='identifier "x" is undefined'):
        cuda.build([scaled("a"), broken], H200)


@needs_nvrtc
def test_a_kernel_must_be_in_its_source() -> None:
    (outcome,) = cuda.build_each([dataclasses.replace(scaled("k"), name="other")], H200)
    assert isinstance(outcome, ToolchainError)
    assert "holds no kernel of that name" in str(outcome)


def fits(kernel: Kernel, used: Resources) -> Verdict:
    return launchable(kernel, H200, used.registers, used.shared_bytes, used.barriers)


def test_what_does_not_fit_is_not_launchable() -> None:
    kernel, used = scaled("k"), Resources(32, 0, 0, 0, 0, 1)
    assert fits(kernel, used)
    full = dataclasses.replace(kernel, shared_bytes=H200.shared_per_block)
    assert fits(full, used)
    verdict = fits(full, dataclasses.replace(used, shared_bytes=4))
    assert not verdict
    assert ("shared_bytes", H200.shared_per_block + 4) in verdict.facts
    wide = dataclasses.replace(kernel, block=1024)
    assert fits(wide, dataclasses.replace(used, registers=64))
    assert not fits(wide, dataclasses.replace(used, registers=65))


def test_a_cooperative_grid_must_be_resident() -> None:
    used = Resources(32, 0, 0, 0, 0, 1)
    kernel = dataclasses.replace(scaled("k"), cooperative=True, grid=132 * 8)
    assert fits(kernel, used)
    larger = dataclasses.replace(kernel, grid=132 * 8 + 1)
    verdict = fits(larger, used)
    assert not verdict
    assert "cooperative grid of k is larger than what h200 holds" in str(verdict)
    assert fits(dataclasses.replace(larger, cooperative=False), used)
    # named barriers of parts of a block: a multiprocessor has so many
    named = dataclasses.replace(used, barriers=16)
    verdict = fits(kernel, named)
    assert not verdict
    assert ("blocks_per_sm", H200.barriers_per_sm // 16) in verdict.facts
    assert fits(dataclasses.replace(kernel, grid=132 * 4), named)


def test_the_launcher_compiles_and_has_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prebuilt, "image", lambda *_: None)
    store = MemoryStore()
    image = cuda.launcher(store)
    assert cuda.launcher(store) is image
    library = cuda._load(image)
    for stages in HANDLERS["CUDA"].values():
        assert all(hasattr(library, symbol) for symbol in stages.values())


def test_without_a_driver_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(cuda, "_registered", None)
    monkeypatch.setattr(ctypes, "CDLL", no_driver)
    verdict = cuda.register_launcher()
    assert not verdict
    assert "libcuda.so.1: cannot open shared object file" in verdict.reason


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not loaded NVRTC yet."""
    monkeypatch.setattr(nvrtc, "_found_version", [])


@needs_nvrtc
def test_nvrtc_is_not_loaded_for_what_is_in_the_store(
    monkeypatch: pytest.MonkeyPatch, unloaded: None
) -> None:
    store = MemoryStore()
    built = cuda.build_each([scaled("k")], H200, store)
    nvrtc._found_version.clear()
    monkeypatch.setattr(nvrtc, "_binding", lambda: pytest.fail("CuPy is loaded"))
    assert cuda.build_each([scaled("k")], H200, store) == built
    assert nvrtc.remembered(MemoryStore()) is None


@needs_nvrtc
def test_another_version_than_the_remembered_one_builds(counted: list[str], unloaded: None) -> None:
    store = MemoryStore()
    store.put(nvrtc._origin(), b"1.0")
    [built] = cuda.build_each([scaled("k")], H200, store)
    assert isinstance(built, Built)
    assert built.artifact.key == nvrtc.key(scaled("k").source, H200.sm_arch)
    assert len(counted) == 1
    assert store.get(nvrtc._origin()) == nvrtc.version().encode()
