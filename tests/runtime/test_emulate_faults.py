"""The purpose of the emulator: faults of kernels are found and described."""

from dataclasses import replace

import numpy as np
import pytest

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import ToolchainError, VerifyError
from fusionstitch.hlo.graph import Shape
from fusionstitch.runtime import emulate, toolchain

BLOCK = 64
BARRIER = "__syncthreads();"
ARRAY = (Shape("f32", (BLOCK,)),)


def kernel(body, *, inputs=ARRAY, grid=1, block=BLOCK, shared=0, **kw):
    source = f"""#include "fusionstitch.cuh"
extern "C" __global__ void faulty(const float* x, float* y) {{
{body}
}}
"""
    kw = {"scratch": (), "cooperative": False, "template": "hand-written", **kw}
    return Kernel(
        "faulty", source, inputs, ARRAY, grid=grid, block=block, shared_bytes=shared, **kw
    )


X = np.arange(BLOCK, dtype=np.float32)

# Shifts twice through one buffer: each of the three barriers protects against another race.
SHIFT = kernel(
    """
  FS_DYNAMIC_SHARED(memory);
  float* tile = (float*)memory;
  const unsigned t = threadIdx.x;
  tile[t] = x[t];
  __syncthreads();
  const float left = tile[(t + 63) % 64], right = tile[(t + 1) % 64];
  __syncthreads();
  tile[t] = left * right;
  __syncthreads();
  y[t] = tile[(t + 63) % 64] - tile[(t + 1) % 64];""",
    shared=4 * BLOCK,
)


def outcomes(faulty):
    try:
        for order in ("forward", "reversed", "random"):
            emulate.set_order(order, 5)
            [y] = emulate.run(faulty, [X])
            yield y.tobytes()
    finally:
        emulate.set_order("forward")


def test_complete_barriers_give_one_result():
    product = np.roll(X, 1) * np.roll(X, -1)
    assert set(outcomes(SHIFT)) == {(np.roll(product, 1) - np.roll(product, -1)).tobytes()}


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_missing_barrier_changes_the_result_under_some_order(removed):
    parts = SHIFT.source.split(BARRIER)
    assert len(parts) == 4
    text = BARRIER.join(parts[: removed + 1]) + BARRIER.join(parts[removed + 1 :])
    mutant = replace(SHIFT, source=text)
    assert len(set(outcomes(mutant))) > 1


def test_a_missing_grid_barrier_changes_the_result_under_some_order():
    body = """
  const unsigned i = blockIdx.x * 32 + threadIdx.x;
  y[i] = x[i];
  BARRIER
  const float other = y[(i + 32) % 64];
  fs_emulated_grid_barrier();
  y[i] = other;"""
    shape = {"grid": 2, "block": 32, "cooperative": True}
    complete = kernel(body.replace("BARRIER", "fs_emulated_grid_barrier();"), **shape)
    assert len(set(outcomes(complete))) == 1
    assert len(set(outcomes(kernel(body.replace("BARRIER", ""), **shape)))) > 1


@pytest.mark.parametrize("removed", [0, 1])
def test_a_missing_cluster_barrier_changes_the_result_under_some_order(removed):
    body = """
  FS_DYNAMIC_SHARED(memory);
  float* const own = (float*)memory;
  own[threadIdx.x] = -1;
  FIRST
  ((float*)fs_emulated_cluster_shared(own, 1 - blockIdx.x))[threadIdx.x] = x[threadIdx.x];
  SECOND
  y[blockIdx.x * 32 + threadIdx.x] = own[threadIdx.x];
  fs_emulated_cluster_barrier();"""
    shape = {"grid": 2, "block": 32, "cluster": 2, "shared": 128}
    barriers = ["fs_emulated_cluster_barrier();"] * 2

    def text() -> str:
        return body.replace("FIRST", barriers[0]).replace("SECOND", barriers[1])

    assert len(set(outcomes(kernel(text(), **shape)))) == 1
    barriers[removed] = ""
    assert len(set(outcomes(kernel(text(), **shape)))) > 1


def test_blocks_that_read_each_other_change_the_result_under_some_order():
    body = "y[blockIdx.x] = blockIdx.x == 0 ? 1.0f : y[blockIdx.x - 1] + 1.0f;"
    assert len(set(outcomes(kernel(body, grid=BLOCK, block=1)))) > 1


FAULTS = {
    "a shuffle that some lanes skip": (
        "if (threadIdx.x % 32 < 16) y[threadIdx.x] = __shfl_sync(~0u, x[0], 0); __syncthreads();",
        {},
        r"deadlock in block 0: 32 threads wait at __syncthreads, 0 at the grid barrier, 0 at a "
        r"team's barrier, 32 at a warp collective, 0 have exited; thread 16 waits at the "
        r"barrier in faulty.cu:3; thread 0 waits for the lanes 0xffffffff",
    ),
    "two different barriers": (
        "if (threadIdx.x < 32) {\n __syncthreads();\n y[0] = 0;\n } else {\n __syncthreads();\n }",
        {},
        r"kernel faulty_\w+: threads of block 0 wait at different __syncthreads, in faulty.cu:4 "
        r"and faulty.cu:7",
    ),
    "a shuffle that meets a vote": (
        "y[threadIdx.x] = threadIdx.x % 32 == 0 ? __shfl_sync(~0u, x[0], 1) : __any_sync(~0u, 1);",
        {},
        "thread 0 waits for the lanes 0xffffffff of its warp, others wait at another collective",
    ),
    "a mask without its caller": (
        "y[threadIdx.x] = __shfl_sync(1u, x[0], 0);",
        {},
        "thread 1 calls a warp collective whose mask 0x00000001 leaves it out",
    ),
    "a mask that names lanes of the warp that have exited": (
        "if (threadIdx.x % 32 > 23) return; __nanosleep(1); y[threadIdx.x] = __any_sync(~0u, 1);",
        {},
        "mask 0xffffffff names lanes that have exited or never were: 0x00ffffff are there",
    ),
    "a mask that names lanes which never were": (
        "__syncwarp();",
        {"block": 40},
        "block 0, thread 32 .* mask 0xffffffff names lanes that .* 0x000000ff are there",
    ),
    "a lane that exits while others wait for it": (
        "if (threadIdx.x % 32 < 16) y[threadIdx.x] = __shfl_sync(~0u, x[0], 0);",
        {},
        "thread 16 exits while thread 0 waits for it at a warp collective of mask 0xffffffff",
    ),
    "a shuffle from a lane that takes no part": (
        "if (threadIdx.x % 32 < 16) y[threadIdx.x] = __shfl_sync(0xffffu, x[0], 20);",
        {},
        "thread 0 reads from lane 20 in a shuffle whose mask 0x0000ffff leaves that out",
    ),
    "a thread that exits before the others meet": (
        "if (threadIdx.x == 0) return;\n __syncthreads();",
        {},
        "thread 1 waits at __syncthreads in faulty.cu:4, but 1 threads of the block have exited",
    ),
    "a thread that exits while the others wait": (
        "if (threadIdx.x == 63) return;\n __syncthreads();",
        {},
        "thread 63 exits while 63 threads of the block wait at __syncthreads in faulty.cu:4",
    ),
    "a block that exits while others wait for the grid": (
        "if (blockIdx.x == 0) fs_grid_barrier(); else __syncthreads();",
        {"grid": 2, "block": 32, "cooperative": True},
        "block 1, thread 0 exits while 32 threads wait at the grid barrier in faulty.cu:3",
    ),
    "a block that exits before others wait for the cluster": (
        "if (blockIdx.x == 1) { __nanosleep(1); fs_cluster_barrier(); }",
        {"grid": 2, "block": 32, "cluster": 2},
        "block 1, thread 0 waits at the cluster barrier in faulty.cu:3, but 32 threads have exited",
    ),
    "teams of two sizes at one barrier": (
        "if (threadIdx.x < 32) {\n fs_emulated_named_barrier(1, 64);\n }"
        " else if (threadIdx.x < 64) {\n fs_emulated_named_barrier(1, 32);\n }",
        {"block": 96},
        "thread 32 brings a team of 32 threads to barrier 1 in faulty.cu:6, where 32 of a team of "
        "64 threads wait in faulty.cu:4",
    ),
    "a vector at an odd place": (
        "*(fs_vec<float, 4>*)(y + 4 * threadIdx.x + 1) = fs_vec<float, 4>{};",
        {"block": 4},
        r"block 0, thread 0 accesses the address 0x\w+4, which is no multiple of 16, in "
        r"faulty.cu:3",
    ),
    "a vector at an odd place of shared memory": (
        "FS_DYNAMIC_SHARED(m); y[threadIdx.x] = fs_load_vec<float, 2>((float*)m + threadIdx.x)[1];",
        {"shared": 512},
        r"block 0, thread 1 accesses the address 0x\w+4, which is no multiple of 8, in types.cuh",
    ),
    "a number at an odd place": (
        "y[0] = ((const float*)((const char*)x + 2))[threadIdx.x];",
        {},
        r"accesses the address 0x\w+2, which is no multiple of 4, in faulty.cu:3",
    ),
    "a team's barrier that some threads skip": (
        "if (threadIdx.x % 64 < 48) fs_team_barrier<64>();",
        {},
        r"48 at a team's barrier, 0 at a warp collective, 16 have exited; thread 0 waits at the "
        r"barrier 1 in faulty.cu:3",
    ),
    "more teams than barriers": (
        "fs_team_barrier<32>();",
        {"block": 512},
        "barrier 16 of 32 threads in faulty.cu:3: barriers are numbered 1 to 15 and take whole",
    ),
    "a grid barrier in an ordinary launch": (
        "fs_emulated_grid_barrier();",
        {},
        "a grid barrier in a launch that is not cooperative",
    ),
    "a block that skips the grid barrier": (
        "if (blockIdx.x == 0) fs_emulated_grid_barrier(); else { __syncthreads();"
        " if (threadIdx.x < 16) fs_emulated_grid_barrier(); else __syncthreads(); }",
        {"grid": 2, "block": 32, "cooperative": True},
        "deadlock in block 0: 0 threads wait at __syncthreads, 32 at the grid barrier, .*; "
        "thread 0 waits at the barrier in faulty.cu:3",
    ),
    "a cluster barrier in an ordinary launch": (
        "fs_emulated_cluster_barrier();",
        {},
        "a cluster barrier in a launch without clusters",
    ),
    "a block that skips the cluster barrier": (
        "if (blockIdx.x == 0) fs_emulated_cluster_barrier(); else { __syncthreads();"
        " if (threadIdx.x < 16) fs_emulated_cluster_barrier(); else __syncthreads(); }",
        {"grid": 2, "block": 32, "cluster": 2},
        "deadlock in block 0: 0 threads wait at __syncthreads, 32 at the cluster barrier",
    ),
    "shared memory of a block that has exited": (
        "FS_DYNAMIC_SHARED(m); if (blockIdx.x == 0) { __nanosleep(1);"
        " y[0] = *(float*)fs_emulated_cluster_shared(m, 1); }",
        {"grid": 2, "block": 32, "cluster": 2, "shared": 4},
        "block 0 reaches for the shared memory of block 1, which has exited",
    ),
    "a block beyond the cluster": (
        "FS_DYNAMIC_SHARED(m); y[0] = *(float*)fs_emulated_cluster_shared(m, 2);",
        {"grid": 2, "block": 32, "cluster": 2, "shared": 4},
        "block 0 reaches for block 2 of a cluster of 2",
    ),
    "blocks left over by clusters": (
        "",
        {"grid": 3, "cluster": 2},
        "3 blocks cannot be launched in clusters of 2",
    ),
    "waiting for nobody": (
        "while (((volatile float*)y)[0] != 3.0f) __nanosleep(10);",
        {"block": 1},
        "1 threads wait in loops for something that no other thread does",
    ),
    "a trap": ("if (threadIdx.x == 5) __trap();", {}, r"__trap\(\) \(block 0, thread 5\)"),
    "more shared memory than any device has": (
        "",
        {"shared": (227 << 10) + 1},
        "cannot be launched with 1 blocks of 64 threads and 232449 bytes of shared memory",
    ),
    "larger clusters than any device has": ("", {"grid": 32, "cluster": 32}, "in clusters of 32"),
    "a write past shared memory": (
        "FS_DYNAMIC_SHARED(m); ((float*)m)[threadIdx.x] = 1; y[threadIdx.x] = 0;",
        {"shared": 4 * BLOCK - 4},
        "block 0 wrote shared memory at byte 252, past its 252 bytes",
    ),
    "a write past an output": ("y[threadIdx.x + 1] = 0;", {}, "outside output 0 of kernel faulty"),
    "a write to an input": ("((float*)x)[0] = 7;", {}, "Kernel faulty wrote to its input 0"),
    "too many threads": ("", {"block": 1025}, "1 blocks of 1025 threads and 0 bytes"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_reported(fault):
    body, shape, message = FAULTS[fault]
    with pytest.raises(VerifyError, match=message):
        emulate.run(kernel(body, **shape), [X])
    # the emulator is fine afterwards
    assert len(set(outcomes(SHIFT))) == 1


def test_what_the_device_could_not_launch_is_refused():
    small = replace(device("emulated"), sm_count=1)
    whole = kernel("", block=1024, grid=2, cooperative=True)
    assert len(emulate.build([whole], device=small)) == 1
    for refused, message in (
        (replace(whole, grid=3), "cooperative grid of faulty is larger than what emulated holds"),
        (replace(whole, shared_bytes=200_000), "cooperative grid of faulty is larger"),
        (kernel("", shared=small.shared_per_block + 1), "block of faulty does not fit"),
        (kernel("", cluster=16, grid=16), "emulated has no clusters as large as those of faulty"),
    ):
        assert emulate.build([replace(refused, cooperative=False, cluster=1, shared_bytes=0)])
        with pytest.raises(ToolchainError, match=message):
            emulate.build([refused], device=small)


def test_wrong_inputs_are_refused():
    with pytest.raises(VerifyError, match=r"takes f32\[64\], but was given float64\[64\]"):
        emulate.run(SHIFT, [X.astype(np.float64)])
    with pytest.raises(VerifyError, match=r"takes f32\[64\], but was given \."):
        emulate.run(SHIFT, [])


def test_a_large_local_array_is_refused_when_compiling():
    body = "volatile float local[20000]; local[threadIdx.x] = x[0]; y[0] = local[3];"
    with pytest.raises(ToolchainError, match="frame size"):
        emulate.run(kernel(body), [X])


def test_code_that_does_not_compile_shows_the_line_of_the_kernel():
    with pytest.raises(ToolchainError, match=r"faulty.cu:3:\d+: error: .*nonsense"):
        emulate.run(kernel("nonsense;"), [X])


def test_static_shared_memory_is_refused():
    with pytest.raises(ToolchainError, match="this_emulator_has_only_FS_DYNAMIC_SHARED"):
        emulate.run(kernel("__shared__ float tile[4];"), [X])


def test_a_kernel_with_another_number_of_parameters_is_refused():
    with pytest.raises(ToolchainError, match="too many arguments"):
        emulate.run(kernel("", scratch=ARRAY), [X])


def test_what_was_refused_is_not_taken_for_what_is_loaded_next():
    """dlopen gives the library that it has under a path, whatever the file there holds by now."""
    foreign = toolchain.compile_shared("int nothing_of_ours;")
    for number in range(3):
        with pytest.raises(ToolchainError, match="another version"):
            emulate._load(foreign)
        one = kernel(f"  y[threadIdx.x] = x[threadIdx.x] + {number}.125f;")
        np.testing.assert_array_equal(emulate.run(one, [X])[0], X + np.float32(number + 0.125))
