"""Delays around barriers: kernels compute the same, and a missing barrier is detected."""

from __future__ import annotations

import numpy as np
import pytest

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler import builders
from fusionstitch.compiler.built import Built
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Shape
from fusionstitch.options import Options
from fusionstitch.runtime import emulate, nvrtc
from fusionstitch.runtime.toolchain import MemoryStore

THREADS, BLOCKS = 256, 3
BEFORE_WRITING = "__syncthreads();  // before writing"
#: Each thread reads what its neighbour on the right wrote, and writes over its own, but for the
#: last one, which may be the first after a barrier. Threads that run one after the other from left
#: to right do not miss the barrier in between.
STEPS = f"""
  FS_DYNAMIC_SHARED(memory);
  float* held = (float*)memory;
  const int i = threadIdx.x, right = i + 1 < {THREADS} ? i + 1 : i;
  held[i] = x[blockIdx.x * {THREADS} + i];
  __syncthreads();
  const float value = held[right];
  {BEFORE_WRITING}
  if (right != i) held[i] = -1.0f;
  fs_team_barrier<64>();
  z[blockIdx.x * {THREADS} + i] = value;
  fs_grid_barrier();
  y[blockIdx.x * {THREADS} + i] = z[(gridDim.x - 1 - blockIdx.x) * {THREADS} + i];
"""


def kernel(name: str, steps: str) -> Kernel:
    source = f"""#include "fusionstitch.cuh"
extern "C" __global__ void {name}(const float* x, float* y, float* z) {{
{steps}
}}
"""
    shape = Shape("f32", (BLOCKS, THREADS))
    return Kernel(
        *(name, source, (shape,), (shape,), (shape,), BLOCKS, THREADS, THREADS * 4, True),
        template="hand-written",
    )


GIVEN = np.arange(BLOCKS * THREADS, dtype=np.float32).reshape(BLOCKS, THREADS)
WANTED = np.roll(GIVEN, -1, 1)[::-1].copy()
WANTED[:, -1] = GIVEN[::-1, -1]


def ran(one: Kernel) -> np.ndarray:
    [found] = emulate.run(one, [GIVEN], store=MemoryStore())
    return found


@pytest.fixture
def delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_DELAYS", "1")


@pytest.mark.usefixtures("host_compiler", "delayed")
def test_a_kernel_with_delays_does_the_same() -> None:
    assert (ran(kernel("right", STEPS)) == WANTED).all()


@pytest.mark.usefixtures("host_compiler")
def test_delays_show_a_barrier_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = kernel("wrong", STEPS.replace(BEFORE_WRITING, ""))
    emulate.set_order("forward")
    assert (ran(wrong) == WANTED).all()
    monkeypatch.setenv("FUSIONSTITCH_DELAYS", "1")
    assert not (ran(wrong) == WANTED).all()


@pytest.mark.skipif(not nvrtc.available(), reason=nvrtc.available().reason)
def test_a_gpu_waits_around_every_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    one, h200 = kernel("right", STEPS), device("h200")
    build = builders.cuda(h200, Options())
    [default] = build([one])
    monkeypatch.setenv("FUSIONSTITCH_DELAYS", "1")
    [waits] = build([one])
    assert isinstance(default, Built)
    assert isinstance(waits, Built)
    assert default.artifact.key != waits.artifact.key
    flag = ("-DFUSIONSTITCH_DELAYS",)
    texts = [nvrtc.ptx(one.source, h200.sm_arch, options) for options in ((), flag)]
    # the barrier of the grid holds two of the block
    assert [text.count("nanosleep") for text in texts] == [0, 2 * (2 + 1 + 2)]
