// What every generated kernel includes: element types, exact HLO arithmetic, reductions.
// The same text is compiled by NVRTC and, with FUSIONSTITCH_EMULATE, by a host compiler.
// It needs no other header on the GPU: NVRTC then works without search paths, and fast.
#pragma once

#ifdef FUSIONSTITCH_EMULATE
#include <math.h>
#include <stdint.h>

#include "emulation.h"
#define FS_FN static inline
#define FS_METHOD inline
#define FS_MAY_ALIAS [[gnu::may_alias]]
#define FS_UNROLL
#else
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define FS_FN static __device__ __forceinline__
#define FS_METHOD __device__ __forceinline__
#define FS_MAY_ALIAS
#define FS_UNROLL _Pragma("unroll")
#endif

// ---- bits ---------------------------------------------------------------------------------------

template <class To, class From>
FS_FN To fs_bitcast(From value) {
  static_assert(sizeof(To) == sizeof(From), "a bitcast keeps the number of bytes");
  union {
    From from;
    To to;
  } both;
  both.from = value;
  return both.to;
}

// fs_bits<N>: the unsigned integer of N bytes. fs_word<T>: where T is computed without promotion
// to a signed int, so that every overflow wraps.
template <int BYTES>
struct fs_bits;
template <>
struct fs_bits<1> {
  typedef uint8_t type;
};
template <>
struct fs_bits<2> {
  typedef uint16_t type;
};
template <>
struct fs_bits<4> {
  typedef uint32_t type;
};
template <>
struct fs_bits<8> {
  typedef uint64_t type;
};
template <class T>
struct fs_word {
  typedef typename fs_bits<(sizeof(T) < 4 ? 4 : sizeof(T))>::type type;
};

// ---- element types ------------------------------------------------------------------------------

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

// fs_compute<T>::type: the type in which elements stored as T are computed.
template <class T>
struct fs_compute {
  typedef T type;
};
template <>
struct fs_compute<bf16> {
  typedef float type;
};
template <>
struct fs_compute<f16> {
  typedef float type;
};

// fs_load: stored element -> compute value, exact.
template <class T>
FS_FN T fs_load(T stored) {
  return stored;
}

FS_FN float fs_load(bf16 stored) { return fs_bitcast<float>((uint32_t)stored.bits << 16); }

FS_FN float fs_load(f16 stored) {
#ifdef FUSIONSTITCH_EMULATE
  uint32_t sign = (uint32_t)(stored.bits & 0x8000u) << 16;
  uint32_t magnitude = stored.bits & 0x7fffu;
  if (magnitude >= 0x7c00u)  // infinities and NaN
    return fs_bitcast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude < 0x400u) {  // zero and subnormals: multiples of 2^-24
    float value = (float)magnitude * 0x1p-24f;
    return fs_bitcast<float>(sign | fs_bitcast<uint32_t>(value));
  }
  return fs_bitcast<float>(sign | ((magnitude << 13) + 0x38000000u));
#else
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored.bits));
  return value;
#endif
}

// fs_store_as<T>(value): compute value -> stored element, to nearest even, NaN kept.
template <class T>
struct fs_stored {
  static FS_METHOD T from(T value) { return value; }
};

template <>
struct fs_stored<bf16> {
  static FS_METHOD bf16 from(float value) {
    bf16 stored;
#if !defined(FUSIONSTITCH_EMULATE) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(stored.bits) : "f"(value));
#else
    uint32_t bits = fs_bitcast<uint32_t>(value);
    uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    stored.bits = (uint16_t)((is_nan ? bits | 0x400000u : rounded) >> 16);
#endif
    return stored;
  }
};

template <>
struct fs_stored<f16> {
  static FS_METHOD f16 from(float value) {
    f16 stored;
#ifndef FUSIONSTITCH_EMULATE
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored.bits) : "f"(value));
#else
    uint32_t bits = fs_bitcast<uint32_t>(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t result;
    if (magnitude > 0x7f800000u) {  // NaN: quiet, payload kept
      result = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
      result = 0x7c00u;
    } else if (magnitude < 0x38800000u) {  // subnormal: adding 1/2 leaves ulps of 2^-24 behind
      float shifted = fs_bitcast<float>(magnitude) + 0.5f;
      result = fs_bitcast<uint32_t>(shifted) - 0x3f000000u;
    } else {
      result = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    }
    stored.bits = (uint16_t)(sign | result);
#endif
    return stored;
  }
};

template <class T>
FS_FN T fs_store_as(typename fs_compute<T>::type value) {
  return fs_stored<T>::from(value);
}

// The rounding points that strict numerics keeps.
FS_FN float fs_round_bf16(float value) { return fs_load(fs_store_as<bf16>(value)); }
FS_FN float fs_round_f16(float value) { return fs_load(fs_store_as<f16>(value)); }

// ---- vectors of up to 16 bytes: one memory access -----------------------------------------------

template <class T, int N>
struct alignas(sizeof(T) * N) FS_MAY_ALIAS fs_vec {
  T at[N];
  FS_METHOD T& operator[](int i) { return at[i]; }
  FS_METHOD const T& operator[](int i) const { return at[i]; }
};

// `from` and `to` must be aligned to sizeof(T) * N bytes.
template <class T, int N>
FS_FN fs_vec<T, N> fs_load_vec(const T* from) {
  static_assert(sizeof(T) * N <= 16, "one access moves at most 16 bytes");
  return *(const fs_vec<T, N>*)from;
}

template <class T, int N>
FS_FN void fs_store_vec(T* to, fs_vec<T, N> values) {
  static_assert(sizeof(T) * N <= 16, "one access moves at most 16 bytes");
  *(fs_vec<T, N>*)to = values;
}

// ---- limits -------------------------------------------------------------------------------------

template <class T>
struct fs_limits {
  static const bool is_signed = (T)-1 < (T)1;
  static FS_METHOD T lowest() { return is_signed ? (T)(1ull << (sizeof(T) * 8 - 1)) : (T)0; }
  static FS_METHOD T highest() { return (T)~lowest(); }
};
template <>
struct fs_limits<bool> {
  static FS_METHOD bool lowest() { return false; }
  static FS_METHOD bool highest() { return true; }
};
template <>
struct fs_limits<float> {
  static FS_METHOD float lowest() { return fs_bitcast<float>(0xff800000u); }
  static FS_METHOD float highest() { return fs_bitcast<float>(0x7f800000u); }
};
template <>
struct fs_limits<double> {
  static FS_METHOD double lowest() { return fs_bitcast<double>(0xfff0000000000000ull); }
  static FS_METHOD double highest() { return fs_bitcast<double>(0x7ff0000000000000ull); }
};

// ---- arithmetic: integers wrap, pred adds with or and multiplies with and -----------------------

template <class T>
FS_FN T fs_add(T a, T b) {
  typedef typename fs_word<T>::type Word;
  return (T)((Word)a + (Word)b);
}
FS_FN float fs_add(float a, float b) { return a + b; }
FS_FN double fs_add(double a, double b) { return a + b; }
FS_FN bool fs_add(bool a, bool b) { return a || b; }

template <class T>
FS_FN T fs_sub(T a, T b) {
  typedef typename fs_word<T>::type Word;
  return (T)((Word)a - (Word)b);
}

template <class T>
FS_FN T fs_mul(T a, T b) {
  typedef typename fs_word<T>::type Word;
  return (T)((Word)a * (Word)b);
}
FS_FN float fs_mul(float a, float b) { return a * b; }
FS_FN double fs_mul(double a, double b) { return a * b; }
FS_FN bool fs_mul(bool a, bool b) { return a && b; }

template <class T>
FS_FN T fs_neg(T a) {
  return fs_sub((T)0, a);
}

template <class T>
FS_FN T fs_abs(T a) {
  return fs_limits<T>::is_signed && a < (T)1 ? fs_neg(a) : a;
}

// x / 0 has all bits set, x % 0 is x, lowest / -1 wraps to lowest.
template <class T>
FS_FN T fs_div(T a, T b) {
  if (b == (T)0) return (T)-1;
  if (fs_limits<T>::is_signed && b == (T)-1) return fs_neg(a);
  return (T)(a / b);
}

template <class T>
FS_FN T fs_rem(T a, T b) {
  if (b == (T)0) return a;
  if (fs_limits<T>::is_signed && b == (T)-1) return (T)0;
  return (T)(a % b);
}

// Negative exponents: 1 and -1 keep their powers, every other base gives 0.
template <class T>
FS_FN T fs_pow(T base, T exponent) {
  bool odd = exponent & (T)1;
  if (fs_limits<T>::is_signed && exponent <= (T)-1 && exponent != (T)0)
    return base == (T)1 ? (T)1 : base == (T)-1 ? (odd ? (T)-1 : (T)1) : (T)0;
  T result = 1;
  while (exponent != (T)0) {
    if (exponent & (T)1) result = fs_mul(result, base);
    base = fs_mul(base, base);
    exponent = (T)(exponent >> 1);
  }
  return result;
}

template <class T>
FS_FN T fs_sign(T a) {
  return a == (T)0 ? (T)0 : fs_limits<T>::is_signed && a < (T)1 ? (T)-1 : (T)1;
}
FS_FN float fs_sign(float a) { return a > 0 ? 1.0f : a < 0 ? -1.0f : a; }  // NaN and -0 stay
FS_FN double fs_sign(double a) { return a > 0 ? 1.0 : a < 0 ? -1.0 : a; }

// Maximum and minimum of floats propagate NaN.
template <class T>
FS_FN T fs_max(T a, T b) {
  return a > b ? a : b;
}
FS_FN double fs_max(double a, double b) { return a > b || a != a ? a : b; }
FS_FN float fs_max(float a, float b) {
#if !defined(FUSIONSTITCH_EMULATE) && __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a > b || a != a ? a : b;
#endif
}

template <class T>
FS_FN T fs_min(T a, T b) {
  return a < b ? a : b;
}
FS_FN double fs_min(double a, double b) { return a < b || a != a ? a : b; }
FS_FN float fs_min(float a, float b) {
#if !defined(FUSIONSTITCH_EMULATE) && __CUDA_ARCH__ >= 800
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a < b || a != a ? a : b;
#endif
}

template <class T>
FS_FN T fs_clamp(T low, T x, T high) {
  return fs_min(fs_max(x, low), high);
}

FS_FN bool fs_is_finite(float x) { return (fs_bitcast<uint32_t>(x) & 0x7f800000u) != 0x7f800000u; }
FS_FN bool fs_is_finite(double x) {
  return (fs_bitcast<uint64_t>(x) & 0x7ff0000000000000ull) != 0x7ff0000000000000ull;
}

FS_FN float fs_logistic(float x) { return 1.0f / (1.0f + expf(-x)); }
FS_FN double fs_logistic(double x) { return 1.0 / (1.0 + exp(-x)); }

// ---- bit operations: shifts by the width or more move every bit out -----------------------------

template <class T>
FS_FN bool fs_shifts_out(T by) {
  return (typename fs_bits<sizeof(T)>::type)by >= sizeof(T) * 8;
}

template <class T>
FS_FN T fs_shift_left(T a, T by) {
  return fs_shifts_out(by) ? (T)0 : (T)((typename fs_word<T>::type)a << by);
}

template <class T>
FS_FN T fs_shift_right_logical(T a, T by) {
  return fs_shifts_out(by) ? (T)0 : (T)((typename fs_bits<sizeof(T)>::type)a >> by);
}

template <class T>
FS_FN T fs_shift_right_arithmetic(T a, T by) {
  typedef typename fs_bits<sizeof(T)>::type Bits;
  Bits sign = (Bits)((Bits)a >> (sizeof(T) * 8 - 1));
  Bits fill = (Bits)-sign;  // all ones for a set sign bit
  if (fs_shifts_out(by)) return (T)fill;
  return (T)(Bits)(((Bits)((Bits)a ^ fill) >> by) ^ fill);
}

template <class T>
FS_FN T fs_popcount(T a) {
  uint64_t bits = (typename fs_bits<sizeof(T)>::type)a;
  return (T)__popcll(bits);
}

template <class T>
FS_FN T fs_leading_zeros(T a) {
  uint64_t bits = (typename fs_bits<sizeof(T)>::type)a;
  int unused = 64 - (int)sizeof(T) * 8;
  return (T)(__clzll((long long)bits) - unused);
}

// ---- conversions --------------------------------------------------------------------------------

// Float to integer: toward zero, saturating, NaN becomes 0.
template <class To, class From>
FS_FN To fs_to_int(From x) {
  const To lowest = fs_limits<To>::lowest(), highest = fs_limits<To>::highest();
  const From end = (From)(highest / 2 + 1) * (From)2;  // a power of two, so exact
  if (x != x) return (To)0;
  if (x >= end) return highest;
  if (x <= (From)lowest) return lowest;
  return (To)x;
}

// Integers in IEEE total order: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
FS_FN int32_t fs_total_order(float x) {
  int32_t bits = fs_bitcast<int32_t>(x);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}
FS_FN int64_t fs_total_order(double x) {
  int64_t bits = fs_bitcast<int64_t>(x);
  return bits < 0 ? bits ^ 0x7fffffffffffffffll : bits;
}

// reduce-precision of a float held as bits with EXPONENT and MANTISSA bits: XLA's own algorithm,
// which flushes what would be subnormal in the narrower format to zero.
template <int EXPONENT, int MANTISSA, int TO_EXPONENT, int TO_MANTISSA, class Bits>
FS_FN Bits fs_reduce_bits(Bits x) {
  const uint64_t sign = 1ull << (EXPONENT + MANTISSA);
  const uint64_t infinity = ((1ull << EXPONENT) - 1) << MANTISSA;
  uint64_t bits = x;
  if ((bits & (sign - 1)) > infinity) return x;  // NaN
  if (TO_MANTISSA < MANTISSA) {
    const int dropped = MANTISSA > TO_MANTISSA ? MANTISSA - TO_MANTISSA : 0;
    const uint64_t half = (1ull << dropped) >> 1;
    bits = (bits + half - 1 + (bits >> dropped & 1)) >> dropped << dropped;
  }
  if (TO_EXPONENT < EXPONENT) {
    const uint64_t bias = (1ull << (EXPONENT - 1)) - 1;
    const uint64_t to_bias = (1ull << (TO_EXPONENT - 1)) - 1;
    uint64_t exponent = bits & infinity;
    if (exponent > (bias + to_bias) << MANTISSA) return (Bits)((bits & sign) | infinity);
    if (exponent <= (bias - to_bias) << MANTISSA) return (Bits)(bits & sign);
  }
  return (Bits)bits;
}

// ---- reducers: apply(a, b) and the value that changes nothing -----------------------------------

struct FsAdd {
  template <class T>
  static FS_METHOD T apply(T a, T b) {
    return fs_add(a, b);
  }
  template <class T>
  static FS_METHOD T identity() {
    return (T)0;
  }
};
struct FsMultiply {
  template <class T>
  static FS_METHOD T apply(T a, T b) {
    return fs_mul(a, b);
  }
  template <class T>
  static FS_METHOD T identity() {
    return (T)1;
  }
};
struct FsMaximum {
  template <class T>
  static FS_METHOD T apply(T a, T b) {
    return fs_max(a, b);
  }
  template <class T>
  static FS_METHOD T identity() {
    return fs_limits<T>::lowest();
  }
};
struct FsMinimum {
  template <class T>
  static FS_METHOD T apply(T a, T b) {
    return fs_min(a, b);
  }
  template <class T>
  static FS_METHOD T identity() {
    return fs_limits<T>::highest();
  }
};
struct FsAnd {
  template <class T>
  static FS_METHOD T apply(T a, T b) {
    return (T)(a & b);
  }
  template <class T>
  static FS_METHOD T identity() {
    return (T)-1;
  }
};
struct FsOr {
  template <class T>
  static FS_METHOD T apply(T a, T b) {
    return (T)(a | b);
  }
  template <class T>
  static FS_METHOD T identity() {
    return (T)0;
  }
};
struct FsXor {
  template <class T>
  static FS_METHOD T apply(T a, T b) {
    return (T)(a ^ b);
  }
  template <class T>
  static FS_METHOD T identity() {
    return (T)0;
  }
};

// ---- reductions across threads ------------------------------------------------------------------

// The value of the lane whose number differs in `mask`; all 32 lanes of the warp take part.
template <class T>
FS_FN T fs_shuffle_xor(T value, int mask) {
  return (T)__shfl_xor_sync(0xffffffffu, (typename fs_word<T>::type)value, mask);
}
FS_FN float fs_shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
FS_FN double fs_shuffle_xor(double value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

// Reduces over each aligned group of WIDTH lanes (a power of two up to 32). Every lane gets its
// group's result. All 32 lanes of the warp must call it together.
template <int WIDTH, class Op, class T>
FS_FN T fs_reduce_lanes(T value) {
  static_assert(WIDTH >= 1 && WIDTH <= 32 && (WIDTH & (WIDTH - 1)) == 0, "a power of two");
  FS_UNROLL
  for (int mask = WIDTH / 2; mask > 0; mask /= 2)
    value = Op::apply(value, fs_shuffle_xor(value, mask));
  return value;
}

// Reduces over the whole block; blockDim.x is a multiple of 32 and all threads call it. Every
// thread gets the result. `scratch` holds blockDim.x / 32 values of T in shared memory.
// Barriers: one between the writes and the reads of `scratch`, one after the reads. So on return
// `scratch` may be overwritten at once, but what used it before must be behind a barrier already.
template <class Op, class T>
FS_FN T fs_reduce_block(T value, T* scratch) {
  int lane = (int)threadIdx.x & 31;
  int warps = (int)blockDim.x / 32;
  value = fs_reduce_lanes<32, Op>(value);
  if (warps == 1) return value;
  if (lane == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = fs_reduce_lanes<32, Op>(lane < warps ? scratch[lane] : Op::template identity<T>());
  __syncthreads();
  return value;
}

// Reduces over the threads whose numbers are equal modulo COLUMNS; blockDim.x is a multiple of
// COLUMNS and all threads call it. Every thread gets its column's result. `scratch` holds blockDim.x
// values of T in shared memory. Barriers: one after every write to `scratch`, one at the end. So on
// return `scratch` may be overwritten at once, but what used it before must be behind a barrier.
template <int COLUMNS, class Op, class T>
FS_FN T fs_reduce_strided(T value, T* scratch) {
  int row = (int)threadIdx.x / COLUMNS, column = (int)threadIdx.x % COLUMNS;
  scratch[threadIdx.x] = value;
  __syncthreads();
  for (int rows = (int)blockDim.x / COLUMNS; rows > 1;) {
    int half = (rows + 1) / 2;
    if (row + half < rows) {
      value = Op::apply(value, scratch[(row + half) * COLUMNS + column]);
      scratch[threadIdx.x] = value;
    }
    rows = half;
    __syncthreads();
  }
  value = scratch[column];
  __syncthreads();
  return value;
}

// ---- what the two sides do differently ----------------------------------------------------------

#ifdef FUSIONSTITCH_EMULATE
FS_FN void fs_grid_barrier() { fs_emulated_grid_barrier(); }
#else
#define FS_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#include "grid_barrier.cuh"
#endif
