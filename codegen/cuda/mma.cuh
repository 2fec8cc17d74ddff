// Products of small matrices on tensor cores. Included by fusionstitch.cuh.
#pragma once

// c += a b for one warp, a [16, 8], b [8, 8], c [16, 8] of floats. Lane 4 g + t holds of a the rows g
// and g + 8 at the summed indices t and t + 4, a[0..3] = (g, t), (g + 8, t), (g, t + 4), (g + 8,
// t + 4); of b column g at the same indices, b[0..1]; of c the columns 2 t and 2 t + 1 of row g in
// `top` and of row g + 8 in `bottom`. The order of the summed indices is the caller's: any that is
// the same in a and b. All 32 lanes of the warp must call it together.
//
// Tensor cores read floats as tf32: sign, exponent, 10 bits. An operand of one part is rounded to
// that, which keeps f16 and bf16 as they are; one of two parts is split in two such numbers, whose
// products but the smallest are added up: 22 bits of an f32 count.

FS_FN float fs_high_part(float x) { return fs_bitcast<float>(fs_bitcast<uint32_t>(x) & 0xffffe000u); }
// To the nearest such number, infinities and NaNs as they are; the emulator leaves the last 13 bits
// to be cut off.
FS_FN float fs_one_part(float x) {
#ifdef FUSIONSTITCH_EMULATE
  return fabsf(x) < INFINITY ? fs_bitcast<float>(fs_bitcast<uint32_t>(x) + 0x1000u) : x;
#else
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return fs_bitcast<float>(rounded);
#endif
}
// What the high part leaves; a finite number also for an infinity, whose high part is all of it.
// Tensor cores cut off what does not fit: after the product with 1 + 2^-11 that rounds.
FS_FN float fs_low_part(float x) { return fminf(x - fs_high_part(x), 1e30f) * 1.00048828125f; }

// c += a b, operands read as tf32.
FS_FN void fs_mma_tf32(float* c, const float* a, const float* b) {
#ifdef FUSIONSTITCH_EMULATE
  struct Fragments {
    float a[32][4], b[32][2];
  } own;
  // every lane writes its part into lane 0's
  Fragments& all = *(Fragments*)__shfl_sync(0xffffffffu, (uint64_t)&own, 0);
  const int lane = (int)threadIdx.x & 31, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) all.a[lane][i] = fs_high_part(a[i]);
  for (int i = 0; i < 2; ++i) all.b[lane][i] = fs_high_part(b[i]);
  __syncwarp();
  for (int k = 0; k < 8; ++k)
    for (int i = 0; i < 4; ++i)
      c[i] += all.a[g * 4 + k % 4][k / 4 * 2 + i / 2] * all.b[(2 * t + i % 2) * 4 + k % 4][k / 4];
  __syncwarp();
#else
  float d[4];
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(fs_bitcast<uint32_t>(a[0])), "r"(fs_bitcast<uint32_t>(a[1])),
        "r"(fs_bitcast<uint32_t>(a[2])), "r"(fs_bitcast<uint32_t>(a[3])),
        "r"(fs_bitcast<uint32_t>(b[0])), "r"(fs_bitcast<uint32_t>(b[1])),
        "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  FS_UNROLL
  for (int i = 0; i < 4; ++i) c[i] = d[i];
#endif
}

// c = a b with operands of A and B parts, the small products first. Of a row, c's two columns are
// PAIR apart.
template <int A, int B, int PAIR = 1>
FS_FN void fs_mma_first(float* top, float* bottom, const float* a, const float* b) {
  float a_high[4], a_low[4], b_high[2], b_low[2], c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  FS_UNROLL
  for (int i = 0; i < 4; ++i) {
    a_high[i] = A == 1 ? fs_one_part(a[i]) : fs_high_part(a[i]);
    a_low[i] = fs_low_part(a[i]);
  }
  FS_UNROLL
  for (int i = 0; i < 2; ++i) {
    b_high[i] = B == 1 ? fs_one_part(b[i]) : fs_high_part(b[i]);
    b_low[i] = fs_low_part(b[i]);
  }
  if (A == 2) fs_mma_tf32(c, a_low, b_high);
  if (B == 2) fs_mma_tf32(c, a_high, b_low);
  fs_mma_tf32(c, a_high, b_high);
  top[0] = c[0], top[PAIR] = c[1], bottom[0] = c[2], bottom[PAIR] = c[3];
}

// c += a b. Tensor cores cut off what a sum cannot hold; so they start from zero, and the sum is
// rounded as all others are.
template <int A, int B, int PAIR = 1>
FS_FN void fs_mma(float* top, float* bottom, const float* a, const float* b) {
  float upper[2], lower[2];
  fs_mma_first<A, B>(upper, lower, a, b);
  top[0] += upper[0], top[PAIR] += upper[1], bottom[0] += lower[0], bottom[PAIR] += lower[1];
}
