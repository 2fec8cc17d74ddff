// CUDA-C for a host compiler: the subset that generated kernels use, on the emulator's threads.
//
// Included by fusionstitch.cuh when FUSIONSTITCH_EMULATE is defined. Differences to a GPU that a
// kernel's author should know: `__shared__` variables do not exist (FS_DYNAMIC_SHARED does), a loop
// that waits for another thread must call __nanosleep, and converting a float that does not fit
// an integer is undefined (use fs_to_int).
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "emulation_abi.h"

#ifdef __clang__  // g++ takes this from its command line
#pragma clang diagnostic error "-Wframe-larger-than"
#endif

// Of which build an image is: whether accesses are reported, and what for.
#ifdef FUSIONSTITCH_CHECKED
#define FS_REPORTS
constexpr bool fs_emulated_checked = true;
#else
constexpr bool fs_emulated_checked = false;
#endif
#ifdef FUSIONSTITCH_COUNTED
#define FS_REPORTS
constexpr bool fs_emulated_counted = true;
#else
constexpr bool fs_emulated_counted = false;
#endif

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ this_emulator_has_only_FS_DYNAMIC_SHARED
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

static const FsEmulatedRuntime* fs_emulated_runtime;
static thread_local FsEmulatedThread* fs_emulated_self;

#define threadIdx (fs_emulated_self->index)
#define blockIdx (fs_emulated_self->block->index)
#define blockDim (fs_emulated_self->block->size)
#define gridDim (fs_emulated_self->block->grid_size)
#define warpSize 32
#define FS_DYNAMIC_SHARED(name) unsigned char* const name = fs_emulated_self->block->shared

// ---- barriers and fences ------------------------------------------------------------------------

// A function's last parameters that say from where it is called.
#define FS_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void fs_emulated_block_barrier(FS_CALLER) {
  fs_emulated_runtime->block_barrier(fs_emulated_self, FsEmulatedSite{file, line});
}
#define __syncthreads() fs_emulated_block_barrier()
inline int __syncthreads_and(int predicate, FS_CALLER) {
  return fs_emulated_runtime->block_vote(fs_emulated_self, predicate != 0, FsEmulatedSite{file, line});
}
inline void fs_emulated_named_barrier(unsigned barrier, unsigned count, FS_CALLER) {
  fs_emulated_runtime->named_barrier(fs_emulated_self, barrier, count, FsEmulatedSite{file, line});
}
inline void fs_emulated_grid_barrier(FS_CALLER) {
  fs_emulated_runtime->grid_barrier(fs_emulated_self, FsEmulatedSite{file, line});
}
inline void fs_emulated_cluster_barrier(FS_CALLER) {
  fs_emulated_runtime->cluster_barrier(fs_emulated_self, FsEmulatedSite{file, line});
}
inline void fs_emulated_arrive(uint32_t* counter, FS_CALLER) {
  fs_emulated_runtime->arrive(fs_emulated_self, counter, FsEmulatedSite{file, line});
}
inline void fs_emulated_wait(const uint32_t* counter, uint32_t value, FS_CALLER) {
  fs_emulated_runtime->wait(fs_emulated_self, counter, value, FsEmulatedSite{file, line});
}
inline void* fs_emulated_cluster_shared(void* own, unsigned rank) {
  return fs_emulated_runtime->cluster_shared(fs_emulated_self, own, rank);
}
inline void __nanosleep(unsigned) { fs_emulated_runtime->yield(fs_emulated_self); }
inline void __trap() { fs_emulated_runtime->fail(fs_emulated_self, "the kernel called __trap()"); }

// One OS thread runs a whole launch: only the compiler could reorder.
inline void __threadfence_block() { __asm__ __volatile__("" ::: "memory"); }
inline void __threadfence() { __asm__ __volatile__("" ::: "memory"); }
inline void __threadfence_system() { __asm__ __volatile__("" ::: "memory"); }

// ---- warp collectives ---------------------------------------------------------------------------

template <class T>
inline T fs_emulated_shuffle(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = fs_emulated_runtime->warp(fs_emulated_self, FsWarpOp::kShuffle, mask, bits, source);
  memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  unsigned lane = fs_emulated_self->lane, last = (unsigned)width - 1;
  return fs_emulated_shuffle(mask, value, (lane & ~last) | ((unsigned)source & last));
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  unsigned lane = fs_emulated_self->lane, last = (unsigned)width - 1;
  return fs_emulated_shuffle(mask, value, (lane & last) < delta ? lane : lane - delta);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  unsigned lane = fs_emulated_self->lane, last = (unsigned)width - 1;
  return fs_emulated_shuffle(mask, value, (lane & last) + delta > last ? lane : lane + delta);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  unsigned lane = fs_emulated_self->lane, source = lane ^ (unsigned)lane_mask;
  return fs_emulated_shuffle(mask, value, source > (lane | ((unsigned)width - 1)) ? lane : source);
}

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  fs_emulated_runtime->warp(fs_emulated_self, FsWarpOp::kSync, mask, 0, 0);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return (unsigned)fs_emulated_runtime->warp(fs_emulated_self, FsWarpOp::kBallot, mask,
                                             predicate != 0, 0);
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
// Emulated threads run one at a time: a legal answer, and one that exposes lockstep assumptions.
inline unsigned __activemask() { return 1u << fs_emulated_self->lane; }

// ---- atomics: each returns the value before -----------------------------------------------------

#ifdef FS_REPORTS
#define FS_ATOMIC __attribute__((noinline, no_sanitize("thread")))
#define FS_REPORT_ATOMIC(address) \
  fs_emulated_runtime->access(fs_emulated_self, address, sizeof(*address), FsAccess::kAtomic)
#else
#define FS_ATOMIC
#define FS_REPORT_ATOMIC(address)
#endif

#define FS_EMULATED_ATOMIC(name, result)           \
  template <class T, class U>                      \
  FS_ATOMIC inline T name(T* address, U operand) { \
    FS_REPORT_ATOMIC(address);                     \
    T old = *address, value = (T)operand;          \
    *address = (result);                           \
    return old;                                    \
  }
FS_EMULATED_ATOMIC(atomicAdd, old + value)
FS_EMULATED_ATOMIC(atomicSub, old - value)
FS_EMULATED_ATOMIC(atomicMax, old < value ? value : old)
FS_EMULATED_ATOMIC(atomicMin, value < old ? value : old)
FS_EMULATED_ATOMIC(atomicExch, value)
FS_EMULATED_ATOMIC(atomicAnd, old & value)
FS_EMULATED_ATOMIC(atomicOr, old | value)
FS_EMULATED_ATOMIC(atomicXor, old ^ value)
FS_EMULATED_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
FS_EMULATED_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef FS_EMULATED_ATOMIC

template <class T, class U, class V>
FS_ATOMIC inline T atomicCAS(T* address, U compare, V operand) {
  FS_REPORT_ATOMIC(address);
  T old = *address;
  if (old == (T)compare) *address = (T)operand;
  return old;
}

// ---- loads and stores with cache hints ----------------------------------------------------------

template <class T>
inline T __ldg(const T* address) {
  return *address;
}
template <class T>
inline T __ldcs(const T* address) {
  return *address;
}
template <class T>
inline T __ldcg(const T* address) {
  return *(const volatile T*)address;
}
template <class T>
inline void __stcs(T* address, T value) {
  *address = value;
}
template <class T>
inline void __stcg(T* address, T value) {
  *address = value;
}

// ---- bits ---------------------------------------------------------------------------------------

template <class To, class From>
inline To fs_emulated_bitcast(From value) {
  static_assert(sizeof(To) == sizeof(From), "a bitcast keeps the number of bytes");
  To result;
  memcpy(&result, &value, sizeof(To));
  return result;
}
inline int __float_as_int(float x) { return fs_emulated_bitcast<int>(x); }
inline unsigned __float_as_uint(float x) { return fs_emulated_bitcast<unsigned>(x); }
inline float __int_as_float(int x) { return fs_emulated_bitcast<float>(x); }
inline float __uint_as_float(unsigned x) { return fs_emulated_bitcast<float>(x); }
inline long long __double_as_longlong(double x) { return fs_emulated_bitcast<long long>(x); }
inline double __longlong_as_double(long long x) { return fs_emulated_bitcast<double>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __mul24(int a, int b) {
  return (int)((uint32_t)((int32_t)((uint32_t)a << 8) >> 8) *
               (uint32_t)((int32_t)((uint32_t)b << 8) >> 8));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return (unsigned)((((uint64_t)high << 32 | low) << (by & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}

// ---- math beyond math.h -------------------------------------------------------------------------

#define FS_EMULATED_MINMAX(T)                                 \
  inline T min(T a, T b) { return b < a ? b : a; }            \
  inline T max(T a, T b) { return a < b ? b : a; }
FS_EMULATED_MINMAX(int)
FS_EMULATED_MINMAX(unsigned)
FS_EMULATED_MINMAX(long)
FS_EMULATED_MINMAX(unsigned long)
FS_EMULATED_MINMAX(long long)
FS_EMULATED_MINMAX(unsigned long long)
#undef FS_EMULATED_MINMAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
// By Newton's method, from an approximation by elementary functions (S. Winitzki).
inline double erfinv(double x) {
  const double size = fabs(x), part = 0.147;
  if (x == 0.0) return x;
  if (!(size < 1.0)) return size == 1.0 ? x * INFINITY : NAN;
  const double log = log1p(-x * x), begin = 2 / (3.14159265358979323846 * part) + log / 2;
  double found = sqrt(sqrt(begin * begin - log / part) - begin);
  for (int turn = 0; turn < 4; ++turn) {
    const double off = size < 0.5 ? erf(found) - size : (1 - size) - erfc(found);
    found -= off / (1.1283791670955126 * exp(-found * found));
  }
  return copysign(found, x);
}
inline float erfinvf(float x) { return float(erfinv(double(x))); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// Rounding is to nearest already and contraction is off, so these are the plain operators.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

// ---- time: there is none; a constant keeps results deterministic --------------------------------

inline long long clock64() { return 0; }
inline int clock() { return 0; }
// Another number at each call, the same ones in each run, for what is to vary (delays.cuh).
__attribute__((no_sanitize("thread"))) inline unsigned fs_emulated_turn() {
  static thread_local unsigned turn = 0;
  return turn++;
}

// ---- alignment: -fsanitize=alignment calls this, with what the compiler knows of the access --------

struct FsEmulatedAccess {
  FsEmulatedSite site;
  const void* type;
  unsigned char log_alignment, kind;
};
extern "C" inline __attribute__((used)) void __ubsan_handle_type_mismatch_v1_abort(
    const FsEmulatedAccess* access, const void* address) {
  fs_emulated_runtime->misaligned(fs_emulated_self, address, 1u << access->log_alignment,
                                  access->site);
}

// ---- checks and counts: -fsanitize=thread calls these at every access ----------------------------

#ifdef FS_REPORTS
#define FS_UNCHECKED extern "C" inline __attribute__((used, no_sanitize("thread")))
#define FS_EMULATED_ACCESS(name, bytes, kind)                                           \
  FS_UNCHECKED void __tsan_##name(void* address) {                                      \
    fs_emulated_runtime->access(fs_emulated_self, address, bytes, FsAccess::kind);      \
  }
#define FS_EMULATED_ACCESSES(bytes)                          \
  FS_EMULATED_ACCESS(read##bytes, bytes, kRead)              \
  FS_EMULATED_ACCESS(write##bytes, bytes, kWrite)            \
  FS_EMULATED_ACCESS(unaligned_read##bytes, bytes, kRead)    \
  FS_EMULATED_ACCESS(unaligned_write##bytes, bytes, kWrite)
FS_EMULATED_ACCESSES(1)
FS_EMULATED_ACCESSES(2)
FS_EMULATED_ACCESSES(4)
FS_EMULATED_ACCESSES(8)
FS_EMULATED_ACCESSES(16)
FS_UNCHECKED void __tsan_read_range(void* address, size_t bytes) {
  fs_emulated_runtime->access(fs_emulated_self, address, bytes, FsAccess::kRead);
}
FS_UNCHECKED void __tsan_write_range(void* address, size_t bytes) {
  fs_emulated_runtime->access(fs_emulated_self, address, bytes, FsAccess::kWrite);
}
FS_UNCHECKED void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  fs_emulated_runtime->access(fs_emulated_self, from, bytes, FsAccess::kRead);
  fs_emulated_runtime->access(fs_emulated_self, to, bytes, FsAccess::kWrite);
  return memcpy(to, from, bytes);
}
FS_UNCHECKED void __tsan_init() {}
FS_UNCHECKED void __tsan_func_entry(void*) {}
FS_UNCHECKED void __tsan_func_exit(void*) {}
#endif

// ---- what the generated end of a translation unit uses ------------------------------------------

// A kernel argument of any pointer type.
struct FsEmulatedPointer {
  void* address;
  template <class T>
  operator T*() const {
    return (T*)address;
  }
};

#define FS_EMULATED_IMAGE(kernels)                                                             \
  __attribute__((no_sanitize("thread"))) static void fs_emulated_bind(                         \
      const FsEmulatedRuntime* runtime) {                                                      \
    fs_emulated_runtime = runtime;                                                             \
  }                                                                                            \
  static FsEmulatedThread** fs_emulated_slot() { return &fs_emulated_self; }                   \
  extern "C" __attribute__((visibility("default"))) const FsEmulatedImage fs_emulated_image = { \
      FS_EMULATION_ABI, sizeof(kernels) / sizeof(kernels[0]), fs_emulated_checked,             \
      fs_emulated_counted, kernels, fs_emulated_bind, fs_emulated_slot};
