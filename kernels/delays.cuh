// Waits around barriers, for debugging: what a barrier too few, or one of too narrow a scope, leaves to
// chance happens more often when warps are early and late by turns. Included by fusionstitch.cuh.
#pragma once

#ifndef FUSIONSTITCH_DELAYS
#define FS_DELAY()
#else
// Half of the calls return at once, the others wait: the threads of a warp as long as each other, up
// to 4 microseconds on a GPU, and for a few turns of the others in the emulator.
FS_FN void fs_delay() {
#ifdef FUSIONSTITCH_EMULATE
  const unsigned turn = fs_emulated_turn();
#else
  const unsigned turn = (unsigned)clock64();
#endif
  unsigned x = (blockIdx.x * 32u + threadIdx.x / 32u) * 0x9E3779B9u ^ turn;
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15) * 0x846CA68Bu;
  x ^= x >> 16;
  if ((x & 1u) == 0u) return;
#ifdef FUSIONSTITCH_EMULATE
  for (unsigned turns = x >> 8 & 3u; turns > 0u; --turns) __nanosleep(0u);
#else
  __nanosleep(16u << (x >> 8 & 0xFFu) % 9u);
#endif
}
#define FS_DELAY() fs_delay()
// The name in the expansion is not expanded again.
#ifdef FUSIONSTITCH_EMULATE
#undef __syncthreads
#define __syncthreads() (fs_delay(), fs_emulated_block_barrier(), fs_delay())
#else
#define __syncthreads() (fs_delay(), __syncthreads(), fs_delay())
#endif
#endif
