// What a launch of a checked or counted image watches. The third part of emulator.h, which includes it.
#pragma once

namespace fs {

// Makes the shadow of all memory that threads of the launch share.
inline void Launch::watch() {
  known_.reset(new HappensBefore(blocks_.size(), warps_));
  shadow_.reset(new Shadow(*known_));
  for (size_t b = 0; b < blocks_.size(); ++b)
    shadow_->add(shared_ + b * shared_stride_, geometry_.shared_bytes, Shadow::kShared,
                 "shared memory");
  // one region for each address: operands may be passed twice, and results may overwrite them
  std::map<void*, std::pair<Shadow::Kind, unsigned>> kinds;
  for (unsigned i = 0; i < kernel_.parameter_count; ++i) {
    const FsEmulatedParameter& parameter = kernel_.parameters[i];
    if (parameter.bytes == 0) continue;
    const auto kind = parameter.role == FsRole::kInput ? Shadow::kConstant : Shadow::kFresh;
    const auto [known, fresh] = kinds.try_emplace(pointers_[i], kind, i);
    if (!fresh && kind == Shadow::kFresh) known->second = {Shadow::kGiven, i};
  }
  for (const auto& [address, what] : kinds) {
    const auto [kind, number] = what;
    shadow_->add(address, kernel_.parameters[number].bytes, kind, parameter(number));
  }
}

// What a parameter is, and the how many-th of those.
inline std::string Launch::parameter(unsigned number) const {
  const FsEmulatedParameter* const all = kernel_.parameters;
  unsigned first = number;
  while (first > 0 && all[first - 1].role == all[number].role) --first;
  const char* const names[] = {"input ", "output ", "scratch "};
  return names[static_cast<unsigned>(all[number].role)] + std::to_string(number - first);
}

// Names the memory whose accesses are counted: buffers by their roles, and what blocks share.
inline void Launch::tell_apart() {
  const char* const names[] = {"input", "output", "scratch"};
  for (unsigned i = 0; i < kernel_.parameter_count; ++i) {
    const FsEmulatedParameter& parameter = kernel_.parameters[i];
    counters_.add(pointers_[i], parameter.bytes, names[static_cast<unsigned>(parameter.role)]);
  }
  counters_.add(shared_, shared_stride_ * blocks_.size(), "shared");
}

inline void Launch::access(Thread& thread, const void* address, size_t bytes, FsAccess access) {
  if (counted_) counters_.access(address, bytes, access != FsAccess::kRead);
  if (!checked_) return;
  const auto at = static_cast<const char*>(address);
  const auto within = [at](const auto& items) {
    return at >= reinterpret_cast<const char*>(items.data()) &&
           at < reinterpret_cast<const char*>(items.data() + items.size());
  };
  // what the emulator itself keeps of threads and blocks
  if (within(threads_) || within(blocks_) || address == &self_) return;
  use_cluster(thread, address);
  char message[400];
  {
    const std::string found =
        shadow_->access(slot(thread), address, bytes, access,
                        [this](size_t other, Time time) { return named(other, time); });
    if (found.empty()) return;
    snprintf(message, sizeof message, "%s", found.c_str());
  }
  fail("block %u, thread %u %s; the last barrier of thread %u is %s", thread.block->index.x,
       thread.index.x, message, thread.index.x,
       thread.site.line == 0 ? "none" : text(thread.site).chars);
}

// The shared memory of another block exists from the first barrier of the cluster on, until after
// the last.
inline void Launch::use_cluster(Thread& thread, const void* address) {
  const auto at = static_cast<const unsigned char*>(address);
  if (at < shared_ || at >= shared_ + shared_stride_ * blocks_.size()) return;
  if (at - thread.block->shared < static_cast<ptrdiff_t>(shared_stride_) && at >= thread.block->shared)
    return;
  Block& owner = blocks_[static_cast<size_t>(at - shared_) / shared_stride_];
  if (kernel_.cluster < 2)
    fail("block %u, thread %u accesses the shared memory of block %u", thread.block->index.x,
         thread.index.x, owner.index.x);
  if (!known_->is_of_these(known_->together()))
    fail("block %u, thread %u uses the shared memory of block %u, which may not have begun: there "
         "was no cluster barrier", thread.block->index.x, thread.index.x, owner.index.x);
  owner.reached = known_->now();
}

inline std::string Launch::named(size_t thread, Time time) const {
  if (!known_->is_of_these(time)) return "another block";
  const Thread& other = threads_[thread];
  return "block " + std::to_string(other.block->index.x) + ", thread " +
         std::to_string(other.index.x);
}

// Whether what threads know of each other grows at a barrier.
inline bool Launch::orders(FsEmulatedSite site) {
  return checked_ && *barriers_.emplace(text(site).chars).first != ignored_;
}

}  // namespace fs
