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

// All threads of the launch's blocks meet at a barrier or none does: one that exits while others wait,
// or before, is missed.
inline void Launch::exit(Thread& thread) {
  progress_ = true;
  Block& block = block_of(thread);
  const size_t w = slot(thread) / kWarp;
  if (block.arrived > 0)
    fail("block %u, thread %u exits while %u threads of the block wait at __syncthreads in %s",
         block.index.x, thread.index.x, block.arrived, text(block.site).chars);
  if (grid_arrived_ > 0)
    fail("block %u, thread %u exits while %u threads wait at the %s barrier in %s", block.index.x,
         thread.index.x, grid_arrived_, meeting(), text(grid_site_).chars);
  for (unsigned lanes = collective_[w]; lanes != 0; lanes &= lanes - 1) {
    const Thread& waiting = threads_[w * kWarp + static_cast<unsigned>(__builtin_ctz(lanes))];
    if (waiting.mask >> thread.lane & 1)
      fail("block %u, thread %u exits while thread %u waits for it at a warp collective of mask "
           "0x%08x", block.index.x, thread.index.x, waiting.index.x, waiting.mask);
  }
  if (checked_ && block.reached > known_->together())
    fail("block %u, thread %u exits while another block of the cluster may still use its block's "
         "shared memory", block.index.x, thread.index.x);
  alive_[w] &= ~(1u << thread.lane);
  --block.alive;
  --grid_alive_;
}

// Counts a thread of a block that waits for all of it; whether it is the last one.
inline bool Launch::arrives(Thread& thread, FsEmulatedSite site) {
  Block& block = block_of(thread);
  if (block.alive < geometry_.block)
    fail("block %u, thread %u waits at __syncthreads in %s, but %u threads of the block have exited",
         block.index.x, thread.index.x, text(site).chars, geometry_.block - block.alive);
  if (block.arrived == 0) block.site = site;
  if (block.site.line != site.line || strcmp(block.site.file, site.file) != 0)
    fail("threads of block %u wait at different __syncthreads, in %s and %s", block.index.x,
         text(block.site).chars, text(site).chars);
  thread.wait = Wait::kBlock;
  thread.site = site;
  if (++block.arrived < geometry_.block) return false;
  block.arrived = 0;
  if (counted_) counters_.meet("block");
  return true;
}

inline void Launch::block_barrier(Thread& thread, FsEmulatedSite site) {
  if (arrives(thread, site)) {
    Block& block = block_of(thread);
    const size_t first = static_cast<size_t>(&block - blocks_.data()) * warps_;
    if (orders(site)) {
      known_->meet_warps(first, ~0u >> (kWarp - warps_));
      known_->learn(first / warps_, block.waited);
    }
    block.waited.clear();
    release_warps(first, warps_);
  }
  suspend(thread);
}

// Kernels do not rely on it as a barrier: what they write before it may not have come for others.
inline bool Launch::block_vote(Thread& thread, bool holds, FsEmulatedSite site) {
  thread.bits = holds;
  if (arrives(thread, site)) {
    const size_t first = static_cast<size_t>(&block_of(thread) - blocks_.data()) * warps_;
    Thread* const own = &threads_[first * kWarp];
    bool all = true;
    for (unsigned i = 0; i < geometry_.block; ++i) all = all && own[i].bits != 0;
    for (unsigned i = 0; i < geometry_.block; ++i) own[i].bits = all;
    release_warps(first, warps_);
  }
  suspend(thread);
  return thread.bits != 0;
}

inline void Launch::named_barrier(Thread& thread, unsigned barrier, unsigned count,
                                  FsEmulatedSite site) {
  if (barrier == 0 || barrier >= kBarriers || count == 0 || count % kWarp != 0)
    fail("barrier %u of %u threads in %s: barriers are numbered 1 to %u and take whole warps",
         barrier, count, text(site).chars, kBarriers - 1);
  Block& block = block_of(thread);
  Team& team = block.teams[barrier];
  if (team.arrived > 0 && team.count != count)
    fail("block %u, thread %u brings a team of %u threads to barrier %u in %s, where %u of a team of "
         "%u threads wait in %s", block.index.x, thread.index.x, count, barrier, text(site).chars,
         team.arrived, team.count, text(team.site).chars);
  team = {team.arrived + 1, count, site};
  thread.wait = Wait::kNamed;
  thread.barrier = barrier;
  thread.site = site;
  if (team.arrived == count) {
    team.arrived = 0;
    progress_ = true;
    if (counted_) counters_.meet("team");
    const size_t first = static_cast<size_t>(&block - blocks_.data()) * warps_;
    unsigned members = 0;
    for (size_t i = first * kWarp; i < first * kWarp + geometry_.block; ++i) {
      Thread& other = threads_[i];
      if (other.wait != Wait::kNamed || other.barrier != barrier) continue;
      other.wait = Wait::kNone;
      ready_[i / kWarp] |= 1u << other.lane;
      members |= 1u << (i / kWarp - first);
    }
    if (orders(site)) known_->meet_warps(first, members);
  }
  suspend(thread);
}

inline void Launch::grid_barrier(Thread& thread, FsEmulatedSite site) {
  if (!geometry_.cooperative)
    fail("a grid barrier in a launch that is not cooperative, in %s", text(site).chars);
  meet(thread, site);
}

inline void Launch::cluster_barrier(Thread& thread, FsEmulatedSite site) {
  if (kernel_.cluster < 2)
    fail("a cluster barrier in a launch without clusters, in %s", text(site).chars);
  meet(thread, site);
}

// Waits for all blocks that are alive together: those of a cluster, or of a cooperative grid.
inline void Launch::meet(Thread& thread, FsEmulatedSite site) {
  const unsigned all = geometry_.block * static_cast<unsigned>(blocks_.size());
  if (grid_alive_ < all)
    fail("block %u, thread %u waits at the %s barrier in %s, but %u threads have exited",
         thread.block->index.x, thread.index.x, meeting(), text(site).chars, all - grid_alive_);
  thread.wait = Wait::kGrid;
  thread.site = grid_site_ = site;
  if (++grid_arrived_ == all) {
    grid_arrived_ = 0;
    if (counted_) counters_.meet(meeting());
    if (orders(site)) known_->meet_all();
    release_warps(0, ready_.size());
  }
  suspend(thread);
}

// The block, all of whose threads have met, arrives at a counter.
inline void Launch::arrive(Thread& thread, uint32_t* counter, FsEmulatedSite site) {
  if (checked_ || counted_) access(thread, counter, sizeof *counter, FsAccess::kAtomic);
  if (orders(site)) known_->tell(slot(thread) / kWarp / warps_, arrived_[counter]);
  ++*counter;
  progress_ = true;
  for (size_t w = 0; w < ready_.size(); w += warps_) {
    Thread& other = threads_[w * kWarp];
    if (other.wait != Wait::kCounter || other.counter != counter || *counter < other.value) continue;
    other.wait = Wait::kNone;
    ready_[w] |= 1u;
  }
}

// Waits for the blocks that arrive at a counter; the block's other threads are on their way to a
// barrier that this one comes to next.
inline void Launch::wait(Thread& thread, const uint32_t* counter, uint32_t value,
                         FsEmulatedSite site) {
  if (!geometry_.cooperative)
    fail("a wait for other blocks in a launch that is not cooperative, in %s", text(site).chars);
  thread.site = site;
  if (*counter < value) {
    thread.wait = Wait::kCounter;
    thread.counter = counter;
    thread.value = value;
    suspend(thread);
  }
  if (checked_ || counted_) access(thread, counter, sizeof *counter, FsAccess::kAtomic);
  if (orders(site)) join(block_of(thread).waited, arrived_[counter]);
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
  const size_t w = slot(thread) / kWarp;
  if ((mask & ~alive_[w]) != 0)
    fail("block %u, thread %u calls a warp collective whose mask 0x%08x names lanes that have exited "
         "or never were: 0x%08x are there", thread.block->index.x, thread.index.x, mask, alive_[w]);
  if (op == FsWarpOp::kShuffle && !(mask >> source & 1))
    fail("block %u, thread %u reads from lane %u in a shuffle whose mask 0x%08x leaves that out",
         thread.block->index.x, thread.index.x, source, mask);
  if (counted_ && op == FsWarpOp::kShuffle) counters_.meet("shuffle");
  thread.wait = Wait::kWarp;
  thread.op = op;
  thread.mask = mask;
  thread.bits = bits;
  thread.source = source;
  collective_[w] |= 1u << thread.lane;
  finish_collective(w, mask, op);
  suspend(thread);
  return thread.bits;
}

// Computes every lane's result and releases them, if all the lanes of `mask` have come.
inline void Launch::finish_collective(size_t w, unsigned mask, FsWarpOp op) {
  if ((mask & ~collective_[w]) != 0) return;
  Thread* lanes = &threads_[w * kWarp];
  uint64_t bits[kWarp], ballot = 0;
  for (unsigned i = 0; i < kWarp; ++i) {
    if (!(mask >> i & 1)) continue;
    if (lanes[i].mask != mask || lanes[i].op != op) return;
    bits[i] = lanes[i].bits;
    ballot |= uint64_t{bits[i] != 0} << i;
  }
  for (unsigned i = 0; i < kWarp; ++i) {
    if (!(mask >> i & 1)) continue;
    const unsigned source = lanes[i].source;
    if (op == FsWarpOp::kBallot) lanes[i].bits = ballot;
    if (op == FsWarpOp::kShuffle) lanes[i].bits = bits[source];
    lanes[i].wait = Wait::kNone;
  }
  if (checked_ && op == FsWarpOp::kSync) known_->meet_lanes(w, mask);
  collective_[w] &= ~mask;
  ready_[w] |= mask;
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

// Which element of which buffer a counter is.
inline std::string Launch::counter_text(const uint32_t* counter) const {
  const auto at = reinterpret_cast<const char*>(counter);
  for (unsigned i = 0; i < kernel_.parameter_count; ++i) {
    const auto begin = static_cast<const char*>(pointers_[i]);
    if (at < begin || at >= begin + kernel_.parameters[i].bytes) continue;
    return "element " + std::to_string((at - begin) / sizeof *counter) + " of " + parameter(i);
  }
  return "a counter";
}

// Says who waits for blocks to arrive at which counters; false where nobody does.
inline bool Launch::describe_waits() {
  unsigned waiting = 0;
  for (const Block& block : blocks_) {
    const Thread& thread = threads_[static_cast<size_t>(&block - blocks_.data()) * warps_ * kWarp];
    if (thread.wait != Wait::kCounter || ++waiting > kNamedWaits) continue;
    error_ += (waiting == 1 ? "deadlock: block " : "; block ") + std::to_string(block.index.x) +
              " waits in " + text(thread.site).chars + " until " +
              std::to_string(thread.value) + " have arrived at " + counter_text(thread.counter) +
              ", where " + std::to_string(*thread.counter) + " have";
  }
  if (waiting > kNamedWaits) error_ += "; " + std::to_string(waiting) + " blocks wait in all";
  return waiting > 0;
}

inline void Launch::describe_deadlock() {
  if (describe_waits()) return;
  for (const Block& block : blocks_) {
    unsigned waiting[5] = {};
    const Thread* lane = nullptr;
    const Thread* other = nullptr;
    const Thread* at[5] = {};  // one that waits, by what for
    const size_t first = static_cast<size_t>(&block - blocks_.data()) * warps_ * kWarp;
    for (size_t i = first; i < first + geometry_.block; ++i) {
      const Thread& thread = threads_[i];
      if (!(alive_[i / kWarp] >> thread.lane & 1)) continue;
      if (waiting[static_cast<int>(thread.wait)]++ == 0) at[static_cast<int>(thread.wait)] = &thread;
      if (thread.wait != Wait::kWarp) continue;
      if (lane == nullptr) lane = &thread;
      if (lane->mask != thread.mask || lane->op != thread.op) other = &thread;
    }
    if (block.alive == 0) continue;
    char text[512];
    snprintf(text, sizeof text,
             "deadlock in block %u: %u threads wait at __syncthreads, %u at the %s barrier, %u at "
             "a team's barrier, %u at a warp collective, %u have exited",
             block.index.x, waiting[1], waiting[2], meeting(), waiting[4], waiting[3],
             geometry_.block - block.alive);
    error_ = text;
    for (Wait wait : {Wait::kBlock, Wait::kGrid, Wait::kNamed}) {
      const Thread* waits = at[static_cast<int>(wait)];
      if (waits == nullptr) continue;
      const std::string which = wait == Wait::kNamed ? " " + std::to_string(waits->barrier) : "";
      error_ += "; thread " + std::to_string(waits->index.x) + " waits at the barrier" + which +
                " in " + Launch::text(waits->site).chars;
    }
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
