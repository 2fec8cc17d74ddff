// Bins: elements that several warps of a block have of their own, in shared memory, one warp's after
// the other's. Included by fusionstitch.cuh.
#pragma once

// The value of lane `source`; all 32 lanes of the warp take part.
template <class T>
FS_FN T fs_shuffle(T value, int source) {
  return (T)__shfl_sync(0xffffffffu, (typename fs_word<T>::type)value, source);
}
FS_FN float fs_shuffle(float value, int source) { return __shfl_sync(0xffffffffu, value, source); }
FS_FN double fs_shuffle(double value, int source) { return __shfl_sync(0xffffffffu, value, source); }

// `nothing` is in all of the SIZE elements of each of OWNERS warps. All threads of a warp call it.
template <int SIZE, int OWNERS, class T>
FS_FN void fs_bins_start(T* bins, T nothing) {
  const int warp = (int)threadIdx.x / 32;
  if (warp < OWNERS) {
    for (int i = (int)threadIdx.x % 32; i < SIZE; i += 32)
      bins[warp * SIZE + i] = nothing;
  }
  __syncwarp();
}

// Which lanes have the same value below SIZE; a lane that has less than nothing is like no other.
// Votes about each bit take a fraction of what __match_any_sync takes for lanes that all differ: on an
// H200 that compared 32 of them in 80 cycles of a multiprocessor.
template <int SIZE>
FS_FN unsigned fs_same(int value) {
  unsigned same = __ballot_sync(0xffffffffu, value >= 0);
  FS_UNROLL
  for (int bit = 1; bit < SIZE; bit *= 2) {
    const bool set = (value & bit) != 0;
    const unsigned votes = __ballot_sync(0xffffffffu, set);
    same &= set ? votes : ~votes;
  }
  return value >= 0 ? same : 0;
}

// Joins what each lane of the warp has with its element `bin`, or with none if that is negative. Of
// lanes with the same element those next to each other join first, then those of two such pairs, and
// so on: the order depends on nothing but the elements. All threads of the warp call it.
template <int SIZE, int OWNERS, class Op, class T>
FS_FN void fs_bins_join(T* bins, int bin, T value) {
  const int lane = (int)threadIdx.x % 32;
  const unsigned same = fs_same<SIZE>(bin);
  const unsigned after = same & (0xfffffffeu << lane);
  int next = after == 0 ? -1 : __ffs((int)after) - 1;
  const bool first = (same & ((1u << lane) - 1)) == 0;
  while (__any_sync(0xffffffffu, next >= 0)) {
    const int source = next < 0 ? lane : next;
    const T more = fs_shuffle(value, source);
    const int beyond = fs_shuffle(next, source);
    if (next >= 0) {
      value = Op::apply(value, more);
      next = beyond;
    }
  }
  if (first && bin >= 0) {
    T& element = bins[(int)threadIdx.x / 32 * SIZE + bin];
    element = Op::apply(element, value);
  }
  __syncwarp();
}

// What all warps have of an element.
template <int SIZE, int OWNERS, class Op, class T>
FS_FN T fs_bins_total(const T* bins, int element) {
  T total = bins[element];
  FS_UNROLL
  for (int warp = 1; warp < OWNERS; ++warp) total = Op::apply(total, bins[warp * SIZE + element]);
  return total;
}
