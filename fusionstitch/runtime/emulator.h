// Runs one launch of a CUDA kernel on one OS thread: blocks, or clusters of them, one after another
// (all at once for a cooperative launch), their threads as fibers, in an order chosen to expose
// missing barriers.
#pragma once

#include <algorithm>
#include <cfenv>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulation_abi.h"
#include "emulator_counters.h"
#include "emulator_order.h"
#include "emulator_shadow.h"
#include "fibers.h"

namespace fs {

// kDelayed: at random, and blocks stand still for a while.
enum class Order : int { kForward, kReversed, kRandom, kDelayed };

struct Geometry {
  unsigned grid, block;
  size_t shared_bytes;
  bool cooperative;
};

constexpr unsigned kWarp = 32;
constexpr unsigned kBarriers = 16;  // of a block; number 0 is __syncthreads
constexpr unsigned char kPoison = 0xA5;
constexpr size_t kRedZone = 256;
constexpr unsigned kIdleRounds = 1 << 16;
constexpr unsigned kNamedWaits = 8;  // of a deadlock that are said one by one
constexpr unsigned kLate = 32;  // rounds that a block may stand still at once

enum class Wait : unsigned char { kNone, kBlock, kGrid, kWarp, kNamed, kCounter };

struct Thread : FsEmulatedThread {
  Context context = nullptr;  // where it was suspended
  char* stack = nullptr;      // on which stack
  Wait wait = Wait::kNone;
  FsWarpOp op = FsWarpOp::kSync;
  unsigned mask = 0;
  unsigned source = 0;
  unsigned barrier = 0;
  FsEmulatedSite site = {"", 0};  // of the barrier that it waits at, or waited at last
  uint64_t bits = 0;  // brought to a collective, then its result
  const uint32_t* counter = nullptr;  // that it waits for,
  uint32_t value = 0;                 // until it has this value
};

class Launch;

// The threads at a named barrier, of how many that wait for each other there.
struct Team {
  unsigned arrived, count;
  FsEmulatedSite site;
};

struct Block : FsEmulatedBlock {
  Launch* launch;
  unsigned alive, arrived;
  Time reached;  // when another block of the cluster last used its shared memory
  unsigned late;  // rounds that it still stands still
  Clock waited;   // what its threads know of other blocks from its next barrier on
  FsEmulatedSite site;  // where those wait that have arrived
  Team teams[kBarriers];
};

class Launch {
 public:
  Launch(const FsEmulatedImage& image, const FsEmulatedKernel& kernel, void* const* pointers,
         const Geometry& geometry, Order order, uint64_t seed, StackPool& stacks)
      : kernel_(kernel), pointers_(pointers), geometry_(geometry), order_(order),
        random_((seed + 1) * 0x9E3779B97F4A7C15u | 1), self_(*image.self()),
        checked_(image.checked), counted_(image.counted), stacks_(stacks) {}

  // Runs the launch. Returns "" or what went wrong.
  std::string run();

  // Lets the checks take the barriers of a place, such as "kernel.cu:12", for nothing: threads meet
  // there as ever.
  void ignore(std::string_view place) { ignored_ = place; }
  // The places of the barriers that a checked launch has met.
  const std::set<std::string>& barriers() const { return barriers_; }
  // What a counted launch did, as lines.
  std::string counts() const { return counters_.text(); }

  static const FsEmulatedRuntime runtime;

 private:
  static Launch*& active() {
    static thread_local Launch* launch = nullptr;
    return launch;
  }
  static Thread& of(FsEmulatedThread* thread) { return *static_cast<Thread*>(thread); }

  static void fiber_main() { active()->work(); }
  static void on_block_barrier(FsEmulatedThread* thread, FsEmulatedSite site) {
    active()->block_barrier(of(thread), site);
  }
  static bool on_block_vote(FsEmulatedThread* thread, bool holds, FsEmulatedSite site) {
    return active()->block_vote(of(thread), holds, site);
  }
  static void on_named_barrier(FsEmulatedThread* thread, unsigned barrier, unsigned count,
                               FsEmulatedSite site) {
    active()->named_barrier(of(thread), barrier, count, site);
  }
  static void on_grid_barrier(FsEmulatedThread* thread, FsEmulatedSite site) {
    active()->grid_barrier(of(thread), site);
  }
  static void on_cluster_barrier(FsEmulatedThread* thread, FsEmulatedSite site) {
    active()->cluster_barrier(of(thread), site);
  }
  static void on_arrive(FsEmulatedThread* thread, uint32_t* counter, FsEmulatedSite site) {
    active()->arrive(of(thread), counter, site);
  }
  static void on_wait(FsEmulatedThread* thread, const uint32_t* counter, uint32_t value,
                      FsEmulatedSite site) {
    active()->wait(of(thread), counter, value, site);
  }
  static void* on_cluster_shared(FsEmulatedThread* thread, void* own, unsigned rank) {
    return active()->cluster_shared(of(thread), own, rank);
  }
  static uint64_t on_warp(FsEmulatedThread* thread, FsWarpOp op, unsigned mask, uint64_t bits,
                          unsigned source) {
    return active()->warp(of(thread), op, mask, bits, source);
  }
  static void on_yield(FsEmulatedThread* thread) { active()->yield(of(thread)); }
  static void on_fail(FsEmulatedThread* thread, const char* text) {
    active()->fail("%s (block %u, thread %u)", text, thread->block->index.x, thread->index.x);
  }
  static void on_misaligned(FsEmulatedThread* thread, const void* address, unsigned alignment,
                            FsEmulatedSite site) {
    active()->fail("block %u, thread %u accesses the address %p, which is no multiple of %u, in %s",
                   thread->block->index.x, thread->index.x, address, alignment, text(site).chars);
  }
  static void on_access(FsEmulatedThread* thread, const void* address, size_t bytes,
                        FsAccess access) {
    static_cast<const Block*>(thread->block)->launch->access(of(thread), address, bytes, access);
  }
  // No string of the heap: what fails drops the fibers that own it.
  struct SiteText {
    char chars[96];
  };
  static SiteText text(const FsEmulatedSite& site) {
    const char* name = strrchr(site.file, '/');
    SiteText made;
    snprintf(made.chars, sizeof made.chars, "%s:%d", name == nullptr ? site.file : name + 1,
             site.line);
    return made;
  }

  size_t slot(const Thread& thread) const { return static_cast<size_t>(&thread - threads_.data()); }
  Block& block_of(const Thread& thread) { return blocks_[slot(thread) / kWarp / warps_]; }

  void run_group(unsigned first);
  void work();
  Thread* next();
  void suspend(Thread& thread);
  void exit(Thread& thread);
  void block_barrier(Thread& thread, FsEmulatedSite site);
  bool block_vote(Thread& thread, bool holds, FsEmulatedSite site);
  bool arrives(Thread& thread, FsEmulatedSite site);
  void named_barrier(Thread& thread, unsigned barrier, unsigned count, FsEmulatedSite site);
  void grid_barrier(Thread& thread, FsEmulatedSite site);
  void cluster_barrier(Thread& thread, FsEmulatedSite site);
  void meet(Thread& thread, FsEmulatedSite site);
  void arrive(Thread& thread, uint32_t* counter, FsEmulatedSite site);
  void wait(Thread& thread, const uint32_t* counter, uint32_t value, FsEmulatedSite site);
  std::string parameter(unsigned number) const;
  std::string counter_text(const uint32_t* counter) const;
  bool describe_waits();
  const char* meeting() const { return kernel_.cluster > 1 ? "cluster" : "grid"; }
  void* cluster_shared(Thread& thread, void* own, unsigned rank);
  uint64_t warp(Thread& thread, FsWarpOp op, unsigned mask, uint64_t bits, unsigned source);
  void yield(Thread& thread);
  void access(Thread& thread, const void* address, size_t bytes, FsAccess access);
  void use_cluster(Thread& thread, const void* address);
  void watch();
  void tell_apart();
  bool orders(FsEmulatedSite site);
  std::string named(size_t thread, Time time) const;
  void release_warps(size_t first, size_t count);
  void finish_collective(size_t warp, unsigned mask, FsWarpOp op);
  void fail(const char* format, ...) __attribute__((format(printf, 2, 3), noreturn));
  void describe_deadlock();
  void check_red_zones();
  void fill_order();
  void hold_back();
  template <class T>
  void arrange(std::vector<T>& items);
  uint64_t random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    return random_ ^= random_ << 17;
  }

  const FsEmulatedKernel& kernel_;
  void* const* const pointers_;
  const Geometry geometry_;
  const Order order_;
  uint64_t random_;
  FsEmulatedThread*& self_;
  const bool checked_, counted_;
  StackPool& stacks_;

  unsigned warps_ = 0;  // per block
  std::vector<Thread> threads_;
  std::vector<Block> blocks_;
  std::vector<unsigned> alive_, ready_, collective_;  // lanes, per warp
  std::unique_ptr<unsigned char[]> memory_;
  unsigned char* shared_ = nullptr;  // of all blocks, in `memory_`
  std::unique_ptr<HappensBefore> known_;  // of a checked launch
  std::unique_ptr<Shadow> shadow_;
  std::map<const uint32_t*, Clock> arrived_;  // by counter, what those did that arrived at it
  Counters counters_;  // of a counted launch
  std::set<std::string> barriers_;
  std::string ignored_;
  size_t shared_stride_ = 0;
  unsigned grid_alive_ = 0, grid_arrived_ = 0, idle_rounds_ = 0;
  FsEmulatedSite grid_site_ = {"", 0};

  std::vector<Thread*> round_;
  size_t position_ = 0;
  bool progress_ = false;

  Context host_ = nullptr;
  Thread* starting_ = nullptr;
  char* stack_ = nullptr;  // of the running fiber
  std::string error_;
};

inline const FsEmulatedRuntime Launch::runtime = {on_block_barrier, on_block_vote,
                                                  on_named_barrier, on_grid_barrier,
                                                  on_cluster_barrier, on_arrive, on_wait,
                                                  on_cluster_shared, on_warp, on_yield, on_fail,
                                                  on_misaligned, on_access};

inline std::string Launch::run() {
  warps_ = (geometry_.block + kWarp - 1) / kWarp;
  const unsigned together = geometry_.cooperative ? geometry_.grid : kernel_.cluster;
  if (geometry_.cooperative && kernel_.cluster > 1 || geometry_.grid % together != 0)
    return std::string("kernel ") + kernel_.name + ": " + std::to_string(geometry_.grid) +
           " blocks cannot be launched in clusters of " + std::to_string(kernel_.cluster);
  threads_.resize(size_t{together} * warps_ * kWarp);
  blocks_.resize(together);
  alive_.resize(size_t{together} * warps_);
  ready_.resize(alive_.size());
  collective_.resize(alive_.size());
  round_.reserve(threads_.size());
  shared_stride_ = (geometry_.shared_bytes + kRedZone + 127) / 128 * 128;
  memory_.reset(new unsigned char[kRedZone + shared_stride_ * together + 128]);
  unsigned char* const first = memory_.get() + kRedZone;  // nothing else lies right before it
  shared_ = first + (-reinterpret_cast<uintptr_t>(first) & 127);
  if (checked_) watch();
  if (counted_) tell_apart();

  // XLA runs with subnormals flushed to zero, a GPU does not.
  fenv_t environment;
  fegetenv(&environment);
  fesetenv(FE_DFL_ENV);
  Launch* outer = std::exchange(active(), this);
  std::vector<unsigned> groups(geometry_.grid / together);
  std::iota(groups.begin(), groups.end(), 0u);
  arrange(groups);
  for (size_t i = 0; i < groups.size() && error_.empty(); ++i) run_group(groups[i] * together);
  stacks_.reset();
  active() = outer;
  fesetenv(&environment);
  if (error_.empty()) return error_;
  return std::string("kernel ") + kernel_.name + ": " + error_;
}

// Runs the blocks that are alive together, the first of them being block `first`.
inline void Launch::run_group(unsigned first) {
  if (checked_) known_->start();
  memset(shared_, kPoison, shared_stride_ * blocks_.size());
  for (unsigned b = 0; b < blocks_.size(); ++b) {
    Block& block = blocks_[b];
    block.index = {first + b, 0, 0};
    block.size = {geometry_.block, 1, 1};
    block.grid_size = {geometry_.grid, 1, 1};
    block.shared = shared_ + b * shared_stride_;
    block.launch = this;
    block.reached = 0;
    block.alive = geometry_.block;
    block.arrived = block.late = 0;
    block.waited.clear();
    std::fill(std::begin(block.teams), std::end(block.teams), Team{});
    for (unsigned i = 0; i < geometry_.block; ++i) {
      Thread& thread = threads_[size_t{b} * warps_ * kWarp + i];
      thread.index = {i, 0, 0};
      thread.lane = i % kWarp;
      thread.block = &block;
      alive_[size_t{b} * warps_ + i / kWarp] |= 1u << thread.lane;
    }
  }
  ready_ = alive_;
  grid_alive_ = geometry_.block * static_cast<unsigned>(blocks_.size());
  grid_arrived_ = 0;
  round_.clear();
  position_ = 0;
  starting_ = next();
  stack_ = stacks_.take();
  if (stack_ == nullptr) {
    error_ = "no memory for the stacks of the emulated threads";
    return;
  }
  self_ = starting_;
  switch_context(&host_, fresh_context(stack_, fiber_main));
  if (error_.empty()) check_red_zones();
}

// A fiber: runs threads from the start until it meets one that is suspended elsewhere.
inline void Launch::work() {
  Context dropped;
  for (Thread* thread = starting_;;) {
    kernel_.call(pointers_);
    exit(*thread);
    thread = next();
    if (thread == nullptr) {
      if (grid_alive_ > 0) describe_deadlock();
      switch_context(&dropped, host_);
    }
    self_ = thread;
    if (thread->context == nullptr) continue;
    stacks_.give(std::exchange(stack_, thread->stack));
    switch_context(&dropped, std::exchange(thread->context, nullptr));
  }
}

// Lets the other threads run until this one is ready again.
inline void Launch::suspend(Thread& thread) {
  Thread* other = next();
  if (other == &thread) return;
  thread.stack = stack_;
  if (other == nullptr) {
    describe_deadlock();
    switch_context(&thread.context, host_);
  }
  self_ = other;
  if (other->context != nullptr) {
    stack_ = other->stack;
    switch_context(&thread.context, std::exchange(other->context, nullptr));
    return;
  }
  starting_ = other;
  char* stack = stacks_.take();
  if (stack == nullptr) fail("no memory for the stacks of %u emulated threads", grid_alive_);
  stack_ = stack;
  switch_context(&thread.context, fresh_context(stack, fiber_main));
}

// The next thread of this round, or of the next round; nullptr when no thread can run.
inline Thread* Launch::next() {
  if (position_ == round_.size()) {
    fill_order();
    position_ = 0;
    if (round_.empty()) return nullptr;
    idle_rounds_ = progress_ ? 0 : idle_rounds_ + 1;
    progress_ = false;
    if (idle_rounds_ > kIdleRounds)
      fail("%u threads wait in loops for something that no other thread does", grid_alive_);
  }
  return round_[position_++];
}

inline void Launch::fill_order() {
  round_.clear();
  if (order_ == Order::kDelayed) hold_back();
  for (size_t w = 0; w < ready_.size(); ++w)
    if (blocks_[w / warps_].late == 0)
      for (unsigned lanes = std::exchange(ready_[w], 0u); lanes != 0; lanes &= lanes - 1)
        round_.push_back(&threads_[w * kWarp + static_cast<unsigned>(__builtin_ctz(lanes))]);
  arrange(round_);
}

// Has some of the blocks stand still for this round and others, never all that could go on.
inline void Launch::hold_back() {
  bool any = false;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    Block& block = blocks_[b];
    if (block.late > 0) --block.late;
    else if (random() % 8 == 0) block.late = static_cast<unsigned>(random() % kLate);
    if (block.late > 0) continue;
    for (size_t w = b * warps_; w < (b + 1) * warps_; ++w) any = any || ready_[w] != 0;
  }
  if (any) return;
  for (Block& block : blocks_) block.late = 0;
}

template <class T>
void Launch::arrange(std::vector<T>& items) {
  const size_t count = items.size();
  if (order_ == Order::kReversed)
    for (size_t i = 0; i < count / 2; ++i) std::swap(items[i], items[count - 1 - i]);
  if (order_ == Order::kRandom || order_ == Order::kDelayed)
    for (size_t i = count; i > 1; --i) std::swap(items[i - 1], items[random() % i]);
}

}  // namespace fs

#include "emulator_sync.h"
#include "emulator_checks.h"
