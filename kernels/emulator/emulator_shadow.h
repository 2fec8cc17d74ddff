// Shadow memory: who wrote and who read each word of shared and global memory, and when.
//
// A kernel built with checks reports every access. Two accesses to the same place by different
// threads, at least one of which writes, must have a barrier of both between them; atomics need none
// among themselves. A place that the launch is not given must be written before it is read.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "emulation_abi.h"
#include "emulator_order.h"

namespace fs {

// Which blocks read a place, and when last: sets by their numbers, each kept once; number 0 is empty.
class Readings {
 public:
  using Set = std::vector<std::pair<uint32_t, Time>>;  // in the order of the blocks

  // A set with a reading more.
  uint32_t with(uint32_t number, uint32_t block, Time time) {
    const auto [known, fresh] = next_.try_emplace({number, block, time}, 0);
    if (!fresh) return known->second;
    Set set = sets_[number];
    const auto at = std::lower_bound(set.begin(), set.end(), std::pair<uint32_t, Time>(block, 0));
    if (at == set.end() || at->first != block) set.insert(at, {block, time});
    else at->second = time;
    const auto [same, added] = numbers_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
    if (added) sets_.push_back(std::move(set));
    return known->second = same->second;
  }
  const Set& operator[](uint32_t number) const { return sets_[number]; }

 private:
  std::vector<Set> sets_{{}};
  std::map<Set, uint32_t> numbers_{{{}, 0}};
  std::map<std::tuple<uint32_t, uint32_t, Time>, uint32_t> next_;
};

// Zeroed memory; what is never touched costs nothing.
template <class T>
class Sparse {
 public:
  explicit Sparse(size_t count) : bytes_(std::max<size_t>(count, 1) * sizeof(T)) {
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    items_ = memory == MAP_FAILED ? nullptr : static_cast<T*>(memory);
    if (items_ == nullptr) throw std::bad_alloc();
  }
  Sparse(Sparse&& other) noexcept
      : bytes_(other.bytes_), items_(std::exchange(other.items_, nullptr)) {}
  ~Sparse() {
    if (items_ != nullptr) munmap(items_, bytes_);
  }
  T& operator[](size_t i) { return items_[i]; }

 private:
  size_t bytes_;
  T* items_;
};

// The last write of a place and the reads since then that no thread knows to be over.
struct Cell {
  enum Readers : uint8_t { kNone, kThread, kLanes, kWarps, kBlocks };
  uint32_t writer;  // a thread; meaningless where `written` is 0
  Time written;
  uint32_t reader;  // a thread, or the warp or block that `readers` are of
  Time read;
  uint32_t set;  // of lanes or warps, or the number of a set of blocks
  Readers readers;
  bool atomic;  // the last write was
  bool split;   // of a word: each of its bytes has a cell
};

class Shadow {
 public:
  explicit Shadow(HappensBefore& order) : order_(order) {}

  // What memory is: of blocks; global, without or with values when the launch begins; or such that
  // no thread may write to it.
  enum Kind { kShared, kFresh, kGiven, kConstant };

  // Memory that accesses are checked in.
  void add(const void* begin, size_t bytes, Kind kind, std::string name) {
    const auto address = reinterpret_cast<uintptr_t>(begin);
    regions_.try_emplace(address, address, bytes, kind, std::move(name));
    first_ = regions_.begin()->first - kBeside;
    last_ = std::max(last_, address + bytes + kBeside);
  }

  // Returns "" or what is wrong with an access of `thread`; `describe(other, time)` names the thread
  // that was number `other` then.
  template <class F>
  std::string access(size_t thread, const void* at, size_t bytes, FsAccess access, F describe) {
    const auto address = reinterpret_cast<uintptr_t>(at);
    if (address < first_ || address >= last_) return "";
    Region* const region = find(address);
    if (region == nullptr) return "";
    const size_t first = address - region->begin;
    if (first > region->bytes || bytes > region->bytes - first)
      return "accesses byte " + std::to_string(static_cast<ptrdiff_t>(first)) + " of " +
             region->name + ", which has " + std::to_string(region->bytes);
    if (region->kind == kConstant)
      return access == FsAccess::kRead ? "" : "writes to " + region->name;
    for (size_t i = first; i < first + bytes;) {
      Cell& word = region->words[i / kWord];
      if (region->kind == kShared && !order_.is_of_these(std::max(word.written, word.read)))
        word = Cell{};
      const bool whole = i % kWord == 0 && first + bytes - i >= kWord;
      if (!whole && !word.split) {
        for (size_t b = 0; b < kWord; ++b) region->single[i / kWord * kWord + b] = word;
        word.split = true;
      }
      const size_t next = whole ? i + kWord : i + 1;
      if (word.split) word.read = order_.now();
      for (; i < next; i = word.split ? i + 1 : next) {
        Cell& cell = word.split ? region->single[i] : word;
        const Fault fault = check(cell, thread, access, region->kind == kGiven);
        if (fault != kFine) return text(fault, cell, thread, *region, i, describe);
      }
    }
    return "";
  }

 private:
  static constexpr size_t kWord = 4;
  static constexpr size_t kBeside = 64;  // bytes on both sides of a region that nobody may touch
  enum Fault { kFine, kUnwritten, kReadAfterWrite, kWriteAfterWrite, kWriteAfterRead };

  struct Region {
    Region(uintptr_t address, size_t size, Kind what, std::string text)
        : begin(address), bytes(size), kind(what), name(std::move(text)),
          words(what == kConstant ? 0 : size / kWord + 1),
          single(what == kConstant ? 0 : size + kWord) {}
    uintptr_t begin;
    size_t bytes;
    Kind kind;
    std::string name;
    Sparse<Cell> words, single;
  };

  // The region of an address, or the one that it lies right beside.
  Region* find(uintptr_t address) {
    if (recent_ != nullptr && address - recent_->begin < recent_->bytes) return recent_;
    const auto after = regions_.upper_bound(address);
    if (after != regions_.begin()) {
      Region& region = std::prev(after)->second;
      if (address - region.begin < region.bytes + kBeside) return recent_ = &region;
    }
    return after != regions_.end() && after->first - address <= kBeside ? &after->second : nullptr;
  }

  Fault check(Cell& cell, size_t thread, FsAccess access, bool given) {
    const bool atomic = access == FsAccess::kAtomic;
    if (cell.written != 0 && !(atomic && cell.atomic) &&
        !order_.knows(thread, cell.writer, cell.written))
      return access == FsAccess::kRead ? kReadAfterWrite : kWriteAfterWrite;
    if (access == FsAccess::kWrite || atomic) {
      if (!is_read_before(cell, thread)) return kWriteAfterRead;
      if (atomic && cell.written == 0 && !given) return kUnwritten;
      cell.writer = static_cast<uint32_t>(thread);
      cell.written = order_.now();
      cell.atomic = atomic;
      cell.readers = Cell::kNone;
      return kFine;
    }
    if (cell.written == 0 && !given) return kUnwritten;
    add_reader(cell, thread);
    return kFine;
  }

  // Whether the reads of a place happened before what `thread` does now.
  bool is_read_before(const Cell& cell, size_t thread) const {
    switch (cell.readers) {
      case Cell::kNone: return true;
      case Cell::kThread: return order_.knows(thread, cell.reader, cell.read);
      case Cell::kLanes: return order_.knows_lanes(thread, cell.reader, cell.set, cell.read);
      case Cell::kWarps: return order_.knows_warps(thread, cell.reader, cell.set, cell.read);
      default: break;
    }
    if (order_.knows_all(cell.read)) return true;
    const Readings::Set& blocks = readings_[cell.set];
    return std::all_of(blocks.begin(), blocks.end(), [&](const auto& one) {
      return order_.knows_block(thread, one.first, one.second);
    });
  }

  // Readers that do not know of each other become a set of lanes, of warps of a block, or of blocks.
  void add_reader(Cell& cell, size_t thread) {
    const auto warp = static_cast<uint32_t>(thread / kLanes), lane = 1u << thread % kLanes;
    const auto block = static_cast<uint32_t>(order_.block_of(thread));
    const size_t other = cell.readers == Cell::kThread ? cell.reader / kLanes : cell.reader;
    const bool of_lanes = cell.readers == Cell::kThread || cell.readers == Cell::kLanes;
    const size_t other_block =
        of_lanes ? order_.block_of(other * kLanes) : static_cast<size_t>(cell.reader);
    if (is_read_before(cell, thread)) {
      cell.readers = Cell::kThread;
      cell.reader = static_cast<uint32_t>(thread);
    } else if (of_lanes && other == warp) {
      cell.set = lane | (cell.readers == Cell::kThread ? 1u << cell.reader % kLanes : cell.set);
      cell.readers = Cell::kLanes;
      cell.reader = warp;
    } else if (cell.readers != Cell::kBlocks && other_block == block) {
      const unsigned before = of_lanes ? 1u << order_.warp_of(other * kLanes) : cell.set;
      cell.set = before | 1u << order_.warp_of(thread);
      cell.readers = Cell::kWarps;
      cell.reader = block;
    } else {
      const bool several = cell.readers == Cell::kBlocks;
      const auto other_one = static_cast<uint32_t>(other_block);
      const uint32_t before = several ? cell.set : readings_.with(0, other_one, cell.read);
      cell.set = readings_.with(before, block, order_.now());
      cell.readers = Cell::kBlocks;
    }
    cell.read = order_.now();
  }

  template <class F>
  std::string text(Fault fault, const Cell& cell, size_t thread, const Region& region, size_t byte,
                   F describe) const {
    const std::string place = "byte " + std::to_string(byte) + " of " + region.name;
    if (fault == kUnwritten) return "reads " + place + ", which nothing was written to";
    if (fault == kWriteAfterRead) {
      std::string others = "other blocks";
      if (cell.readers == Cell::kThread) others = describe(cell.reader, cell.read);
      if (cell.readers == Cell::kLanes) {
        const unsigned set = cell.set & ~(thread / kLanes == cell.reader ? 1u << thread % kLanes : 0);
        others = describe(cell.reader * kLanes + static_cast<unsigned>(__builtin_ctz(set)), cell.read) +
                 " (or other lanes of its warp)";
      }
      if (cell.readers == Cell::kWarps) others = "several warps of its block";
      return "overwrites " + place + ", which " + others + " may still have to read";
    }
    const std::string what = fault == kReadAfterWrite ? "reads " : "overwrites ";
    return what + place + ", which " + describe(cell.writer, cell.written) + " wrote";
  }

  static constexpr size_t kLanes = HappensBefore::kLanes;
  HappensBefore& order_;
  std::map<uintptr_t, Region> regions_;  // by where they begin
  uintptr_t first_ = 0, last_ = 0;       // addresses that may concern any
  Region* recent_ = nullptr;
  Readings readings_;
};

}  // namespace fs
