// Reducers, and reductions across lanes, columns and blocks. Included by fusionstitch.cuh.
#pragma once

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

// ---- records: several values that are reduced together ------------------------------------------

template <class First, class... Rest>
struct fs_record {
  First first;
  fs_record<Rest...> rest;
};
template <class First>
struct fs_record<First> {
  First first;
};

template <int I, class... T>
FS_FN auto fs_get(const fs_record<T...>& from) {
  if constexpr (I == 0) {
    return from.first;
  } else {
    return fs_get<I - 1>(from.rest);
  }
}

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

template <class... T>
FS_FN fs_record<T...> fs_shuffle_xor(fs_record<T...> value, int mask) {
  fs_record<T...> other;
  other.first = fs_shuffle_xor(value.first, mask);
  if constexpr (sizeof...(T) > 1) other.rest = fs_shuffle_xor(value.rest, mask);
  return other;
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

// Reduces COUNT values (a power of two) over each aligned group of WIDTH lanes and spreads the results:
// lane l ends with max(1, COUNT / WIDTH) of them in values[0..], the first one number
// l * COUNT / WIDTH. Lanes that are APART count as neighbours, of which each lane between has its own.
// All 32 lanes of the warp must call it together; the rest of `values` is spent.
template <int WIDTH, int COUNT, class Op, int APART = 1, class T>
FS_FN void fs_scatter_lanes(T* values) {
  static_assert(COUNT >= 1 && (COUNT & (COUNT - 1)) == 0, "a power of two");
  if constexpr (WIDTH > 1) {
    constexpr int mask = WIDTH / 2 * APART, half = COUNT > 1 ? COUNT / 2 : 1;
    const bool upper = ((int)threadIdx.x & mask) != 0;
    FS_UNROLL
    for (int i = 0; i < half; ++i) {
      const T kept = COUNT > 1 && upper ? values[(i + half) % COUNT] : values[i];
      const T sent = COUNT > 1 && !upper ? values[(i + half) % COUNT] : values[i];
      values[i] = Op::apply(kept, fs_shuffle_xor(sent, mask));
    }
    fs_scatter_lanes<WIDTH / 2, half, Op, APART>(values);
  }
}

// All elements of a vector joined, in pairs.
template <class Op, class T, int N>
FS_FN T fs_fold(const fs_vec<T, N>& memory) {
  fs_vec<T, N> values = memory;
  FS_UNROLL
  for (int half = N / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) values[i] = Op::apply(values[i], values[i + half]);
  return values[0];
}

// The smallest power of two that is at least x.
FS_FN constexpr int fs_power_of_two(int x) {
  int power = 1;
  while (power < x) power *= 2;
  return power;
}

// A barrier of the THREADS threads of a team, neighbours from a multiple of THREADS on, whole warps:
// the block's other teams need not come. They may be elsewhere in the kernel, as parts of teams of
// other sizes, so each team of each size has a number of its own: team t of 2, 4 or 8 meets at 2..3,
// 4..7 or 8..15. A block has 16 barriers, of which 0 is __syncthreads: 8 teams are the most.
template <int THREADS>
FS_FN void fs_team_barrier(FS_CALLER) {
  const int barrier = ((int)blockDim.x + (int)threadIdx.x) / THREADS;
  FS_DELAY();
#ifdef FUSIONSTITCH_EMULATE
  fs_emulated_named_barrier(barrier, THREADS, file, line);
#else
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
#endif
  FS_DELAY();
}

// Bytes of one value's results by warp.
template <class T>
FS_FN constexpr int fs_slot() {
  return 32 * (sizeof(T) > 8 ? (int)sizeof(T) : 8);
}

// Each value's total over a team of WARPS warps, the first of the block's being `first`, from the
// results that the warps left in `scratch`.
template <int WARPS, class... Ops, class... T>
FS_FN void fs_join_warps(unsigned char* scratch, int first, T&... values) {
  // one access reads them all, and no lane waits for others
  if constexpr ((WARPS == 2 || WARPS == 4) && (... && (WARPS * sizeof(T) <= 16))) {
    ((values = fs_fold<Ops>(*(fs_vec<T, WARPS>*)((T*)scratch + first)), scratch += fs_slot<T>()), ...);
  } else {
    constexpr int WIDTH = fs_power_of_two(WARPS);
    const int lane = (int)threadIdx.x & (WIDTH - 1);
    ((values = fs_reduce_lanes<WIDTH, Ops>(lane < WARPS ? ((T*)scratch)[first + lane]
                                                        : Ops::template identity<T>()),
      scratch += fs_slot<T>()),
     ...);
  }
}

// Reduces several values over the whole block of WARPS warps, each with its own Op; all threads call
// it, and each gets the results in place. `scratch` holds fs_slot<T>() bytes of shared memory per value.
// Barriers: one between the writes and the reads of `scratch`. So what used it before must be behind
// a barrier already, and there must be one before it is used again.
template <int WARPS, class... Ops, class... T>
FS_FN void fs_reduce_block(unsigned char* scratch, T&... values) {
  ((values = fs_reduce_lanes<32, Ops>(values)), ...);
  if (WARPS == 1) return;
  unsigned char* slot = scratch;
  if ((threadIdx.x & 31) == 0) ((((T*)slot)[threadIdx.x / 32] = values, slot += fs_slot<T>()), ...);
  __syncthreads();
  fs_join_warps<WARPS, Ops...>(scratch, 0, values...);
}

// The same over each team of WARPS warps of the block. A team's barriers are its own, and so is what
// it uses of `scratch`.
template <int WARPS, class... Ops, class... T>
FS_FN void fs_reduce_team(unsigned char* scratch, T&... values) {
  ((values = fs_reduce_lanes<32, Ops>(values)), ...);
  unsigned char* slot = scratch;
  if ((threadIdx.x & 31) == 0) ((((T*)slot)[threadIdx.x / 32] = values, slot += fs_slot<T>()), ...);
  fs_team_barrier<WARPS * 32>();
  fs_join_warps<WARPS, Ops...>(scratch, (int)threadIdx.x / (WARPS * 32) * WARPS, values...);
}

// Reduces each of the N values of a thread over the threads whose numbers are equal modulo THREADS;
// blockDim.x is a multiple of THREADS and all threads call it. The first THREADS threads get the
// results in place. `memory` is N * blockDim.x values of T in shared memory. Barriers: as those of
// fs_reduce_strided.
template <int THREADS, int N, class Op, class T>
FS_FN void fs_reduce_teams(T (&values)[N], unsigned char* memory) {
  T* const scratch = (T*)memory;
  int team = (int)threadIdx.x / THREADS, lane = (int)threadIdx.x % THREADS;
  int teams = (int)blockDim.x / THREADS;
  FS_UNROLL
  for (int i = 0; i < N; ++i) scratch[(team * N + i) * THREADS + lane] = values[i];
  __syncthreads();
  for (int i = team; i < N; i += teams) {
    T total = scratch[i * THREADS + lane];
    for (int other = 1; other < teams; ++other) {
      const T more = scratch[(other * N + i) * THREADS + lane];
      total = Op::apply(total, more);
    }
    scratch[i * THREADS + lane] = total;
  }
  __syncthreads();
  if (team == 0) {
    FS_UNROLL
    for (int i = 0; i < N; ++i) values[i] = scratch[i * THREADS + lane];
  }
}

// Adds up what SHARES times THREADS threads have in `values` over the threads whose numbers are equal
// modulo THREADS. Each of those gets some of the totals, UNIT neighbours at a time: thread t, in
// own[m * UNIT ...], those of unit m * SHARES + t / THREADS, if there are so many. All threads of the
// block call it; `memory` is N + UNIT values per thread, of which the last keep the threads of a
// warp in different banks. Barriers: as those of fs_reduce_block.
template <int THREADS, int SHARES, int UNIT, class T, int N, int M>
FS_FN void fs_join_parts(const T (&values)[N], T (&own)[M], unsigned char* memory) {
  typedef fs_vec<T, UNIT> Unit;
  const int UNITS = N / UNIT;
  Unit* const parts = (Unit*)memory;
  int share = (int)threadIdx.x / THREADS, lane = (int)threadIdx.x % THREADS;
  FS_UNROLL
  for (int u = 0; u < UNITS; ++u) {
    Unit unit;
    FS_UNROLL
    for (int i = 0; i < UNIT; ++i) unit[i] = values[u * UNIT + i];
    parts[(share * (UNITS + 1) + u) * THREADS + lane] = unit;
  }
  __syncthreads();
  FS_UNROLL
  for (int m = 0; m < M / UNIT; ++m) {
    int u = m * SHARES + share;
    if (u < UNITS) {
      Unit total = parts[u * THREADS + lane];
      FS_UNROLL_BY(8)
      for (int other = 1; other < SHARES; ++other) {
        Unit more = parts[(other * (UNITS + 1) + u) * THREADS + lane];
        FS_UNROLL
        for (int i = 0; i < UNIT; ++i) total[i] += more[i];
      }
      FS_UNROLL
      for (int i = 0; i < UNIT; ++i) own[m * UNIT + i] = total[i];
    }
  }
}

// Reduces over the threads whose numbers are equal modulo COLUMNS; blockDim.x is a multiple of
// COLUMNS and all threads call it. Every thread gets its column's result. `memory` is blockDim.x
// values of T in shared memory. Barriers: one after every write to it. So what used it before must be
// behind a barrier already, and there must be one before it is used again.
template <int COLUMNS, class Op, class T>
FS_FN T fs_reduce_strided(T value, unsigned char* memory) {
  T* const scratch = (T*)memory;
  int row = (int)threadIdx.x / COLUMNS, column = (int)threadIdx.x % COLUMNS;
  scratch[threadIdx.x] = value;
  __syncthreads();
  for (int rows = (int)blockDim.x / COLUMNS; rows > 1;) {
    int half = (rows + 1) / 2;
    if (row + half < rows) {
      const T more = scratch[(row + half) * COLUMNS + column];
      value = Op::apply(value, more);
      scratch[threadIdx.x] = value;
    }
    rows = half;
    __syncthreads();
  }
  return scratch[column];
}
