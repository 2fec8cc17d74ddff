"""Hand-written kernels on the emulator, without XLA."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.hlo.graph import Shape
from fusionstitch.runtime import emulate
from fusionstitch.runtime.toolchain import MemoryStore

ORDERS = [("forward", 0), ("reversed", 0), ("random", 1), ("random", 2)]


@pytest.fixture(params=ORDERS, ids=lambda o: f"{o[0]}{o[1]}")
def order(request):
    emulate.set_order(*request.param)
    yield
    emulate.set_order("forward")


def kernel(
    name, parameters, body, inputs, outputs, *, scratch=(), grid=1, block=64, shared=0, **kw
):
    source = f"""#include "fusionstitch.cuh"
extern "C" __global__ void {name}({parameters}) {{
{body}
}}
"""
    kw = {"cooperative": False, "template": "hand-written", **kw}
    return Kernel(name, source, inputs, outputs, scratch, grid, block, shared, **kw)


ROWS, COLUMNS = 8, 300
SOFTMAX = kernel(
    "softmax",
    "const float* __restrict__ x, float* y",
    f"""
  FS_DYNAMIC_SHARED(memory);
  float* partial = (float*)memory;
  const float* row = x + blockIdx.x * {COLUMNS};
  const unsigned t = threadIdx.x, warp = t / 32, lane = t % 32, warps = blockDim.x / 32;
  float top = -INFINITY;
  for (unsigned i = t; i < {COLUMNS}; i += blockDim.x) top = fmaxf(top, row[i]);
  for (int m = 16; m > 0; m /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, m));
  if (lane == 0) partial[warp] = top;
  __syncthreads();
  top = partial[0];
  for (unsigned w = 1; w < warps; ++w) top = fmaxf(top, partial[w]);
  __syncthreads();
  float sum = 0;
  for (unsigned i = t; i < {COLUMNS}; i += blockDim.x) sum += expf(row[i] - top);
  for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
  if (lane == 0) partial[warp] = sum;
  __syncthreads();
  sum = partial[0];
  for (unsigned w = 1; w < warps; ++w) sum += partial[w];
  for (unsigned i = t; i < {COLUMNS}; i += blockDim.x)
    y[blockIdx.x * {COLUMNS} + i] = expf(row[i] - top) / sum;""",
    (Shape("f32", (ROWS, COLUMNS)),),
    (Shape("f32", (ROWS, COLUMNS)),),
    grid=ROWS,
    block=128,
    shared=16,
)


def rows():
    return np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)


def softmax(x):
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_block_softmax_is_the_same_in_every_order(order):
    [y] = emulate.run(SOFTMAX, [rows()])
    emulate.set_order("forward")
    [forward] = emulate.run(SOFTMAX, [rows()])
    np.testing.assert_allclose(y, softmax(rows()), rtol=1e-6)
    np.testing.assert_array_equal(y, forward)


GRID_SUM = kernel(
    "grid_sum",
    "const float* x, float* y, float* partial",
    """
  partial[blockIdx.x * blockDim.x + threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  fs_emulated_grid_barrier();
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x * blockDim.x; ++i) sum += partial[i];
  fs_emulated_grid_barrier();
  partial[blockIdx.x * blockDim.x + threadIdx.x] = sum + blockIdx.x;
  fs_emulated_grid_barrier();
  const unsigned other = (blockIdx.x + 1) % gridDim.x;
  y[blockIdx.x * blockDim.x + threadIdx.x] = partial[other * blockDim.x + threadIdx.x];""",
    (Shape("f32", (12, 32)),),
    (Shape("f32", (12, 32)),),
    scratch=(Shape("f32", (12, 32)),),
    grid=12,
    block=32,
    cooperative=True,
)


def test_a_grid_barrier_carries_values_between_blocks(order):
    x = np.arange(12 * 32, dtype=np.float32).reshape(12, 32)
    [y] = emulate.run(GRID_SUM, [x])
    want = np.repeat(x.sum() + (np.arange(12) + 1) % 12, 32).reshape(12, 32)
    np.testing.assert_array_equal(y, want)


CLUSTERS = kernel(
    "clusters",
    "const float* x, float* y",
    """
  FS_DYNAMIC_SHARED(shared_memory);
  float* const own = (float*)shared_memory;
  fs_emulated_cluster_barrier();
  const unsigned rank = blockIdx.x % 3, i = blockIdx.x * blockDim.x + threadIdx.x;
  float* const next = (float*)fs_emulated_cluster_shared(own, (rank + 1) % 3);
  next[threadIdx.x] = x[i];
  fs_emulated_cluster_barrier();
  y[i] = own[threadIdx.x];""",
    (Shape("f32", (12, 32)),),
    (Shape("f32", (12, 32)),),
    grid=12,
    block=32,
    shared=128,
)


def test_blocks_of_a_cluster_reach_each_others_shared_memory(order):
    x = np.arange(12 * 32, dtype=np.float32).reshape(4, 3, 32)
    [y] = emulate.run(replace(CLUSTERS, cluster=3), [x.reshape(12, 32)])
    np.testing.assert_array_equal(y.reshape(4, 3, 32), np.roll(x, 1, axis=1))


def test_a_large_cooperative_grid_runs():
    body = """
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  scratch[i] = x[i];
  fs_emulated_grid_barrier();
  y[i] = scratch[gridDim.x * blockDim.x - 1 - i];"""
    shape = Shape("s32", (264 * 256,))
    reverse = kernel(
        "reverse",
        "const int* x, int* y, int* scratch",
        body,
        (shape,),
        (shape,),
        scratch=(shape,),
        grid=264,
        block=256,
        cooperative=True,
    )
    x = np.arange(264 * 256, dtype=np.int32)
    np.testing.assert_array_equal(emulate.run(reverse, [x])[0], x[::-1])


def test_votes_of_a_block(order):
    body = """
  const unsigned t = threadIdx.x, b = blockIdx.x;
  for (unsigned n = 0; n < 8; ++n) {
    if (__syncthreads_and(t < 70 || n >= 3 + b)) {
      y[b * 96 + t] = n;
      break;
    }
  }"""
    out = (Shape("u32", (2, 96)),)
    votes = kernel("block_votes", "unsigned* y", body, (), out, grid=2, block=96)
    [y] = emulate.run(votes, [])
    assert [set(one.tolist()) for one in y] == [{3}, {4}]


def test_atomics_meet_across_blocks(order):
    body = """
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) { f[0] = 0; d[0] = 0; n[0] = 0; n[1] = 0; n[2] = 1000; n[3] = 0; n[4] = ~0u; }
  fs_emulated_grid_barrier();
  atomicAdd(f, 1.0f);
  atomicAdd(d, 0.5);
  atomicAdd(n, 2);
  atomicMax(n + 1, i);
  atomicMin(n + 2, i);
  atomicOr(n + 3, 1u << (i % 8));
  atomicAnd(n + 4, ~(1u << (i % 8)));
  fs_emulated_grid_barrier();
  if (i == 7 && atomicCAS(n, 256u, 9u) == 256u) atomicExch(n + 1, atomicMax(n + 1, 0u) + 1);"""
    outputs = (Shape("f32", (1,)), Shape("f64", (1,)), Shape("u32", (5,)))
    atomics = kernel(
        "atomics",
        "float* f, double* d, unsigned* n",
        body,
        (),
        outputs,
        grid=4,
        block=32,
        cooperative=True,
    )
    f, d, n = emulate.run(atomics, [])
    assert (f.tolist(), d.tolist()) == ([128.0], [64.0])
    assert n.tolist() == [9, 128, 0, 0xFF, 0xFFFFFF00]


def test_votes_and_partial_masks(order):
    body = """
  const unsigned t = threadIdx.x;
  y[t] = __ballot_sync(0xffffffffu, t % 3 == 0);
  y[32 + t] = __any_sync(0xffffffffu, t == 31) * 2 + __all_sync(0xffffffffu, t < 31);
  const unsigned half = t < 16 ? 0xffffu : 0xffff0000u;
  y[64 + t] = __ballot_sync(half, 1);
  y[96 + t] = t < 16 ? __shfl_sync(0xffffu, t, 3) : __shfl_sync(0xffff0000u, t * 100, 20);
  if (t >= 24) return;
  y[128 + t] = __ballot_sync(0x00ffffffu, 1);"""
    out = (Shape("u32", (5, 32)),)
    votes = kernel("votes", "unsigned* y", body, (), out, block=32)
    [y] = emulate.run(votes, [])
    thirds = sum(1 << t for t in range(0, 32, 3))
    assert set(y[0]) == {thirds}
    assert set(y[1]) == {2}
    assert y[2].tolist() == [0xFFFF] * 16 + [0xFFFF0000] * 16
    assert y[3].tolist() == [3] * 16 + [2000] * 16
    assert y[4].tolist() == [(1 << 24) - 1] * 24 + [0xA5A5A5A5] * 8


def test_shuffles_respect_the_width():
    body = """
  const int t = threadIdx.x;
  y[t] = __shfl_sync(0xffffffffu, t, 1, 8);
  y[32 + t] = __shfl_up_sync(0xffffffffu, t, 3, 8);
  y[64 + t] = __shfl_down_sync(0xffffffffu, t, 3, 8);
  y[96 + t] = __shfl_xor_sync(0xffffffffu, t, 5, 8);
  y[128 + t] = (int)__shfl_xor_sync(0xffffffffu, (double)t, 16);"""
    shuffles = kernel("shuffles", "int* y", body, (), (Shape("s32", (5, 32)),), block=32)
    [y] = emulate.run(shuffles, [])
    lanes = np.arange(32)
    np.testing.assert_array_equal(y[0], lanes // 8 * 8 + 1)
    np.testing.assert_array_equal(y[1], np.where(lanes % 8 < 3, lanes, lanes - 3))
    np.testing.assert_array_equal(y[2], np.where(lanes % 8 > 4, lanes, lanes + 3))
    np.testing.assert_array_equal(y[3], lanes ^ 5)
    np.testing.assert_array_equal(y[4], lanes ^ 16)


def test_waiting_for_another_block_needs_nanosleep(order):
    body = """
  volatile int* flag = y;
  if (blockIdx.x == 0) { while (flag[1] != 7) __nanosleep(20); y[0] = 1; }
  else { __threadfence(); flag[1] = 7; }"""
    wait = kernel(
        "wait", "int* y", body, (), (Shape("s32", (2,)),), grid=2, block=1, cooperative=True
    )
    assert emulate.run(wait, [])[0].tolist() == [1, 7]


def test_builtins_of_cuda():
    body = """
  y[0] = __popc(0xf0f0u);  y[1] = __clz(1);  y[2] = __clz(0);  y[3] = __ffs(8);
  y[4] = __brev(1u) == 0x80000000u;  y[5] = __umulhi(0x80000000u, 6u);  y[6] = __mul24(-3, 5);
  y[7] = __float_as_int(1.0f);  y[8] = max(3, 4) - min(3, 4);  y[9] = isnan(NAN) + isinf(1.0f);
  y[10] = __funnelshift_l(0x80000000u, 1u, 1);  y[11] = (int)rsqrtf(0.25f);
  y[12] = warpSize + (int)gridDim.y + (int)blockDim.z;  y[13] = __fmaf_rn(2.0f, 3.0f, 4.0f);
  y[14] = (int)max(1.5f, 2.5f);  y[15] = __float_as_uint(min(NAN, 1.0f)) == 0x3f800000u;"""
    builtins = kernel("builtins", "int* y", body, (), (Shape("s32", (16,)),), block=1)
    want = [8, 31, 32, 4, 1, 3, -15, 0x3F800000, 1, 1, 3, 2, 34, 10, 2, 1]
    assert emulate.run(builtins, [])[0].tolist() == want


def test_subnormals_are_kept():
    shape = (Shape("f32", (1,)),)
    halve = kernel(
        "halve", "const float* x, float* y", "y[0] = x[0] * 0.5f;", shape, shape, block=1
    )
    x = np.array([2e-38], np.float32)
    assert emulate.run(halve, [x])[0] == x * np.float32(0.5) != 0


def test_shared_memory_and_results_start_as_poison():
    body = "FS_DYNAMIC_SHARED(m); y[threadIdx.x] = m[threadIdx.x]; m[threadIdx.x] = 0;"
    poison = kernel(
        "poison", "unsigned char* y", body, (), (Shape("u8", (64,)),), grid=2, block=32, shared=32
    )
    assert set(emulate.run(poison, [])[0].tolist()) == {0xA5}


def test_in_place_outputs_share_memory_with_their_inputs():
    shape = (Shape("f32", (64,)),)
    body = "y[threadIdx.x] = x[threadIdx.x] + 1; if (x == y) y[threadIdx.x] += 100;"
    add = kernel("add", "float* x, float* y", body, shape, shape, block=64, in_place=((0, 0),))
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(emulate.run(add, [x])[0], x + 1)
    np.testing.assert_array_equal(emulate.run(add, [x], in_place=True)[0], x + 101)


def test_one_image_for_all_kernels_and_one_entry_for_equal_texts():
    text = SOFTMAX.source.replace("softmax", "twin")
    twin = replace(SOFTMAX, name="twin", source=text, grid=4)
    store = MemoryStore()
    a, b, c = emulate.build([SOFTMAX, twin, GRID_SUM], store)
    assert a.key == b.key == c.key
    assert a.image == b.image == c.image
    assert a.entry == b.entry != c.entry
    assert (a.grid, b.grid) == (ROWS, 4)
    assert (c.cooperative, c.block, c.shared_bytes) == (True, 32, 0)
    assert emulate.build([SOFTMAX, twin, GRID_SUM], store) == [a, b, c]
    assert emulate.build([]) == []


def test_threads_of_the_process_launch_at_once():
    x, results = rows(), []
    emulate.run(SOFTMAX, [x])

    def work():
        for _ in range(20):
            results.append(emulate.run(SOFTMAX, [x])[0])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    assert all((y == results[0]).all() for y in results)
