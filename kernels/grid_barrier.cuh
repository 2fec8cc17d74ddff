// A barrier over all blocks of a cooperative launch, without any memory of our own.
//
// The driver hands each cooperative launch a small zeroed workspace; environment registers 1 and 2
// hold its address (high and low word), and its second word is the barrier's counter. This is the
// layout the CUDA toolkit's own grid synchronisation relies on since CUDA 11.
#pragma once

// Every thread of every block must call it the same number of times, in a cooperative launch of a
// one-dimensional grid and block. What any thread wrote before is visible to all threads after,
// except to loads through the non-coherent path (__ldg, const __restrict__ pointers).
__device__ __forceinline__ void fs_grid_barrier() {
  // All threads' writes happen before thread 0's release below, which publishes them.
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned int high, low;
    asm("mov.u32 %0, %%envreg1;" : "=r"(high));
    asm("mov.u32 %0, %%envreg2;" : "=r"(low));
    unsigned int* arrived =
        reinterpret_cast<unsigned int*>((static_cast<unsigned long long>(high) << 32) | low) + 1;
    // The contributions of one round sum to 2^31: the top bit flips exactly when the last block
    // arrives, and the low bits are back where they were, ready for the next round.
    const unsigned int share = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1u) : 1u;
    unsigned int before, now;
    asm volatile("atom.add.release.gpu.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(arrived), "r"(share)
                 : "memory");
    // An acquiring load throws away the L1 cache of its multiprocessor, and with it what blocks
    // beside this one still read, for which it waits: so the last load alone acquires. (A fence
    // instead takes 0.3 us longer.)
    do {
      asm volatile("ld.relaxed.gpu.u32 %0, [%1];"
                   : "=r"(now)
                   : "l"(arrived)
                   : "memory");
    } while (((before ^ now) & 0x80000000u) == 0u);
    asm volatile("ld.acquire.gpu.u32 %0, [%1];"
                 : "=r"(now)
                 : "l"(arrived)
                 : "memory");
  }
  __syncthreads();
}
