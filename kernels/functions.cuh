// Functions of floats that cost fewer instructions than the CUDA library's. Included by
// fusionstitch.cuh. Errors are against the exact result; emulated kernels compute the same formulas
// with the host's own functions in place of the special-function unit.
#pragma once

// ---- the special-function unit: one instruction each where subnormals count as zero (.ftz) ------

#ifdef FUSIONSTITCH_EMULATE
FS_FN float fs_flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
FS_FN float fs_unit_exp2(float x) { return fs_flush(exp2f(fs_flush(x))); }
FS_FN float fs_unit_log2(float x) { return log2f(x); }
FS_FN float fs_unit_reciprocal(float x) { return fs_flush(1.0f / fs_flush(x)); }
FS_FN float fs_unit_tanh(float x) { return tanhf(x); }
#else
#define FS_UNIT(name, instruction)                     \
  FS_FN float name(float x) {                          \
    float result;                                      \
    asm(instruction " %0, %1;" : "=f"(result) : "f"(x)); \
    return result;                                     \
  }
FS_UNIT(fs_unit_exp2, "ex2.approx.ftz.f32")        // 2 ulp
FS_UNIT(fs_unit_log2, "lg2.approx.f32")            // 2^-22, absolute from 0.5 to 2, else relative
FS_UNIT(fs_unit_reciprocal, "rcp.approx.ftz.f32")  // 1 ulp
#if __CUDA_ARCH__ >= 750
FS_UNIT(fs_unit_tanh, "tanh.approx.f32")  // 2^-11 relative
#else
FS_FN float fs_unit_tanh(float x) { return tanhf(x); }
#endif
#undef FS_UNIT
#endif

// ---- full accuracy ------------------------------------------------------------------------------

// 2 ulp over the full range, as XLA divides; IEEE division takes a branch and thrice the time.
FS_FN float fs_divide(float a, float b) {
#ifdef FUSIONSTITCH_EMULATE
  return a / b;
#else
  float result;
  asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#endif
}

// 1 ulp over the full range, as XLA takes roots.
FS_FN float fs_sqrt(float x) {
#ifdef FUSIONSTITCH_EMULATE
  return sqrtf(x);
#else
  float result;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#endif
}

// 1 / (1 + exp(-x)), 4 ulp, 0 below -88.7 where exp(-x) overflows. Both terms of the sum are
// scaled by 1/4, so that the reciprocal's argument stays in the unit's range.
FS_FN float fs_logistic(float x) {
  return 0.25f * fs_unit_reciprocal(fmaf(0.25f, expf(-x), 0.25f));
}
FS_FN double fs_logistic(double x) { return 1.0 / (1.0 + exp(-x)); }

// ---- approximations: for results of 8 or 11 bits, and for numerics="fast" -----------------------

const float FS_LOG2_E = 1.44269504f;
const float FS_LN_2 = 0.693147181f;

// 2^-16 relative, subnormal results are 0.
FS_FN float fs_approximate_exp(float x) { return fs_unit_exp2(x * FS_LOG2_E); }

// 2^-22 absolute from 0.5 to 2, else relative.
FS_FN float fs_approximate_log(float x) { return fs_unit_log2(x) * FS_LN_2; }

// 2^-16 relative, 0 below -88.
FS_FN float fs_approximate_logistic(float x) {
  return fs_unit_reciprocal(1.0f + fs_unit_exp2(x * -FS_LOG2_E));
}

// 2^-10.9 relative.
FS_FN float fs_approximate_tanh(float x) { return fs_unit_tanh(x); }

// 2 ulp where both b and 1 / b are normal numbers.
FS_FN float fs_approximate_divide(float a, float b) { return a * fs_unit_reciprocal(b); }
