// Rows of unsigned integers in ascending order, or the first of them, by a bitonic network whose
// comparators all put the smaller one first (K. E. Batcher, Sorting networks and their applications,
// 1968). Included by fusionstitch.cuh.
#pragma once

// The smaller of two first.
template <class T>
FS_FN void fs_order(T& first, T& second) {
  const T low = first < second ? first : second, high = first < second ? second : first;
  first = low, second = high;
}

// ---- what a thread has of its own ---------------------------------------------------------------

// Puts in order what is in two halves, each of a pair in one, no smaller before a larger.
template <int APART, int EACH, class T>
FS_FN void fs_merge_own(T* own) {
  if constexpr (APART > 0) {
    FS_UNROLL
    for (int i = 0; i < EACH; ++i)
      if ((i & APART) == 0) fs_order(own[i], own[i + APART]);
    fs_merge_own<APART / 2, EACH>(own);
  }
}

// Puts every SIZE of EACH elements in order.
template <int SIZE, int EACH, class T>
FS_FN void fs_sort_own(T* own) {
  if constexpr (SIZE > 1) {
    fs_sort_own<SIZE / 2, EACH>(own);
    FS_UNROLL
    for (int i = 0; i < EACH; ++i)
      if ((i & SIZE / 2) == 0) fs_order(own[i], own[i ^ (SIZE - 1)]);
    fs_merge_own<SIZE / 4, EACH>(own);
  }
}

// ---- what two threads have ----------------------------------------------------------------------

// What the lane has whose number differs by `mask`.
FS_FN uint32_t fs_across(uint32_t own, int mask) { return __shfl_xor_sync(0xffffffffu, own, mask); }
FS_FN uint64_t fs_across(uint64_t own, int mask) {
  const uint32_t low = fs_across((uint32_t)own, mask), high = fs_across((uint32_t)(own >> 32), mask);
  return (uint64_t)high << 32 | low;
}

template <class T>
FS_FN T fs_kept(T own, T other, bool smaller) {
  return (own < other) == smaller ? own : other;
}

// Each thread of a pair keeps the smaller or the larger of what both have at the same place, or
// where it is `mirrored` at the same place from the other end. Their lanes differ by `mask`.
template <int EACH, class T>
FS_FN void fs_order_lanes(T* own, int mask, bool mirrored, bool smaller) {
  FS_UNROLL
  for (int i = 0; i < EACH / 2; ++i) {
    const int j = EACH - 1 - i;
    const T low = own[i], high = own[j];
    const T first = fs_across(mirrored ? high : low, mask);
    const T second = fs_across(mirrored ? low : high, mask);
    own[i] = fs_kept(low, first, smaller);
    own[j] = fs_kept(high, second, smaller);
  }
}

// The same through shared memory, for pairs of different warps. All THREADS of the block call it.
template <int THREADS, int EACH, class T>
FS_FN void fs_order_warps(T* own, T* shared, int mask, bool mirrored, bool smaller) {
  const int thread = (int)threadIdx.x;
  FS_UNROLL
  for (int i = 0; i < EACH; ++i) shared[i * THREADS + thread] = own[i];
  __syncthreads();
  FS_UNROLL
  for (int i = 0; i < EACH; ++i) {
    const int at = mirrored ? EACH - 1 - i : i;
    own[i] = fs_kept(own[i], shared[at * THREADS + (thread ^ mask)], smaller);
  }
  __syncthreads();
}

// ---- rows ---------------------------------------------------------------------------------------

// The first KEPT of all elements that THREADS threads have, EACH so many: how many a thread has of
// those in the end, and how many threads have some.
template <int EACH, int KEPT>
constexpr int fs_left = KEPT < EACH ? KEPT : EACH;
template <int EACH, int KEPT>
constexpr int fs_owners = KEPT / fs_left<EACH, KEPT>;

// Puts the EACH elements of each of LANES lanes in order: those of lane 0 first. If only the first
// KEPT are, these are the first of lane 0, and if a lane has no more, then those of the next. All
// lanes of a warp call it together.
template <int LANES, int EACH, int KEPT, class T>
FS_FN void fs_sort_lanes(T* own) {
  constexpr int left = fs_left<EACH, KEPT>, owners = fs_owners<EACH, KEPT>;
  const int lane = (int)threadIdx.x % LANES;
  fs_sort_own<EACH, EACH>(own);
  FS_UNROLL_BY(1)
  for (int size = 2; size <= LANES; size *= 2) {
    const bool all = size <= owners;  // of two threads both keep the smaller ones otherwise
    fs_order_lanes<left>(own, size - 1, true, !all || (lane & size / 2) == 0);
    FS_UNROLL_BY(1)
    for (int apart = all ? size / 4 : owners / 2; apart > 0; apart /= 2)
      fs_order_lanes<left>(own, apart, false, (lane & apart) == 0);
    fs_merge_own<left / 2, left>(own);
  }
}

// Elements of a row of which those of each thread are THREADS apart, that rise and then fall, or fall
// and then rise, in ascending order. `shared` has room for THREADS EACH elements.
template <int THREADS, int EACH, class T>
FS_FN void fs_merge_block(T* own, T* shared) {
  fs_merge_own<EACH / 2, EACH>(own);
  FS_UNROLL_BY(1)
  for (int apart = THREADS / 2; apart > 0; apart /= 2) {
    const bool lower = ((int)threadIdx.x & apart) == 0;
    if (apart >= 32)
      fs_order_warps<THREADS, EACH>(own, shared, apart, false, lower);
    else
      fs_order_lanes<EACH>(own, apart, false, lower);
  }
}

// Puts the EACH elements of each of THREADS threads in order, all there are of a block. Element number
// i of thread t is number i THREADS + t of the row then: neighbours have neighbours. If only the first
// KEPT are in order, these are those of the first threads, as with lanes. `shared` has room for
// THREADS (EACH + 1) elements, or for THREADS times what a thread has in the end.
template <int THREADS, int EACH, int KEPT, class T>
FS_FN void fs_sort_block(T* own, T* shared) {
  constexpr int left = fs_left<EACH, KEPT>, owners = fs_owners<EACH, KEPT>;
  const int thread = (int)threadIdx.x;
  fs_sort_own<EACH, EACH>(own);
  FS_UNROLL_BY(1)
  for (int size = 2; size <= THREADS; size *= 2) {
    const bool all = size <= owners, smaller = !all || (thread & size / 2) == 0;
    if (size > 32)
      fs_order_warps<THREADS, left>(own, shared, size - 1, true, smaller);
    else
      fs_order_lanes<left>(own, size - 1, true, smaller);
    FS_UNROLL_BY(1)
    for (int apart = all ? size / 4 : owners / 2; apart > 0; apart /= 2) {
      const bool lower = (thread & apart) == 0;
      if (apart >= 32)
        fs_order_warps<THREADS, left>(own, shared, apart, false, lower);
      else
        fs_order_lanes<left>(own, apart, false, lower);
    }
    fs_merge_own<left / 2, left>(own);
  }
  if constexpr (KEPT == THREADS * EACH) {
    FS_UNROLL
    for (int i = 0; i < EACH; ++i) shared[thread * (EACH + 1) + i] = own[i];
    __syncthreads();
    FS_UNROLL
    for (int i = 0; i < EACH; ++i) {
      const int at = i * THREADS + thread;
      own[i] = shared[at / EACH * (EACH + 1) + at % EACH];
    }
  }
}
