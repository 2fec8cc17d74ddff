// Counters across the grid: a block arrives at one when it is done with a part of its work, and blocks
// that need that part wait until as many have arrived. Included by fusionstitch.cuh.
//
// All threads of a block call both. A counter is a word of global memory that is zero before any block
// arrives at it. What threads of a block did before it arrived is visible to all threads of a block that
// has waited for it, except to loads through the non-coherent path (__ldg, const __restrict__ pointers).
#pragma once

#if !defined(FUSIONSTITCH_EMULATE) && !defined(__CUDACC_RTC__)
#include <cassert>  // __assert_fail
#endif

#ifdef FUSIONSTITCH_EMULATE
FS_FN void fs_arrive(uint32_t* counter, FS_CALLER) {
  FS_DELAY();
  fs_emulated_block_barrier(file, line);
  if (threadIdx.x == 0) fs_emulated_arrive(counter, file, line);
}

FS_FN void fs_wait(const uint32_t* counter, uint32_t value, FS_CALLER) {
  if (threadIdx.x == 0) fs_emulated_wait(counter, value, file, line);
  fs_emulated_block_barrier(file, line);
  FS_DELAY();
}
#else
// Cycles of the clock in 10 seconds at 2 GHz. A block that is waited for may be late where other
// processes use the GPU; one that never comes would hang the GPU.
constexpr long long FS_PATIENCE = 20000000000ll;

// Ends the launch with CUDA_ERROR_ASSERT, and says why on standard error.
FS_FN void fs_give_up() {
  const char* const why = "fusionstitch: a block has waited for others for 10 seconds";
#ifdef __CUDACC_RTC__
  __assertfail(why, "counters.cuh", 0, "fs_wait", 1);
#else
  __assert_fail(why, "counters.cuh", 0, "fs_wait");
#endif
  __builtin_unreachable();  // or all that is live were saved around the call
}

FS_FN void fs_arrive(uint32_t* counter) {
  // All threads' writes happen before thread 0's release below, which publishes them.
  __syncthreads();
  if (threadIdx.x == 0)
    asm volatile("red.release.gpu.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

FS_FN void fs_wait(const uint32_t* counter, uint32_t value) {
  if (threadIdx.x == 0) {
    const long long begin = clock64();
    uint32_t now;
    for (;;) {
      asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
      if (now >= value) break;
      if (clock64() - begin > FS_PATIENCE) fs_give_up();
    }
    // An acquiring load throws away the L1 cache of its multiprocessor: only the last one acquires.
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  }
  __syncthreads();
}
#endif
