"""NVRTC without a GPU: cubins, resource reports, and error messages."""

from __future__ import annotations

import pytest

from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.runtime import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason=nvrtc.available().reason)

COPY = 'extern "C" __global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[0]; }\n'
STAGED = """
extern "C" __global__ void staged(const float* x, float* y) {
  __shared__ float tile[256];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[255 - threadIdx.x];
}
"""
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const float* x, float* y) {
  float a[100];
#pragma unroll
  for (int i = 0; i < 100; i++) a[i] = x[i * 1024 + threadIdx.x];
#pragma unroll
  for (int i = 0; i < 100; i++) { float s = a[(i * 7 + 3) % 100]; a[i] = a[i] * s + a[99 - i]; }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 100; i++) y[i * 1024 + threadIdx.x] = a[i];
}
"""


def test_preparing_loads_nvrtc_once() -> None:
    thread = nvrtc.prepare()
    thread.join()
    assert nvrtc.prepare() is thread
    assert nvrtc._uncached.cache_info().currsize == 1


def test_a_kernel_becomes_a_cubin() -> None:
    compiled = nvrtc.compile(COPY)
    assert compiled.image[:4] == b"\x7fELF"
    assert [entry for entry, _ in compiled.resources] == ["copy"]


def test_equal_sources_give_equal_cubins() -> None:
    assert nvrtc.compile(COPY).image == nvrtc.compile(COPY).image


def test_compiling_again_reports_the_same_resources() -> None:
    first, again = nvrtc.compile(STAGED), nvrtc.compile(STAGED)
    assert first.resources == again.resources != ()


def test_static_shared_memory_and_barriers_are_reported() -> None:
    ((_, used),) = nvrtc.compile(STAGED).resources
    assert (used.shared_bytes, used.barriers) == (1024, 1)
    assert (used.stack_bytes, used.spills) == (0, False)
    assert 0 < used.registers <= 32


def test_spills_are_reported() -> None:
    ((_, used),) = nvrtc.compile(SPILLING).resources
    assert used.registers == 32  # 1024 threads twice on a multiprocessor of 65536 registers
    assert used.spills
    assert used.spill_store_bytes >= 4
    assert used.stack_bytes >= 4


def test_several_entries_in_one_program_are_distinguished() -> None:
    report = dict(nvrtc.compile(COPY + STAGED).resources)
    assert list(report) == ["copy", "staged"]
    assert report["copy"].shared_bytes == 0
    assert report["staged"].shared_bytes == 1024


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_targets_of_the_project_are_supported(arch: str) -> None:
    assert arch in nvrtc.architectures()
    assert nvrtc.compile(STAGED, arch).resources[0][1].barriers == 1


def test_a_refusal_quotes_the_line() -> None:
    with pytest.raises(ToolchainError) as caught:
        nvrtc.compile(COPY + "__device__ int broken() { return undeclared; }\n")
    message = str(caught.value)
    assert 'identifier "undeclared" is undefined' in message
    assert "     2 | __device__ int broken() { return undeclared; }" in message
    assert 'fallback="xla"' in message


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(ToolchainError, match="sm_12345"):
        nvrtc.compile(COPY, "sm_12345")


def test_the_key_follows_source_target_and_options() -> None:
    base = nvrtc.key(COPY, "sm_90")
    assert base == nvrtc.key(COPY, "sm_90")
    others = {
        nvrtc.key(STAGED, "sm_90"),
        nvrtc.key(COPY, "sm_80"),
        nvrtc.key(COPY, "sm_90", (nvrtc.NO_FMA,)),
    }
    assert len(others | {base}) == 4
    assert len(base) == 64


def test_the_grid_barrier_needs_no_memory_from_the_kernel() -> None:
    source = """#include "fusionstitch.cuh"
extern "C" __global__ void twice(const float* x, float* y, float* z) {
  y[blockIdx.x] = x[blockIdx.x];
  fs_grid_barrier();
  z[blockIdx.x] = y[gridDim.x - 1 - blockIdx.x];
}
"""
    ((entry, used),) = nvrtc.compile(source).resources
    assert (entry, used.shared_bytes, used.stack_bytes) == ("twice", 0, 0)
    assert used.barriers == 1


LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'b' for 'sm_90'
ptxas info    : Function properties for b
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Function properties for helper
ptxas         .     32 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 2 barriers, 48 bytes cumulative stack size, 512 bytes smem
ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 368 bytes cmem[0]
"""


def test_a_log_is_read_by_entry() -> None:
    assert nvrtc.parse_resources(LOG) == (
        ("a", nvrtc.Resources(8, 0, 0, 0, 0, 0)),
        ("b", nvrtc.Resources(40, 512, 48, 8, 4, 2)),
    )


def test_without_the_library_the_reason_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvrtc, "_binding", lambda: None)
    verdict = nvrtc.available()
    assert not verdict
    assert "pip install cupy-cuda13x" in verdict.reason
    with pytest.raises(ToolchainError, match="pip install"):
        nvrtc.compile(COPY)
