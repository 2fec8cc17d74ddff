// How emulated threads wait for each other, and what is reported when that goes wrong.
// The second half of emulator.h, which includes it.
#pragma once

namespace fs {

inline void Launch::release_warps(size_t first, size_t count) {
  progress_ = true;
  for (size_t w = first; w < first + count; ++w) {
    ready_[w] = alive_[w];
    for (unsigned i = 0; i < kWarp; ++i) threads_[w * kWarp + i].wait = Wait::kNone;
  }
}

inline void Launch::release_block(Block& block) {
  block.arrived = 0;
  release_warps(static_cast<size_t>(&block - blocks_.data()) * warps_, warps_);
}

inline void Launch::release_grid() {
  grid_arrived_ = 0;
  release_warps(0, ready_.size());
}

// A thread that has exited counts as arrived, everywhere.
inline void Launch::exit(Thread& thread) {
  progress_ = true;
  Block& block = block_of(thread);
  const size_t w = slot(thread) / kWarp;
  alive_[w] &= ~(1u << thread.lane);
  --block.alive;
  --grid_alive_;
  if (block.arrived > 0 && block.arrived == block.alive) release_block(block);
  if (grid_arrived_ > 0 && grid_arrived_ == grid_alive_) release_grid();
  for (unsigned lanes = collective_[w]; lanes != 0; lanes &= lanes - 1) {
    const Thread& waiting = threads_[w * kWarp + static_cast<unsigned>(__builtin_ctz(lanes))];
    if (waiting.mask >> thread.lane & 1) return finish_collective(w, waiting.mask, waiting.op);
  }
}

inline void Launch::block_barrier(Thread& thread, int line) {
  Block& block = block_of(thread);
  if (block.arrived == 0) block.line = line;
  if (block.line != line)
    fail("threads of block %u wait at different __syncthreads, in lines %d and %d",
         block.index.x, block.line, line);
  thread.wait = Wait::kBlock;
  if (++block.arrived == block.alive) release_block(block);
  suspend(thread);
}

// Unlike at __syncthreads, a thread that has exited is missed.
inline void Launch::named_barrier(Thread& thread, unsigned barrier, unsigned count) {
  if (barrier == 0 || barrier >= kBarriers || count % kWarp != 0)
    fail("barrier %u of %u threads: barriers are numbered 1 to %u and take whole warps", barrier,
         count, kBarriers - 1);
  Block& block = block_of(thread);
  thread.wait = Wait::kNamed;
  thread.barrier = barrier;
  if (++block.met[barrier] == count) {
    block.met[barrier] = 0;
    progress_ = true;
    const size_t first = static_cast<size_t>(&block - blocks_.data()) * warps_ * kWarp;
    for (size_t i = first; i < first + geometry_.block; ++i) {
      Thread& other = threads_[i];
      if (other.wait != Wait::kNamed || other.barrier != barrier) continue;
      other.wait = Wait::kNone;
      ready_[i / kWarp] |= 1u << other.lane;
    }
  }
  suspend(thread);
}

inline void Launch::grid_barrier(Thread& thread) {
  if (!geometry_.cooperative) fail("a grid barrier in a launch that is not cooperative");
  meet(thread);
}

inline void Launch::cluster_barrier(Thread& thread) {
  if (kernel_.cluster < 2) fail("a cluster barrier in a launch without clusters");
  meet(thread);
}

// Waits for all blocks that are alive together: those of a cluster, or of a cooperative grid.
inline void Launch::meet(Thread& thread) {
  thread.wait = Wait::kGrid;
  if (++grid_arrived_ == grid_alive_) release_grid();
  suspend(thread);
}

inline void* Launch::cluster_shared(Thread& thread, void* own, unsigned rank) {
  if (rank >= kernel_.cluster)
    fail("block %u reaches for block %u of a cluster of %u", thread.block->index.x, rank,
         kernel_.cluster);
  Block& other = blocks_[rank];
  if (other.alive == 0)
    fail("block %u reaches for the shared memory of block %u, which has exited",
         thread.block->index.x, other.index.x);
  return other.shared + (static_cast<unsigned char*>(own) - thread.block->shared);
}

inline uint64_t Launch::warp(Thread& thread, FsWarpOp op, unsigned mask, uint64_t bits,
                             unsigned source) {
  if (!(mask >> thread.lane & 1))
    fail("block %u, thread %u calls a warp collective whose mask 0x%08x leaves it out",
         thread.block->index.x, thread.index.x, mask);
  thread.wait = Wait::kWarp;
  thread.op = op;
  thread.mask = mask;
  thread.bits = bits;
  thread.source = source;
  const size_t w = slot(thread) / kWarp;
  collective_[w] |= 1u << thread.lane;
  finish_collective(w, mask, op);
  suspend(thread);
  return thread.bits;
}

// Computes every lane's result and releases them, if all the lanes of `mask` have come.
inline void Launch::finish_collective(size_t w, unsigned mask, FsWarpOp op) {
  const unsigned members = mask & alive_[w];
  if ((members & ~collective_[w]) != 0) return;
  Thread* lanes = &threads_[w * kWarp];
  uint64_t bits[kWarp], ballot = 0;
  for (unsigned i = 0; i < kWarp; ++i) {
    if (!(members >> i & 1)) continue;
    if (lanes[i].mask != mask || lanes[i].op != op) return;
    bits[i] = lanes[i].bits;
    ballot |= uint64_t{bits[i] != 0} << i;
  }
  for (unsigned i = 0; i < kWarp; ++i) {
    if (!(members >> i & 1)) continue;
    const unsigned source = lanes[i].source;
    if (op == FsWarpOp::kBallot) lanes[i].bits = ballot;
    if (op == FsWarpOp::kShuffle)
      lanes[i].bits = members >> source & 1 ? bits[source] : 0xA5A5A5A5A5A5A5A5u;
    lanes[i].wait = Wait::kNone;
  }
  collective_[w] &= ~members;
  ready_[w] |= members;
  progress_ = true;
}

inline void Launch::yield(Thread& thread) {
  ready_[slot(thread) / kWarp] |= 1u << thread.lane;
  suspend(thread);
}

// ---- errors -------------------------------------------------------------------------------------

// Drops every fiber of the launch and returns to `run_group`.
inline void Launch::fail(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  error_ = text;
  Context dropped;
  switch_context(&dropped, host_);
  __builtin_unreachable();
}

inline void Launch::describe_deadlock() {
  for (const Block& block : blocks_) {
    unsigned waiting[5] = {};
    const Thread* lane = nullptr;
    const Thread* other = nullptr;
    const size_t first = static_cast<size_t>(&block - blocks_.data()) * warps_ * kWarp;
    for (size_t i = first; i < first + geometry_.block; ++i) {
      const Thread& thread = threads_[i];
      if (!(alive_[i / kWarp] >> thread.lane & 1)) continue;
      ++waiting[static_cast<int>(thread.wait)];
      if (thread.wait != Wait::kWarp) continue;
      if (lane == nullptr) lane = &thread;
      if (lane->mask != thread.mask || lane->op != thread.op) other = &thread;
    }
    if (block.alive == 0) continue;
    char text[512];
    snprintf(text, sizeof text,
             "deadlock in block %u: %u threads wait at __syncthreads, %u at the %s barrier, %u at "
             "a team's barrier, %u at a warp collective, %u have exited",
             block.index.x, waiting[1], waiting[2], kernel_.cluster > 1 ? "cluster" : "grid",
             waiting[4], waiting[3], geometry_.block - block.alive);
    error_ = text;
    if (lane == nullptr) return;
    snprintf(text, sizeof text, "; thread %u waits for the lanes 0x%08x of its warp",
             lane->index.x, lane->mask);
    error_ += text;
    if (other != nullptr) error_ += ", others wait at another collective or with another mask";
    return;
  }
}

inline void Launch::check_red_zones() {
  for (const Block& block : blocks_) {
    const unsigned char* end = block.shared + shared_stride_;
    for (const unsigned char* at = block.shared + geometry_.shared_bytes; at < end; ++at) {
      if (*at == kPoison) continue;
      char text[256];
      snprintf(text, sizeof text,
               "block %u wrote shared memory at byte %zu, past its %zu bytes", block.index.x,
               static_cast<size_t>(at - block.shared), geometry_.shared_bytes);
      error_ = text;
      return;
    }
  }
}

}  // namespace fs
