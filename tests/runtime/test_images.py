"""Truncated code is rejected, where it is built and where it is passed to the driver."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from types import ModuleType

import pytest

from fusionstitch.runtime import cuda, images

SOURCE = """
extern "C" __global__ void scaled(float* x, int n) {
  __shared__ float row[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x % 64] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) x[i] = row[(threadIdx.x + 1) % 64] * expf(x[i]);
}
"""
IsWhole = Callable[[bytes], bool]


@pytest.fixture(scope="module", params=["images.py", "launcher_cuda.cc"])
def is_whole(request: pytest.FixtureRequest) -> IsWhole:
    if request.param == "images.py":
        return images.is_whole
    request.getfixturevalue("host_compiler")
    function = cuda._load(cuda.launcher()).fs_is_whole
    function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_bool
    return lambda image: function(image, len(image))


@pytest.fixture(scope="module", params=["sm_80", "sm_90", "sm_100"])
def cubin(request: pytest.FixtureRequest, nvrtc: ModuleType) -> bytes:
    image: bytes = nvrtc.compile(SOURCE, request.param).image
    return image


def test_a_cubin_is_whole(is_whole: IsWhole, cubin: bytes) -> None:
    assert is_whole(cubin)
    assert is_whole(cubin + b"more")


def test_a_cubin_cut_anywhere_is_not(is_whole: IsWhole, cubin: bytes) -> None:
    assert [n for n in range(len(cubin)) if is_whole(cubin[:n])] == []


def test_what_is_no_cubin_is_not_whole(is_whole: IsWhole) -> None:
    for other in (b"", b"no code at all", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + bytes(99)):
        assert not is_whole(other)


@pytest.mark.parametrize("field", [0x20, 0x28, 0x36, 0x38, 0x3A, 0x3C])
def test_tables_that_lie_elsewhere_are_not_there(
    is_whole: IsWhole, cubin: bytes, field: int
) -> None:
    """Places, sizes and numbers of program and section headers, all bits set."""
    size = 8 if field < 0x30 else 2
    assert not is_whole(cubin[:field] + b"\xff" * size + cubin[field + size :])


def test_no_change_of_a_header_is_read_beyond_the_end(is_whole: IsWhole, cubin: bytes) -> None:
    rng = random.Random(0)
    start = int.from_bytes(cubin[0x28:0x30], "little")
    found = set()
    for _ in range(2000):
        changed = bytearray(cubin)
        at = rng.choice([rng.randrange(64), rng.randrange(start, len(cubin))])
        changed[at] = rng.randrange(256)
        found.add(is_whole(bytes(changed)))
    assert found == {False, True}
