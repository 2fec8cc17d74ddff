// Rows of N floats, one per thread: read, written or both; W floats at a time, G rows after another,
// or through shared memory. Compiled with -DN=.. -DW=.. -DG=.. by benchmarks/records.py.
template <int WIDTH>
struct alignas(4 * WIDTH) Vector {
  float of[WIDTH];
};

__device__ __forceinline__ void read_row(float* row, const float* from) {
#pragma unroll
  for (int i = 0; i < N / W; ++i) {
    const Vector<W> one = reinterpret_cast<const Vector<W>*>(from)[i];
#pragma unroll
    for (int j = 0; j < W; ++j) row[i * W + j] = one.of[j];
  }
}

__device__ __forceinline__ void write_row(float* to, const float* row) {
#pragma unroll
  for (int i = 0; i < N / W; ++i) {
    Vector<W> one;
#pragma unroll
    for (int j = 0; j < W; ++j) one.of[j] = row[i * W + j];
    reinterpret_cast<Vector<W>*>(to)[i] = one;
  }
}

extern "C" __global__ void __launch_bounds__(256) read(const float* __restrict__ x, float* y, int rows) {
  const int first = (blockIdx.x * 256 + threadIdx.x) * G;
#pragma unroll
  for (int g = 0; g < G; ++g) {
    if (first + g >= rows) return;
    float row[N], sum = 0;
    read_row(row, x + (size_t)(first + g) * N);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += row[i];
    y[first + g] = sum;
  }
}

extern "C" __global__ void __launch_bounds__(256) write(const float* __restrict__ x, float* y, int rows) {
  const int first = (blockIdx.x * 256 + threadIdx.x) * G;
#pragma unroll
  for (int g = 0; g < G; ++g) {
    if (first + g >= rows) return;
    float row[N];
#pragma unroll
    for (int i = 0; i < N; ++i) row[i] = x[first + g] + i;
    write_row(y + (size_t)(first + g) * N, row);
  }
}

extern "C" __global__ void __launch_bounds__(256) staged(const float* __restrict__ x, float* y, int rows) {
  constexpr int PITCH = N | 1;
  __shared__ float near[256 * PITCH];
  const int base = blockIdx.x * 256, own = base + threadIdx.x;
  if (own < rows) {
    const float value = x[own];
#pragma unroll
    for (int i = 0; i < N; ++i) near[threadIdx.x * PITCH + i] = value + i;
  }
  __syncthreads();
  const int count = min(256, rows - base) * N;
  for (int i = threadIdx.x; i < count; i += 256) y[(size_t)base * N + i] = near[i + i / N * (PITCH - N)];
}
