// Element types in memory and in registers, vectors, limits. Included by fusionstitch.cuh.
#pragma once

// ---- bits ---------------------------------------------------------------------------------------

template <class To, class From>
FS_FN constexpr To fs_bitcast(From value) {
  static_assert(sizeof(To) == sizeof(From), "a bitcast keeps the number of bytes");
  return __builtin_bit_cast(To, value);  // tables of constants hold infinities and NaN
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

// Floats of one byte: EXPONENT and MANTISSA bits, and what stands where others have infinities.
enum fs_specials {
  FS_IEEE,    // infinities and NaN, as in the wider types
  FS_FINITE,  // no infinities; NaN has all bits set
  FS_UNSIGNED_ZERO  // no infinities, no -0, whose bits mean NaN
};
template <int EXPONENT, int MANTISSA, int BIAS, fs_specials SPECIALS>
struct fs_float8 {
  uint8_t bits;
};
typedef fs_float8<5, 2, 15, FS_IEEE> f8e5m2;
typedef fs_float8<4, 3, 7, FS_IEEE> f8e4m3;
typedef fs_float8<3, 4, 3, FS_IEEE> f8e3m4;
typedef fs_float8<4, 3, 7, FS_FINITE> f8e4m3fn;
typedef fs_float8<4, 3, 11, FS_UNSIGNED_ZERO> f8e4m3b11fnuz;
typedef fs_float8<4, 3, 8, FS_UNSIGNED_ZERO> f8e4m3fnuz;
typedef fs_float8<5, 2, 16, FS_UNSIGNED_ZERO> f8e5m2fnuz;

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

template <int E, int M, int BIAS, fs_specials S>
struct fs_compute<fs_float8<E, M, BIAS, S>> {
  typedef float type;
};

// fs_load: stored element -> compute value, exact.
template <class T>
FS_FN T fs_load(T stored) {
  return stored;
}

FS_FN float fs_load(const bf16& stored) { return fs_bitcast<float>((uint32_t)stored.bits << 16); }

FS_FN float fs_load(const f16& memory) {
  const f16 stored = memory;
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

template <int E, int M, int BIAS, fs_specials S>
FS_FN float fs_load(const fs_float8<E, M, BIAS, S>& memory) {
  const fs_float8<E, M, BIAS, S> stored = memory;
  uint32_t sign = (uint32_t)(stored.bits & 0x80u) << 24;
  uint32_t magnitude = stored.bits & 0x7fu;
  const uint32_t infinity = ((1u << E) - 1) << M;
  const float nan = fs_bitcast<float>(0x7fc00000u);
  if (S == FS_UNSIGNED_ZERO && stored.bits == 0x80u) return nan;
  if (S == FS_FINITE && magnitude == 0x7fu) return fs_bitcast<float>(sign | 0x7fc00000u);
  if (S == FS_IEEE && magnitude >= infinity)
    return fs_bitcast<float>(sign | (magnitude > infinity ? 0x7fc00000u : 0x7f800000u));
  if (magnitude < 1u << M) {  // zero and subnormals: multiples of the smallest number
    float value = (float)magnitude * fs_bitcast<float>((uint32_t)(128 - BIAS - M) << 23);
    return fs_bitcast<float>(sign | fs_bitcast<uint32_t>(value));
  }
  return fs_bitcast<float>(sign | ((magnitude << (23 - M)) + ((uint32_t)(127 - BIAS) << 23)));
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

template <int E, int M, int BIAS, fs_specials S>
struct fs_stored<fs_float8<E, M, BIAS, S>> {
  static FS_METHOD fs_float8<E, M, BIAS, S> from(float value) {
    const uint32_t infinity = ((1u << E) - 1) << M;
    const uint32_t largest = S == FS_IEEE ? infinity - 1 : S == FS_FINITE ? 0x7eu : 0x7fu;
    const uint32_t nan = S == FS_IEEE ? infinity | 1u << (M - 1) : S == FS_FINITE ? 0x7fu : 0x80u;
    uint32_t bits = fs_bitcast<uint32_t>(value);
    uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu, result;
    if (magnitude < (uint32_t)(128 - BIAS) << 23) {  // adding this leaves multiples of the smallest
      const uint32_t shift = (uint32_t)(151 - BIAS - M) << 23;
      result = fs_bitcast<uint32_t>(fs_bitcast<float>(magnitude) + fs_bitcast<float>(shift)) - shift;
    } else {
      const uint32_t half = (1u << (22 - M)) - 1;
      result = (magnitude + half + (magnitude >> (23 - M) & 1u)) >> (23 - M);
      result -= (uint32_t)(127 - BIAS) << M;
    }
    if (magnitude > 0x7f800000u) {
      result = nan;
    } else if (result > largest) {
      result = S == FS_IEEE ? infinity : nan;
    }
    if (S == FS_UNSIGNED_ZERO && (result == 0 || result == nan)) sign = 0;
    fs_float8<E, M, BIAS, S> stored;
    stored.bits = (uint8_t)(sign | result);
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
// That of a float of one byte.
template <class T>
FS_FN float fs_round(float value) {
  return fs_load(fs_store_as<T>(value));
}

// ---- vectors: one memory access per 16 bytes ----------------------------------------------------

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) FS_MAY_ALIAS fs_vec {
  T at[N];
  FS_METHOD T& operator[](int i) { return at[i]; }
  FS_METHOD const T& operator[](int i) const { return at[i]; }
};

// Vectors of bf16 are loaded as words of two: each element is the upper half of a float, and one
// instruction makes it that.
struct fs_upper_half {
  uint32_t bits;
};
FS_FN float fs_load(fs_upper_half loaded) { return fs_bitcast<float>(loaded.bits); }

template <int N>
struct alignas(2 * N < 16 ? 2 * N : 16) FS_MAY_ALIAS fs_bf16_words {
  uint32_t words[N / 2];
  FS_METHOD fs_upper_half operator[](int i) const {
    uint32_t word = words[i / 2];
    fs_upper_half half = {i % 2 ? word & 0xffff0000u : word << 16};
    return half;
  }
};

// fs_loaded<T, N>: N elements of T as fs_load_vec returns them.
template <class T, int N>
struct fs_loaded_as {
  typedef fs_vec<T, N> type;
};
template <int N>
struct fs_loaded_as<bf16, N> {
  typedef fs_bf16_words<N> type;
};
template <class T, int N>
using fs_loaded = typename fs_loaded_as<T, N>::type;

// `from` and `to` must be aligned to sizeof(T) * N bytes, at most 16.
template <class T, int N>
FS_FN fs_loaded<T, N> fs_load_vec(const T* from) {
  return *(const fs_loaded<T, N>*)from;
}

template <class T, int N>
FS_FN void fs_store_vec(T* to, fs_vec<T, N> values) {
  *(fs_vec<T, N>*)to = values;
}

// ---- limits -------------------------------------------------------------------------------------

template <class T>
struct fs_limits {
  static const bool is_signed = (T)-1 < (T)1;
  static FS_METHOD constexpr T lowest() { return is_signed ? (T)(1ull << (sizeof(T) * 8 - 1)) : (T)0; }
  static FS_METHOD constexpr T highest() { return (T)~lowest(); }
};
template <>
struct fs_limits<bool> {
  static FS_METHOD constexpr bool lowest() { return false; }
  static FS_METHOD constexpr bool highest() { return true; }
};
template <>
struct fs_limits<float> {
  static FS_METHOD constexpr float lowest() { return fs_bitcast<float>(0xff800000u); }
  static FS_METHOD constexpr float highest() { return fs_bitcast<float>(0x7f800000u); }
};
template <>
struct fs_limits<double> {
  static FS_METHOD constexpr double lowest() { return fs_bitcast<double>(0xfff0000000000000ull); }
  static FS_METHOD constexpr double highest() { return fs_bitcast<double>(0x7ff0000000000000ull); }
};
