"""Checked kernels: accesses not ordered by a barrier are found in every order of threads."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Shape
from fusionstitch.runtime import emulate
from fusionstitch.runtime.artifact import Artifact
from tests.codegen.regions import launched

N = 128
HEAD = f"""
  FS_DYNAMIC_SHARED(memory);
  float* const tile = (float*)memory;
  const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  const unsigned next = t ^ 1, across = t ^ 32, other = t ^ 64, far = i ^ {N // 2};
"""
TWO = {"grid": 2, "block": N // 2, "cooperative": True}
PAIR = {"grid": 2, "block": N // 2, "cluster": 2}
CLUSTER = "float* const theirs = (float*)fs_emulated_cluster_shared(tile, 1 - blockIdx.x % 2);"
MEET = "fs_cluster_barrier();"

#: Statements, the launch, and what must be found; "" where all is in order.
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a block meets": ("tile[t] = x[t]; __syncthreads(); y[t] = tile[other];", {}, ""),
    "what a block reads is overwritten after it met": (
        "tile[t] = x[t]; __syncthreads(); float a = tile[other]; __syncthreads(); tile[t] = a;"
        " y[t] = tile[t];",
        {},
        "",
    ),
    "no barrier": (
        "tile[t] = x[t]; y[t] = tile[other];",
        {},
        "reads byte 256 of shared memory, which nothing was written to",
    ),
    "written too late": (
        "tile[t] = 0; __syncthreads();\n tile[t] = x[t]; y[t] = tile[other];",
        {},
        "block 0, thread 64 overwrites byte 256 of shared memory, which block 0, thread 0 may "
        "still have to read; the last barrier of thread 64 is checked.cu:9",
    ),
    "overwritten too early": (
        "tile[t] = x[t]; __syncthreads(); float a = tile[other]; tile[t] = a; y[t] = a;",
        {},
        "thread 64 reads byte 0 of shared memory, which block 0, thread 0 wrote",
    ),
    "two threads write": (
        "tile[t / 2] = x[t]; __syncthreads(); y[t] = tile[t / 2];",
        {},
        "thread 1 overwrites byte 0 of shared memory, which block 0, thread 0 wrote",
    ),
    "neighbours write bytes of a word": (
        "memory[t] = t; __syncthreads(); y[t] = memory[next];",
        {},
        "",
    ),
    "neighbours exchange bytes of a word": (
        "memory[t] = t; __syncthreads(); memory[t] = memory[next]; y[t] = 0;",
        {},
        "thread 1 reads byte 0 of shared memory, which block 0, thread 0 wrote",
    ),
    "bytes of a word that was written whole": (
        "tile[t] = x[t]; y[t] = memory[4 * next + 1];",
        {},
        "reads byte 5 of shared memory, which nothing was written to",
    ),
    "a vector of what four threads wrote": (
        "tile[t] = x[t]; __syncthreads(); y[t] = fs_load_vec<float, 4>(tile + t / 4 * 4)[t % 4];",
        {},
        "",
    ),
    "a warp meets": ("tile[t] = x[t]; __syncwarp(); y[t] = tile[next];", {}, ""),
    "a shuffle is no barrier": (
        "tile[t] = __shfl_xor_sync(~0u, x[t], 1); y[t] = 0;\n"
        " if (__shfl_sync(~0u, t, 0) < N) y[t] = tile[next];".replace("N", str(N)),
        {},
        "thread 0 reads byte 4 of shared memory, which block 0, thread 1 wrote",
    ),
    "a warp is no block": (
        "tile[t] = x[t]; __syncwarp(); y[t] = tile[across];",
        {},
        "thread 0 reads byte 128 of shared memory, which block 0, thread 32 wrote",
    ),
    "half a warp meets": (
        "tile[t] = x[t]; __syncwarp(t % 32 < 16 ? 0xffffu : 0xffff0000u); y[t] = tile[t ^ 15];",
        {},
        "",
    ),
    "half a warp is no warp": (
        "tile[t] = 0; __syncthreads(); tile[t] = x[t];"
        " __syncwarp(t % 32 < 16 ? 0xffffu : 0xffff0000u); y[t] = tile[t ^ 16];",
        {},
        r"thread 0 reads byte 64 of shared memory, which block 0, thread 16 wrote",
    ),
    "a team meets": ("tile[t] = x[t]; fs_team_barrier<64>(); y[t] = tile[across];", {}, ""),
    "a team is no block": (
        "tile[t] = 0; __syncthreads(); tile[t] = x[t]; fs_team_barrier<64>(); y[t] = tile[other];",
        {},
        r"reads byte \d+ of shared memory, which block 0, thread \d+ wrote",
    ),
    "teams that overlap pass on what they know": (
        "tile[t] = 0; __syncthreads(); if (t < 32) tile[t] = x[t];"
        " if (t < 64) fs_emulated_named_barrier(1, 64);"
        " if (t / 32 == 1 || t / 32 == 2) fs_emulated_named_barrier(2, 64);"
        " y[t] = t / 32 == 2 ? tile[other] : 0;",
        {},
        "",
    ),
    "readers in several warps": (
        "if (t == 0) tile[0] = x[0]; __syncthreads(); y[t] = tile[0]; fs_team_barrier<64>();"
        " if (t == 0) tile[0] = 1;",
        {},
        "overwrites byte 0 of shared memory, which several warps of its block may still have to",
    ),
    "readers in one warp": (
        "if (t == 0) tile[0] = x[0]; __syncthreads(); if (t < 32) y[t] = tile[0]; else y[t] = 0;"
        " __syncwarp(); if (t == 0) tile[0] = 1;",
        {},
        "",
    ),
    "blocks write apart": ("y[i] = x[i];", {"grid": 2, "block": N // 2}, ""),
    "blocks write the same": (
        "y[t] = x[t]; y[t + 64] = 0;",
        {"grid": 2, "block": N // 2},
        "block 1, thread 0 overwrites byte 0 of output 0, which another block wrote",
    ),
    "a grid meets": ("z[i] = x[i]; fs_grid_barrier(); y[i] = z[far];", TWO, ""),
    "a block is no grid": (
        "z[i] = 0; fs_grid_barrier(); z[i] = x[i]; __syncthreads(); y[i] = z[far];",
        TWO,
        r"block 0, thread 0 reads byte 256 of scratch 0, which block 1, thread 0 wrote",
    ),
    "scratch is read before it is written": (
        "y[i] = z[i]; z[i] = x[i];",
        TWO,
        "block 0, thread 0 reads byte 0 of scratch 0, which nothing was written to",
    ),
    "scratch is used again too early": (
        "z[i] = x[i]; fs_grid_barrier(); y[i] = z[far]; __syncthreads(); z[i] = 0;",
        TWO,
        "overwrites byte 0 of scratch 0, which block 1, thread 0 may still have to read",
    ),
    "scratch that all blocks read is used again too early": (
        "z[i] = x[i]; fs_grid_barrier(); y[i] = z[0]; __syncthreads(); if (i == 0) z[0] = 0;",
        TWO,
        "overwrites byte 0 of scratch 0, which other blocks may still have to read",
    ),
    "a cluster meets": (
        f"{CLUSTER} {MEET} theirs[t] = x[i]; {MEET} y[i] = tile[t];",
        PAIR,
        "",
    ),
    "a block is no cluster": (
        f"{CLUSTER} tile[t] = 0; {MEET} theirs[t] = x[i]; __syncthreads(); y[i] = tile[t]; {MEET}",
        PAIR,
        "block 0, thread 0 reads byte 0 of shared memory, which block 1, thread 0 wrote",
    ),
    "the other block may not have begun": (
        f"{CLUSTER} theirs[t] = x[i]; {MEET} y[i] = tile[t];",
        PAIR,
        "block 0, thread 0 uses the shared memory of block 1, which may not have begun",
    ),
    "the other block may be over": (
        f"{CLUSTER} tile[t] = x[i]; {MEET} y[i] = theirs[t];",
        PAIR,
        "exits while another block of the cluster may still use its block's shared memory",
    ),
    "shared memory of another block": (
        "y[i] = 0; tile[t] = x[i]; if (i == 0) y[0] = tile[256];",
        {**TWO, "shared": 512},
        r"accesses byte \d+ of shared memory, which has 512|shared memory of block 1",
    ),
    "past shared memory": (
        "y[t] = tile[t + 1];",
        {},
        "reads byte 4 of shared memory, which nothing|accesses byte 512 of shared memory",
    ),
    "past an input": (
        "y[t] = x[t + 1];",
        {},
        f"block 0, thread {N - 1} accesses byte {4 * N} of input 0, which has {4 * N}",
    ),
    "before an input": ("y[t] = x[(int)t - 1];", {}, "thread 0 accesses byte -4 of input 0"),
    "an input is written": (
        "((float*)x)[t] = 0; y[t] = 0;",
        {},
        "block 0, thread 0 writes to input 0",
    ),
    "atomics need no barrier": (
        "if (t == 0) tile[0] = 0; __syncthreads(); atomicAdd(tile, x[t]); __syncthreads();"
        " y[t] = tile[0];",
        {},
        "",
    ),
    "what atomics add up needs one": (
        "if (t == 0) tile[0] = 0; __syncthreads(); atomicAdd(tile, x[t]); y[t] = tile[0];",
        {},
        "thread 1 .* byte 0 of shared memory, which block 0, thread 0",
    ),
}


def kernel(body: str, shape: dict[str, Any]) -> Kernel:
    source = f"""#include "fusionstitch.cuh"
extern "C" __global__ void checked(const float* x, float* y, float* z) {{
{HEAD}
{body}
}}
"""
    array = (Shape("f32", (N,)),)
    shape = {"grid": 1, "block": N, "shared": 4 * N, "cooperative": False, **shape}
    shape["shared_bytes"] = shape.pop("shared")
    return Kernel("checked", source, array, array, array, template="hand-written", **shape)


KERNELS = {name: kernel(body, shape) for name, (body, shape, _) in CASES.items()}
X = np.arange(N, dtype=np.float32)
IN_PLACE = kernel("y[t] = x[other];", {})


@pytest.fixture(scope="module")
def built(host_compiler: str) -> dict[str, Artifact]:
    artifacts = emulate.build([*KERNELS.values(), IN_PLACE], checked=True)
    return dict(zip([*KERNELS, "in place"], artifacts, strict=True))


@pytest.mark.parametrize("order", ["forward", "reversed", "random"])
@pytest.mark.parametrize("name", CASES)
def test_what_no_barrier_orders_is_found(
    built: dict[str, Artifact], name: str, order: emulate.Order
) -> None:
    message = CASES[name][2]
    wanted = message if order == "forward" else r"block \d, thread \d+ "
    emulate.set_order(order, 3)
    try:
        with pytest.raises(VerifyError, match=wanted) if message else nullcontext():
            launched(KERNELS[name], built[name], [X])
    finally:
        emulate.set_order("forward")


def test_results_that_overwrite_what_others_read_are_found(built: dict[str, Artifact]) -> None:
    [apart] = launched(IN_PLACE, built["in place"], [X])
    assert apart.tolist() == [*X[64:], *X[:64]]
    memory = X.copy()
    scratch = np.zeros_like(X)
    addresses = [memory.ctypes.data, memory.ctypes.data, scratch.ctypes.data]
    with pytest.raises(VerifyError, match=r"thread 64 reads byte 0 of output 0, which .* 0 wrote"):
        emulate.launch(built["in place"], addresses)


def test_the_variable_asks_for_checks(host_compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    racy = KERNELS["written too late"]
    emulate.run(racy, [X])
    monkeypatch.setenv("FUSIONSTITCH_CHECK", "1")
    with pytest.raises(VerifyError, match="thread 64 overwrites byte 256"):
        emulate.run(racy, [X])
    [plain] = emulate.build([racy], checked=False)
    launched(racy, plain, [X])
