// Which accesses of a launch are in order: what each thread knows of the others through barriers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fs {

// Counts the barriers of a launch. An access carries the number of those that were complete.
using Time = uint32_t;
// By block: until when all that it did is known. Empty: nothing.
using Clock = std::vector<Time>;

inline void join(Clock& into, const Clock& other) {
  into.resize(std::max(into.size(), other.size()));
  for (size_t b = 0; b < other.size(); ++b) into[b] = std::max(into[b], other[b]);
}

// What threads know of each other: until when all that another thread did happened before what this
// one does now. Barriers are a way to know: of lanes, of whole warps of a block, or of all blocks that
// run together; the other one are counters, at which blocks arrive that others wait for. Threads are numbered through: by block, warp (all of `warps` a block)
// and lane.
class HappensBefore {
 public:
  static constexpr unsigned kLanes = 32;

  HappensBefore(size_t blocks, unsigned warps)
      : warps_(warps), of_others_(blocks), by_warp_(blocks * warps * warps), by_lane_(blocks * warps * kLanes * kLanes) {}

  Time now() const { return now_; }
  // Until when all threads that run together know all of each other.
  Time together() const { return together_; }
  // Whether `time` is of the blocks that run now: they know nothing of those that ran before.
  bool is_of_these(Time time) const { return time >= started_; }

  // Other blocks run from now on.
  void start() { started_ = ++now_, together_ = now_ - 1; }

  void meet_lanes(size_t warp, unsigned mask) {
    Time known[kLanes] = {};
    each(mask, [&](unsigned lane) {
      for (unsigned i = 0; i < kLanes; ++i) known[i] = std::max(known[i], of_lane(warp, lane)[i]);
    });
    each(mask, [&](unsigned lane) { known[lane] = now_; });
    each(mask, [&](unsigned lane) { std::copy(known, known + kLanes, of_lane(warp, lane)); });
    ++now_;
  }

  // Warps of one block, the first of which is `first`.
  void meet_warps(size_t first, unsigned mask) {
    Time known[kLanes] = {};
    each(mask, [&](unsigned warp) {
      for (unsigned i = 0; i < warps_; ++i) known[i] = std::max(known[i], of_warp(first + warp)[i]);
    });
    each(mask, [&](unsigned warp) { known[warp] = now_; });
    each(mask, [&](unsigned warp) { std::copy(known, known + warps_, of_warp(first + warp)); });
    ++now_;
  }

  // What all threads of a block know since its last barrier, themselves included, is added to what
  // others learn.
  void tell(size_t block, Clock& others) const {
    join(others, of_others_[block]);
    others.resize(std::max(others.size(), of_others_.size()));
    const Time* const own = &by_warp_[block * warps_ * warps_];
    others[block] = std::max(others[block], *std::min_element(own, own + warps_));
  }

  // All threads of a block know from now on what other blocks have done.
  void learn(size_t block, const Clock& others) { join(of_others_[block], others); }

  void meet_all() { together_ = now_++; }

  // Whether all that `other` did until `time` happened before what `thread` does now.
  bool knows(size_t thread, size_t other, Time time) const {
    if (thread == other) return is_of_these(time);
    return knows_lanes(thread, other / kLanes, 1u << other % kLanes, time);
  }

  // The same of some lanes of a warp.
  bool knows_lanes(size_t thread, size_t warp, unsigned lanes, Time time) const {
    const size_t own = thread / kLanes;
    if (time <= together_) return knows_all(time);
    if (warp / warps_ != own / warps_) {
      const Clock& others = of_others_[own / warps_];
      return is_of_these(time) && !others.empty() && time <= others[warp / warps_];
    }
    if (time <= by_warp_[own * warps_ + warp % warps_]) return is_of_these(time);
    if (warp != own) return false;
    bool known = is_of_these(time);
    each(lanes & ~(1u << thread % kLanes),
         [&](unsigned lane) { known &= time <= by_lane_[thread * kLanes + lane]; });
    return known;
  }

  // The same of all threads of a block.
  bool knows_block(size_t thread, size_t block, Time time) const {
    return knows_warps(thread, block, ~0u >> (kLanes - warps_), time);
  }

  // The same of some warps of a block.
  bool knows_warps(size_t thread, size_t block, unsigned warps, Time time) const {
    bool known = true;
    each(warps, [&](unsigned warp) {
      known &= knows_lanes(thread, block * warps_ + warp, ~0u, time);
    });
    return known;
  }

  bool knows_all(Time time) const { return is_of_these(time) && time <= together_; }

  size_t block_of(size_t thread) const { return thread / kLanes / warps_; }
  unsigned warp_of(size_t thread) const {
    return static_cast<unsigned>(thread / kLanes % warps_);
  }

 private:
  template <class F>
  static void each(unsigned bits, F visit) {
    for (; bits != 0; bits &= bits - 1) visit(static_cast<unsigned>(__builtin_ctz(bits)));
  }
  Time* of_lane(size_t warp, unsigned lane) { return &by_lane_[(warp * kLanes + lane) * kLanes]; }
  Time* of_warp(size_t warp) { return &by_warp_[warp * warps_]; }

  const unsigned warps_;
  Time now_ = 1, together_ = 0, started_ = 1;
  std::vector<Clock> of_others_;  // by block, what it knows of others by counters
  std::vector<Time> by_warp_;  // of each warp: until when it knows each of its block
  std::vector<Time> by_lane_;  // of each thread: the same of each lane of its warp
};

}  // namespace fs
