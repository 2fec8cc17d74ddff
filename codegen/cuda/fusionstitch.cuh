// What every generated kernel includes: element types, exact HLO arithmetic, reductions.
// The same text is compiled by NVRTC and, with FUSIONSTITCH_EMULATE, by a host compiler.
// On the GPU it needs no header of the toolkit: NVRTC works without search paths, and fast.
#pragma once

#ifdef FUSIONSTITCH_EMULATE
#include <math.h>
#include <stdint.h>

#include "emulation.h"
#define FS_FN static inline
#define FS_METHOD inline
#define FS_MAY_ALIAS [[gnu::may_alias]]
#define FS_UNROLL
#define FS_UNROLL_BY(times)
#else
#define FS_CALLER  // of a barrier: the emulator alone wants to know
#ifndef __CUDACC_RTC__  // nvcc includes the host's headers, which have these types
#include <stdint.h>
#else
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif
#define FS_FN static __device__ __forceinline__
#define FS_METHOD __device__ __forceinline__
#define FS_MAY_ALIAS
#define FS_UNROLL _Pragma("unroll")
#define FS_PRAGMA(text) _Pragma(#text)
#define FS_UNROLL_BY(times) FS_PRAGMA(unroll times)
#endif

#include "delays.cuh"
#include "types.cuh"
#include "arithmetic.cuh"
#include "functions.cuh"
#include "reduce.cuh"
#include "bins.cuh"
#include "sorts.cuh"
#include "cluster.cuh"
#include "counters.cuh"
#include "mma.cuh"
#include "fragments.cuh"

// Tells the compiler that a tensor starts at a multiple of 16 bytes, as all do: unrolled reads of
// neighbouring elements become vector loads.
template <class T>
FS_FN T* fs_aligned(T* tensor) {
  return (T*)__builtin_assume_aligned(tensor, 16);
}

// Brings `count` elements to L2, the lines shared out among the block's threads; waits for nothing.
template <class T>
FS_FN void fs_prefetch(const T* elements, int count) {
#ifndef FUSIONSTITCH_EMULATE
  constexpr int line = 128 / (int)sizeof(T);
  for (int i = (int)threadIdx.x * line; i < count; i += (int)blockDim.x * line)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(elements + i));
#endif
}

// Two buffers change names.
template <class T>
FS_FN void fs_swap(T*& left, T*& right) {
  T* const before = left;
  left = right;
  right = before;
}

// Brings what lies around an element to L2; waits for nothing.
template <class T>
FS_FN void fs_announce(const T* element) {
#ifndef FUSIONSTITCH_EMULATE
  asm volatile("prefetch.global.L2 [%0];" ::"l"(element));
#endif
}

// ---- what the two sides do differently ----------------------------------------------------------

#ifdef FUSIONSTITCH_EMULATE
FS_FN void fs_grid_barrier(FS_CALLER) {
  FS_DELAY();
  fs_emulated_grid_barrier(file, line);
  FS_DELAY();
}
#else
#define FS_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#include "grid_barrier.cuh"
#endif
