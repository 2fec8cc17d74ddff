// Four loops of benchmarks/loops as one would write them by hand, to set the generated kernels
// against. `by_hand.py` launches them and works out the bounds that the comments name.

// ode.py:lorenz. One thread per system; the state stays in registers and every state is stored.
// Bound: latency. The steps of a system depend on each other, and in a step the four slopes do: each
// is three dependent operations and one more leads to the next point, then four join the slopes.
// There are too few systems to hide that; the stores, three numbers a step, are far from a limit.
struct Point {
  float x, y, z;
};

__device__ __forceinline__ Point slope(Point p) {
  return {10.0f * (p.y - p.x), p.x * (28.0f - p.z) - p.y, p.x * p.y - 8.0f / 3.0f * p.z};
}

__device__ __forceinline__ Point along(Point p, Point k, float h) {
  return {p.x + h * k.x, p.y + h * k.y, p.z + h * k.z};
}

__device__ __forceinline__ float joined(float a, float b, float c, float d) {
  return a + 2.0f * b + 2.0f * c + d;
}

extern "C" __global__ void lorenz(const float* start, float* out, int systems, int steps) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= systems) return;
  const float h = 0.01f;
  Point p = {start[3 * n], start[3 * n + 1], start[3 * n + 2]};
  for (int step = 0; step < steps; ++step) {
    const Point a = slope(p), b = slope(along(p, a, 0.5f * h));
    const Point c = slope(along(p, b, 0.5f * h)), d = slope(along(p, c, h));
    p.x += h / 6 * joined(a.x, b.x, c.x, d.x);
    p.y += h / 6 * joined(a.y, b.y, c.y, d.y);
    p.z += h / 6 * joined(a.z, b.z, c.z, d.z);
    float* to = out + 3 * ((size_t)step * systems + n);
    to[0] = p.x, to[1] = p.y, to[2] = p.z;
  }
}

// sde.py:geometric_brownian, with the bits that jax.random draws. One thread per path; the keys of
// the steps are the same for all paths, so that a block works them out once, into shared memory.
// Bound: integer operations. Threefry is 20 rounds of an addition, a rotation and an exclusive or,
// and 17 more to begin with and to inject keys; an SM issues 64 of them in a clock.
struct Words {
  unsigned a, b;
};

__device__ __forceinline__ unsigned turned(unsigned x, int by) { return (x << by) | (x >> (32 - by)); }

__device__ __forceinline__ Words threefry(Words key, Words x) {
  const unsigned keys[3] = {key.a, key.b, key.a ^ key.b ^ 0x1BD11BDAu};
  const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  x.a += keys[0], x.b += keys[1];
#pragma unroll
  for (int group = 0; group < 5; ++group) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      x.a += x.b;
      x.b = turned(x.b, turns[group % 2][n]) ^ x.a;
    }
    x.a += keys[(group + 1) % 3], x.b += keys[(group + 2) % 3] + group + 1;
  }
  return x;
}

__device__ __forceinline__ float normal(Words key, unsigned place) {
  const Words bits = threefry(key, {0, place});
  const float part = __uint_as_float(((bits.a ^ bits.b) >> 9) | 0x3F800000u) - 1.0f;
  const float low = -0.99999994f;
  return 1.41421356f * erfinvf(fmaxf(low, part * (1.0f - low) + low));
}

extern "C" __global__ void brownian(const unsigned* key, const float* start, float* out, int paths,
                                    int steps) {
  extern __shared__ Words keys[];
  for (int step = threadIdx.x; step < steps; step += blockDim.x) {
    keys[step] = threefry({key[0], key[1]}, {0, (unsigned)step});
  }
  __syncthreads();
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= paths) return;
  float x = start[n];
  for (int step = 0; step < steps; ++step) {
    x = x + 0.0005f * x + 0.02f * x * normal(keys[step], n);
  }
  out[n] = x;
}

// stencils.py:heat of 512 by 512. A block owns four rows and a thread one column of them, in
// registers. Left and right neighbours come through shared memory, rows of other blocks through two
// buffers in L2 that take turns. All blocks have to be resident.
// Bound: barriers. A step is a grid barrier and a round trip to L2, and little else.
constexpr int SIDE = 512, ROWS = 4;

__device__ void meet(unsigned* arrived, unsigned target) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
    while (*(volatile unsigned*)arrived < target) {
    }
    __threadfence();
  }
  __syncthreads();
}

extern "C" __global__ void heat(const float* start, float* out, float* borders, unsigned* counters,
                                int steps) {
  __shared__ float tile[2][ROWS][SIDE];
  const int column = threadIdx.x, block = blockIdx.x, blocks = gridDim.x;
  const bool inside = column > 0 && column < SIDE - 1;
  float own[ROWS];
  for (int r = 0; r < ROWS; ++r) own[r] = start[(block * ROWS + r) * SIDE + column];
  for (int step = 0; step < steps; ++step) {
    // two rows of each block: its first and its last
    float* shared_rows = borders + (size_t)(step % 2) * blocks * 2 * SIDE;
    __stcg(shared_rows + (block * 2) * SIDE + column, own[0]);
    __stcg(shared_rows + (block * 2 + 1) * SIDE + column, own[ROWS - 1]);
    float(*now)[SIDE] = tile[step % 2];
    for (int r = 0; r < ROWS; ++r) now[r][column] = own[r];
    meet(counters, (step + 1) * blocks);
    float above = block > 0 ? __ldcg(shared_rows + (block * 2 - 1) * SIDE + column) : 0.0f;
    const float below =
        block < blocks - 1 ? __ldcg(shared_rows + (block * 2 + 2) * SIDE + column) : 0.0f;
    for (int r = 0; r < ROWS; ++r) {
      const float mid = own[r], under = r + 1 < ROWS ? own[r + 1] : below;
      const int row = block * ROWS + r;
      if (inside && row > 0 && row < SIDE - 1) {
        own[r] = mid + 0.2f * (above + under + now[r][column - 1] + now[r][column + 1] - 4 * mid);
      }
      above = mid;
    }
  }
  for (int r = 0; r < ROWS; ++r) out[(block * ROWS + r) * SIDE + column] = own[r];
  // the last block to leave makes the counters ready for the next launch
  if (threadIdx.x == 0 && atomicAdd(counters + 1, 1) == blocks - 1) counters[0] = counters[1] = 0;
}

// scalar.py:logistic_map. One thread.
// Bound: latency. Two dependent multiplications a step, the subtraction lies beside the first.
extern "C" __global__ void logistic(const float* start, const float* rate, float* out, int steps) {
  float x = *start;
  const float r = *rate;
#pragma unroll 8
  for (int step = 0; step < steps; ++step) x = r * x * (1.0f - x);
  *out = x;
}
