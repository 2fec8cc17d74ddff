"""CUDA-C of users on the emulator: indices, shared memory, numbers, templates, includes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.dag.programs import scheduler

#: Each writes to `out`, an array of 24 ints, from (blocks, threads, bytes of shared memory).
CASES: dict[str, tuple[str, tuple[Any, ...], list[int]]] = {
    "indices in three dimensions": (
        """extern "C" __global__ void k(int* out) {
          const int x = blockIdx.x * blockDim.x + threadIdx.x, y = threadIdx.y, z = blockIdx.z;
          out[(z * blockDim.y + y) * gridDim.x * blockDim.x + x] = 100 * z + 10 * y + x;
        }""",
        ((2, 1, 3), (2, 2)),
        [100 * z + 10 * y + x for z in range(3) for y in range(2) for x in range(4)],
    ),
    "shared memory of a fixed size": (
        """extern "C" __global__ void k(int* out) {
          __shared__ int turned[12];
          turned[11 - threadIdx.x] = threadIdx.x;
          __syncthreads();
          out[blockIdx.x * 12 + threadIdx.x] = turned[threadIdx.x];
        }""",
        (2, 12),
        [*range(11, -1, -1), *range(11, -1, -1)],
    ),
    "dynamic shared memory": (
        """extern "C" __global__ void k(int* out) {
          extern __shared__ int turned[];
          turned[23 - threadIdx.x] = threadIdx.x;
          __syncthreads();
          out[threadIdx.x] = turned[threadIdx.x];
        }""",
        (1, 24, 96),
        [*range(23, -1, -1)],
    ),
    "constants, functions, atomics, shuffles": (
        """#include <stdint.h>
        __constant__ int first[3] = {4, 5, 6};
        static __device__ __forceinline__ uint32_t twice(uint32_t x) { return 2 * x; }
        extern "C" __global__ void k(int* __restrict__ out) {
          int sum = threadIdx.x;
          for (int offset = 16; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, offset);
          if (threadIdx.x == 0) out[23] = sum;
          if (threadIdx.x < 23) out[threadIdx.x] = twice(first[threadIdx.x % 3]);
          if (threadIdx.x == 22) atomicAdd(out + 22, 1);
        }""",
        (1, 32),
        [8, 10, 12] * 7 + [8, 11, 496],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_kernel(name: str, host_compiler: str) -> None:
    code, sizes, wanted = CASES[name]
    d = scheduler()
    out = d.array(24, np.int32)
    d.kernel(code, "k", "out pointer sint32")(*sizes)(out)
    assert np.asarray(out).tolist() == wanted


def test_numbers_of_every_type(host_compiler: str) -> None:
    code = """extern "C" __global__ void k(double* out, bool a, char b, unsigned char c, short d,
      unsigned short e, int f, unsigned g, long long h, unsigned long long i, float j, double k) {
      const double all[] = {(double)a, (double)b, (double)c, (double)d, (double)e, (double)f,
                            (double)g, (double)h, (double)i, (double)j, k};
      for (int n = 0; n < 11; ++n) out[n] = all[n];
    }"""
    signature = (
        "out pointer double, bool, char, uint8, sint16, uint16, sint32, uint32, sint64, uint64, "
        "float, double"
    )
    values = [True, -3, 200, -300, 60000, -70000, 3_000_000_000, -(2**40), 2**50, 0.5, 0.1]
    d = scheduler()
    out = d.array(11, np.float64)
    d.kernel(code, "k", signature)(1, 1)(out, *values)
    assert np.asarray(out).tolist() == [float(value) for value in values]


def test_a_template_and_a_name_that_is_not_plain(host_compiler: str) -> None:
    code = """template <class T, int by> __global__ void scale(T* x) { x[threadIdx.x] *= by; }"""
    d = scheduler()
    x, y = d.array(np.ones(4, np.float32)), d.array(np.ones(4, np.int32))
    d.kernel(code, "scale<float, 3>", "pointer float")(1, 4)(x)
    d.kernel(code, "scale<int, 5>", "pointer sint32")(1, 4)(y)
    assert (x[3], y[3]) == (3, 5)
