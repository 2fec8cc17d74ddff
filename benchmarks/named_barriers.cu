// A kernel without a race in which racecheck finds one, now and then:
//
//     nvcc -arch=sm_90 -lineinfo -o named_barriers benchmarks/named_barriers.cu
//     compute-sanitizer --tool racecheck ./named_barriers MODE A B
//
// Teams of 128 and then of 256 threads of a block of 512 join what their warps have: write, meet at a
// named barrier, read, meet again. Whoever reads has met whoever wrote in between.
// MODE 0: A rounds of 128, then B of 256. 1: the same with __syncthreads() between. 2: A + B rounds of
// 128. 3: those of 256 first.
#include <cstdio>
#include <cstdlib>

template <int THREADS>
__device__ __forceinline__ void meet() {
  const int barrier = (512 + (int)threadIdx.x) / THREADS;  // one for each team of each size
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}

template <int WARPS>
__device__ __forceinline__ float join(float* scratch, float value) {
  for (int mask = 16; mask; mask /= 2) value += __shfl_xor_sync(~0u, value, mask);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  meet<WARPS * 32>();
  float sum = 0;
  for (int warp = 0; warp < WARPS; ++warp) {
    sum += scratch[threadIdx.x / (WARPS * 32) * WARPS + warp];
  }
  meet<WARPS * 32>();
  return sum;
}

template <int MODE>
__global__ void teams(float* out, const float* in, int a, int b) {
  extern __shared__ float scratch[];
  float sum = 0;
  for (int round = 0; round < a + b; ++round) {
    if (MODE == 1 && round == a) __syncthreads();
    const float value = in[(round * 512 + threadIdx.x) % 1024];
    const bool small = MODE == 2 || (MODE == 3 ? round >= b : round < a);
    if (small) {
      if (threadIdx.x < 128) sum += join<4>(scratch, value);
    } else {
      if (threadIdx.x < 256) sum += join<8>(scratch, value);
    }
  }
  __syncthreads();
  out[threadIdx.x] = sum;
}

int main(int argc, char** argv) {
  if (argc != 4) return fprintf(stderr, "usage: named_barriers MODE A B\n"), 2;
  const int mode = atoi(argv[1]), a = atoi(argv[2]), b = atoi(argv[3]);
  float *in, *out;
  cudaMalloc(&in, 4096);
  cudaMalloc(&out, 4096);
  cudaMemset(in, 0, 4096);
  if (mode == 0) teams<0><<<1, 512, 256>>>(out, in, a, b);
  if (mode == 1) teams<1><<<1, 512, 256>>>(out, in, a, b);
  if (mode == 2) teams<2><<<1, 512, 256>>>(out, in, a, b);
  if (mode == 3) teams<3><<<1, 512, 256>>>(out, in, a, b);
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
