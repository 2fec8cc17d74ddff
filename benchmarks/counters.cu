// Kernels of benchmarks/counters.py. All blocks begin at a barrier of the grid; those that take part note
// the global timer, in nanoseconds, before and after their rounds, and all the multiprocessor they are on.
// Counters lie 128 bytes from each other, and are zero.
#include "fusionstitch.cuh"

#define ROUNDS for (uint32_t round = 0; round < rounds; ++round)
#define PARAMETERS \
  uint32_t *counters, float *data, uint64_t *times, uint32_t rounds, int first, int second, int mode

FS_FN uint32_t* counter(uint32_t* counters, int number) { return counters + 32 * number; }

FS_FN uint64_t now() {
  uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
  return time;
}

FS_FN void begin(uint64_t* times) {
  uint32_t multiprocessor;
  asm("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  if (threadIdx.x == 0) times[2 * gridDim.x + blockIdx.x] = multiprocessor;
  fs_grid_barrier();
  if (threadIdx.x == 0) times[2 * blockIdx.x] = now();
}

FS_FN void end(uint64_t* times) {
  __syncthreads();
  if (threadIdx.x == 0) times[2 * blockIdx.x + 1] = now();
}

// Blocks `first` and `second` arrive in turns, each when it has waited for the other. mode 1: each thread
// hands on a value, too.
extern "C" __global__ void signal(PARAMETERS) {
  const int me = blockIdx.x;
  begin(times);
  if (me != first && me != second) return;
  float value = threadIdx.x;
  float* const there = data + (me == first ? 0 : blockDim.x) + threadIdx.x;
  const float* const back = data + (me == first ? blockDim.x : 0) + threadIdx.x;
  ROUNDS {
    if (me == second) {
      fs_wait(counter(counters, 0), round + 1);
      if (mode == 1) value = *back + 1.0f;
    }
    if (mode == 1) *there = value;
    fs_arrive(counter(counters, me == first ? 0 : 1));
    if (me == first) {
      fs_wait(counter(counters, 1), round + 1);
      if (mode == 1) value = *back + 1.0f;
    }
  }
  end(times);
}

// Block 0 arrives, `first` others wait for it and then arrive. mode 0: one of them, another one in each
// round. 1: all, at one counter. 2: all; each has a counter to wait for and one to arrive at.
extern "C" __global__ void fan(PARAMETERS) {
  const int me = blockIdx.x, others = first;
  begin(times);
  if (me > others) return;
  ROUNDS {
    if (me > 0) {
      fs_wait(counter(counters, mode == 2 ? me : 0), round + 1);
      if (mode != 0 || round % others + 1 == me) {
        fs_arrive(counter(counters, others + (mode == 2 ? me : 1)));
      }
    } else if (mode == 2) {
      for (int other = 1; other <= others; ++other) fs_arrive(counter(counters, other));
      for (int other = 1; other <= others; ++other) {
        fs_wait(counter(counters, others + other), round + 1);
      }
    } else {
      fs_arrive(counter(counters, 0));
      fs_wait(counter(counters, others + 1), mode == 1 ? others * (round + 1) : round + 1);
    }
  }
  end(times);
}

// Each block arrives. first 1: at a counter of its own. mode 1: having written an element a thread.
extern "C" __global__ void arrive(PARAMETERS) {
  begin(times);
  ROUNDS {
    if (mode == 1) data[blockIdx.x * blockDim.x + threadIdx.x] = round;
    fs_arrive(counter(counters, first == 1 ? blockIdx.x : 0));
  }
  end(times);
}

// Each block waits for what has come long ago. first 1: for a counter of its own.
extern "C" __global__ void wait(PARAMETERS) {
  uint32_t* const own = counter(counters, first == 1 ? blockIdx.x : 0);
  if (threadIdx.x == 0) *own = 1;
  begin(times);
  ROUNDS fs_wait(own, 1);
  end(times);
}

// All wait for all. mode 0: at the barrier of the grid. 1: by a counter.
extern "C" __global__ void barrier(PARAMETERS) {
  begin(times);
  ROUNDS {
    if (mode == 0) {
      fs_grid_barrier();
    } else {
      fs_arrive(counters);
      fs_wait(counters, gridDim.x * (round + 1));
    }
  }
  end(times);
}

// `first` words are zeroed before a barrier of the grid. mode 0: by block 0. 1: by all.
extern "C" __global__ void zero(PARAMETERS) {
  begin(times);
  ROUNDS {
    if (mode == 1) {
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < first; i += gridDim.x * blockDim.x) {
        counters[i] = 0;
      }
    } else if (blockIdx.x == 0) {
      for (int i = threadIdx.x; i < first; i += blockDim.x) counters[i] = 0;
    }
    fs_grid_barrier();
  }
  end(times);
}

// A thread of each block adds to a word. first 1: to one of its own. mode 0: and goes on. 1: and waits
// for what it was.
extern "C" __global__ void add(PARAMETERS) {
  uint32_t* const at = counter(counters, first == 1 ? blockIdx.x : 0);
  begin(times);
  if (threadIdx.x == 0) {
    uint32_t before = 0;
    ROUNDS {
      if (mode == 0) {
        asm volatile("red.relaxed.gpu.add.u32 [%0], 1;" ::"l"(at) : "memory");
      } else {
        asm volatile("atom.add.relaxed.gpu.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(at), "r"(1 + (before >> 31))
                     : "memory");
      }
    }
  }
  end(times);
}

// Each block waits for the one before it. mode 0: the first one for the last one of the round before.
// 1: the first one for nobody, so that rounds follow each other as a wavefront.
extern "C" __global__ void chain(PARAMETERS) {
  const int me = blockIdx.x, last = gridDim.x - 1;
  begin(times);
  ROUNDS {
    if (me > 0) {
      fs_wait(counter(counters, me - 1), round + 1);
    } else if (mode == 0) {
      fs_wait(counter(counters, last), round);
    }
    fs_arrive(counter(counters, me));
  }
  end(times);
}

// Cycles of the multiprocessor while a microsecond of the global timer passes: `times` gets both.
extern "C" __global__ void clocks(PARAMETERS) {
  begin(times);
  const uint64_t begun = now(), before = clock64();
  while (now() - begun < 1000 * (uint64_t)rounds) {
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) times[2 * gridDim.x] = clock64() - before;
  end(times);
}

extern "C" __global__ void nothing() {}
