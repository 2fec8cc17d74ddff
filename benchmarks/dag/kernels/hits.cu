// HITS: authorities and hubs of a graph, by powers of its adjacency matrix in rows (CSR).

// out = matrix * x; row i has the entries from starts[i] to starts[i + 1].
extern "C" __global__ void spmv(const int* starts, const int* columns, const float* values,
                                const float* x, float* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float sum = 0.0f;
    for (int k = starts[i]; k < starts[i + 1]; ++k) sum += values[k] * x[columns[k]];
    out[i] = sum;
  }
}

// Adds the sum of x to `total`. Blocks are whole warps.
extern "C" __global__ void sum(const float* x, float* total, int n) {
  float part = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    part += x[i];
  for (int offset = 16; offset > 0; offset /= 2)
    part += __shfl_down_sync(0xffffffffu, part, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(total, part);
}

extern "C" __global__ void divide(const float* x, float* out, const float* by, int n) {
  const float scale = 1.0f / by[0];
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    out[i] = x[i] * scale;
}
