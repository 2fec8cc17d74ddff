// HLO arithmetic where it differs from C's. Included by fusionstitch.cuh.
#pragma once

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

// Maximum and minimum of floats propagate NaN, and -0 is below +0, as for the hardware's instruction.
FS_FN bool fs_signed(float x) { return fs_bitcast<int32_t>(x) < 0; }
FS_FN bool fs_signed(double x) { return fs_bitcast<int64_t>(x) < 0; }

template <class T>
FS_FN T fs_max(T a, T b) {
  return a > b ? a : b;
}
FS_FN double fs_max(double a, double b) {
  return a == b ? (fs_signed(a) ? b : a) : a > b || a != a ? a : b;
}
FS_FN float fs_max(float a, float b) {
#if !defined(FUSIONSTITCH_EMULATE) && __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a == b ? (fs_signed(a) ? b : a) : a > b || a != a ? a : b;
#endif
}

template <class T>
FS_FN T fs_min(T a, T b) {
  return a < b ? a : b;
}
FS_FN long long fs_min(int a, long long b) { return a < b ? a : b; }  // of 64-bit indices
FS_FN double fs_min(double a, double b) {
  return a == b ? (fs_signed(a) ? a : b) : a < b || a != a ? a : b;
}
FS_FN float fs_min(float a, float b) {
#if !defined(FUSIONSTITCH_EMULATE) && __CUDA_ARCH__ >= 800
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a == b ? (fs_signed(a) ? a : b) : a < b || a != a ? a : b;
#endif
}

template <class T>
FS_FN T fs_clamp(T low, T x, T high) {
  return fs_min(fs_max(x, low), high);
}

FS_FN bool fs_is_finite(float x) { return fabsf(x) < fs_limits<float>::highest(); }
FS_FN bool fs_is_finite(double x) { return fabs(x) < fs_limits<double>::highest(); }

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

// `by` is from 1 to 31: one funnel shift.
FS_FN uint32_t fs_rotate_left(uint32_t a, uint32_t by) { return __funnelshift_l(a, a, by); }

template <class T>
FS_FN T fs_popcount(T a) {
  typename fs_bits<sizeof(T)>::type bits = a;
  return (T)(sizeof(T) > 4 ? __popcll(bits) : __popc((uint32_t)bits));
}

template <class T>
FS_FN T fs_leading_zeros(T a) {
  typename fs_bits<sizeof(T)>::type bits = a;
  if (sizeof(T) > 4) return (T)__clzll((long long)bits);
  return (T)(__clz((int)(uint32_t)bits) - (32 - (int)sizeof(T) * 8));
}

// ---- conversions --------------------------------------------------------------------------------

// Float to integer: toward zero, saturating, NaN becomes 0.
template <class To, class From>
FS_FN To fs_to_int(From x) {
#ifndef FUSIONSTITCH_EMULATE
  if constexpr (sizeof(To) == 4 && sizeof(From) == 4) return (To)x;  // what the hardware does
#endif
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
