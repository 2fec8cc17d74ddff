// Reductions over a cluster: blocks of neighbouring multiprocessors that reach each other's shared
// memory (sm_90 and later). Included by fusionstitch.cuh.
#pragma once

#ifdef FUSIONSTITCH_EMULATE
FS_FN void fs_cluster_barrier(FS_CALLER) {
  FS_DELAY();
  fs_emulated_cluster_barrier(file, line);
  FS_DELAY();
}
#else
// A barrier of all threads of all blocks of the cluster; what any wrote before is visible after.
FS_FN void fs_cluster_barrier() {
  FS_DELAY();
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::: "memory");
  FS_DELAY();
}
#endif

// Where a place in this block's shared memory is in that of block `rank` of the cluster.
template <class T>
FS_FN T* fs_cluster_shared(T* own, int rank) {
#ifdef FUSIONSTITCH_EMULATE
  return (T*)fs_emulated_cluster_shared(own, (unsigned)rank);
#else
  T* other;
  asm("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(own), "r"(rank));
  return other;
#endif
}

// Stores an element, or a vector, at a place in the shared memory of each block of a cluster.
template <int BLOCKS, class T, class V>
FS_FN void fs_store_all(T* own, V value) {
  FS_UNROLL for (int rank = 0; rank < BLOCKS; ++rank) *fs_cluster_shared(own, rank) = value;
}

template <int BLOCKS, class T, int N>
FS_FN void fs_store_vec_all(T* own, fs_vec<T, N> values) {
  FS_UNROLL for (int rank = 0; rank < BLOCKS; ++rank) {
    fs_store_vec(fs_cluster_shared(own, rank), values);
  }
}

// Reduces several values over the BLOCKS blocks of a cluster, of WARPS warps each; all threads call
// it, and each gets the results in place. A block hands its result to each of the others.
// `scratch` holds twice fs_slot<T>() bytes of shared memory per value. Barriers: one of the cluster
// between the writes and the last reads of `scratch`. So what used it before must be behind a
// barrier of the cluster already, and there must be one before it is used again.
template <int WARPS, int BLOCKS, class... Ops, class... T>
FS_FN void fs_reduce_cluster(unsigned char* scratch, T&... values) {
  unsigned char* const totals = scratch + (0 + ... + fs_slot<T>());
  fs_reduce_block<WARPS, Ops...>(scratch, values...);
  if (threadIdx.x < BLOCKS) {
    unsigned char* slot = totals;
    ((((T*)fs_cluster_shared((T*)slot, (int)threadIdx.x))[blockIdx.x % BLOCKS] = values,
      slot += fs_slot<T>()),
     ...);
  }
  fs_cluster_barrier();
  fs_join_warps<BLOCKS, Ops...>(totals, 0, values...);
}
