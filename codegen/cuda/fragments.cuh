// Products on tensor cores whose operands are words of neighbouring elements: each lane reads several
// at once, in whatever order suits memory. Included by fusionstitch.cuh.
#pragma once

// One step sums over 16 elements of bf16 or f16, or over 8 of tf32 or floats. Lane 4 g + t holds two
// 32-bit words: of rows g and g + 8 of the left operand (`upper`, `lower`), of column g of the right
// one; and of the result the columns 2 t and 2 t + 1 of both rows (`top`, `bottom`). Which elements
// lie in the words of lane t is the caller's choice, the same on both sides.

// A float that is rounded to what tensor cores read of it: sign, exponent, 10 bits.
struct tf32 {
  uint32_t bits;
};
FS_FN float fs_load(const tf32& memory) { return fs_high_part(fs_bitcast<float>(memory.bits)); }

// Elements of T that a word holds, and those of one step that a lane holds.
template <class T>
constexpr int fs_per_word = 4 / (int)sizeof(T);
template <class T>
constexpr int fs_slots = 2 * fs_per_word<T>;

template <class T>
constexpr bool fs_is_bf16 = false;
template <>
constexpr bool fs_is_bf16<bf16> = true;
template <class T>
constexpr bool fs_is_tf32 = false;
template <>
constexpr bool fs_is_tf32<tf32> = true;

// N words as one memory access, N at most 4.
template <int N>
struct alignas(4 * N) FS_MAY_ALIAS fs_words {
  uint32_t at[N];
};

// ---- elements in words --------------------------------------------------------------------------

// The word of one or two values as elements of T, to nearest even; the word of elements number i of
// two columns; the word of one or two elements that lie `stride` apart.
template <class T>
struct fs_elements {
  static FS_METHOD uint32_t word(const float* values) {
#ifndef FUSIONSTITCH_EMULATE
    uint32_t both;
    if constexpr (fs_is_bf16<T>)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(values[1]), "f"(values[0]));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(values[1]), "f"(values[0]));
    return both;
#else
    const uint32_t low = fs_store_as<T>(values[0]).bits, high = fs_store_as<T>(values[1]).bits;
    return high << 16 | low;
#endif
  }
  static FS_METHOD uint32_t beside(const uint32_t* first, const uint32_t* second, int i) {
    const uint32_t low = first[i / 2], high = second[i / 2];
#ifndef FUSIONSTITCH_EMULATE
    return __byte_perm(low, high, i % 2 ? 0x7632 : 0x5410);
#else
    return i % 2 ? low >> 16 | (high & 0xffff0000u) : (low & 0xffffu) | high << 16;
#endif
  }
  static FS_METHOD uint32_t down(const T* first, int stride) {
    return first[0].bits | (uint32_t)first[stride].bits << 16;
  }
};
template <>
struct fs_elements<float> {
  static FS_METHOD uint32_t word(const float* values) { return fs_bitcast<uint32_t>(values[0]); }
  static FS_METHOD uint32_t down(const float* first, int) { return fs_bitcast<uint32_t>(*first); }
};
template <>
struct fs_elements<tf32> {
  static FS_METHOD uint32_t word(const float* values) {
    return fs_bitcast<uint32_t>(fs_one_part(values[0]));
  }
  static FS_METHOD uint32_t down(const tf32* first, int) { return first->bits; }
};

// N values as words of T in registers; and, as one access, in memory.
template <class T, int N>
FS_FN void fs_pack(uint32_t* words, const float* values) {
  FS_UNROLL
  for (int i = 0; i < N / fs_per_word<T>; ++i)
    words[i] = fs_elements<T>::word(values + i * fs_per_word<T>);
}
template <class T, int N>
FS_FN void fs_store_packed(T* to, const float* values) {
  fs_words<N / fs_per_word<T>> words;
  fs_pack<T, N>(words.at, values);
  *(fs_words<N / fs_per_word<T>>*)to = words;
}

// ---- steps --------------------------------------------------------------------------------------

#ifndef FUSIONSTITCH_EMULATE
#define FS_MMA_8(type)                                                                           \
  asm("mma.sync.aligned.m16n8k8.row.col.f32." type "." type ".f32 "                              \
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                          \
      : "+f"(top[0]), "+f"(top[1]), "+f"(bottom[0]), "+f"(bottom[1])                             \
      : "r"(upper[0]), "r"(lower[0]), "r"(upper[1]), "r"(lower[1]), "r"(right[0]), "r"(right[1]))
#define FS_MMA_16(type)                                                                          \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                             \
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                          \
      : "+f"(top[0]), "+f"(top[1]), "+f"(bottom[0]), "+f"(bottom[1])                             \
      : "r"(upper[0]), "r"(lower[0]), "r"(upper[1]), "r"(lower[1]), "r"(right[0]), "r"(right[1]))
#endif

// result += left right for one step. All 32 lanes of the warp must call it together. Products of
// f16, bf16 and tf32 are exact; floats count with 22 bits (see fs_mma).
template <class T>
FS_FN void fs_mma_step(float* top, float* bottom, const uint32_t* upper, const uint32_t* lower,
                       const uint32_t* right) {
#ifdef FUSIONSTITCH_EMULATE
  struct Parts {
    float left[16][4][4], right[8][4][4];  // by row or column, lane of it, slot
  } own;
  // every lane writes its part into lane 0's
  Parts& all = *(Parts*)__shfl_sync(0xffffffffu, (uint64_t)&own, 0);
  const int lane = (int)threadIdx.x & 31, g = lane / 4, t = lane % 4;
  fs_vec<T, fs_slots<T>> parts[3];
  memcpy(&parts[0], upper, 8), memcpy(&parts[1], lower, 8), memcpy(&parts[2], right, 8);
  for (int i = 0; i < fs_slots<T>; ++i) {
    all.left[g][t][i] = fs_load(parts[0][i]);
    all.left[g + 8][t][i] = fs_load(parts[1][i]);
    all.right[g][t][i] = fs_load(parts[2][i]);
  }
  __syncwarp();
  for (int other = 0; other < 4; ++other)
    for (int i = 0; i < fs_slots<T>; ++i)
      for (int j = 0; j < 2; ++j) {
        const float factor = all.right[2 * t + j][other][i];
        top[j] += all.left[g][other][i] * factor;
        bottom[j] += all.left[g + 8][other][i] * factor;
      }
  __syncwarp();
#else
  if constexpr (fs_is_tf32<T>) {
    FS_MMA_8("tf32");
  } else if constexpr (fs_slots<T> == 2) {
    const float a[4] = {fs_bitcast<float>(upper[0]), fs_bitcast<float>(lower[0]),
                        fs_bitcast<float>(upper[1]), fs_bitcast<float>(lower[1])};
    const float b[2] = {fs_bitcast<float>(right[0]), fs_bitcast<float>(right[1])};
    fs_mma<2, 2>(top, bottom, a, b);
  } else if constexpr (fs_is_bf16<T>) {
    FS_MMA_16("bf16");
  } else {
    FS_MMA_16("f16");
  }
#endif
}

// result += left right for as many steps as WORDS words in a row are, those of the right operand read
// from `column`, elements that lie together and are summed over.
template <class T, int WORDS>
FS_FN void fs_mma_along(float* top, float* bottom, const uint32_t* upper, const uint32_t* lower,
                        const T* column) {
  const fs_words<WORDS> right = *(const fs_words<WORDS>*)column;
  FS_UNROLL
  for (int i = 0; i < WORDS; i += 2)
    fs_mma_step<T>(top, bottom, upper + i, lower + i, right.at + i);
}

// One step for as many columns of the result as WORDS words hold elements, eight lanes apart: number i
// of lane 4 g + t at top[2 i] and bottom[2 i]. The right operand's elements that are summed over are
// STRIDE elements apart; lane t reads those at `rows` and behind it, and of 16-bit ones another two
// eight behind.
template <class T, int WORDS, int STRIDE>
FS_FN void fs_mma_across(float* top, float* bottom, const uint32_t* upper, const uint32_t* lower,
                         const T* rows) {
  fs_words<WORDS> read[fs_slots<T>];
  FS_UNROLL
  for (int i = 0; i < fs_slots<T>; ++i)
    read[i] = *(const fs_words<WORDS>*)(rows + (i % 2 + i / 2 * 8) * STRIDE);
  FS_UNROLL
  for (int i = 0; i < WORDS * fs_per_word<T>; ++i) {
    uint32_t right[2];
    if constexpr (fs_slots<T> == 2) {
      right[0] = read[0].at[i], right[1] = read[1].at[i];
    } else {
      right[0] = fs_elements<T>::beside(read[0].at, read[1].at, i);
      right[1] = fs_elements<T>::beside(read[2].at, read[3].at, i);
    }
    fs_mma_step<T>(top + 2 * i, bottom + 2 * i, upper, lower, right);
  }
}

// One step of a sum over rows: of each row an element of the left operand by those of the right one.
// Both lie row by row, LEFT and RIGHT elements apart. Lane 4 g + t reads rows as fs_mma_across does;
// of the left operand the element at `left` and the one eight behind.
template <class T, int WORDS, int LEFT, int RIGHT>
FS_FN void fs_mma_down(float* top, float* bottom, const T* left, const T* right) {
  uint32_t upper[2], lower[2];
  FS_UNROLL
  for (int i = 0; i < 2; ++i) {
    const T* row = left + i * (fs_slots<T> == 2 ? 1 : 8) * LEFT;
    upper[i] = fs_elements<T>::down(row, LEFT);
    lower[i] = fs_elements<T>::down(row + 8, LEFT);
  }
  fs_mma_across<T, WORDS, RIGHT>(top, bottom, upper, lower, right);
}
