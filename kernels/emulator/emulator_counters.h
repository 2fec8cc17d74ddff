// What a launch of a counted image does: accesses of each buffer and of shared memory by their
// width, and meetings at barriers and shuffles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fs {

class Counters {
 public:
  // Memory whose accesses are counted under a name; regions of one name add up in the text.
  void add(const void* begin, size_t bytes, std::string name) {
    regions_.push_back({static_cast<const char*>(begin), bytes, std::move(name), {}});
  }

  void access(const void* address, size_t bytes, bool writes) {
    const auto at = static_cast<const char*>(address);
    for (Region& region : regions_)
      if (at >= region.begin && at < region.begin + region.bytes) {
        ++region.times[writes][std::min(bytes, kWidest)];
        return;
      }
  }

  // All of those have met that a barrier is for, or a thread brings a value to a shuffle.
  void meet(const char* where) {
    for (auto& [name, times] : meetings_)
      if (name == where) {
        ++times;
        return;
      }
    meetings_.emplace_back(where, 1);
  }

  // A line for each kind of event: "read NAME WIDTH TIMES", "write NAME WIDTH TIMES", or "meet NAME 0
  // TIMES".
  std::string text() const {
    std::string lines;
    for (const Region& region : regions_)
      for (bool writes : {false, true})
        for (size_t width = 0; width <= kWidest; ++width)
          if (const uint64_t times = region.times[writes][width]; times > 0)
            lines += std::string(writes ? "write " : "read ") + region.name + " " +
                     std::to_string(width) + " " + std::to_string(times) + "\n";
    for (const auto& [name, times] : meetings_)
      lines += "meet " + name + " 0 " + std::to_string(times) + "\n";
    return lines;
  }

 private:
  static constexpr size_t kWidest = 64;  // bytes; wider accesses count as such
  struct Region {
    const char* begin;
    size_t bytes;
    std::string name;
    uint64_t times[2][kWidest + 1];
  };
  std::vector<Region> regions_;
  std::vector<std::pair<std::string, uint64_t>> meetings_;
};

}  // namespace fs
