// Stackful fibers: a context switch without system calls, and a pool of lazily committed stacks.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>

#include <memory>
#endif

namespace fs {

// A suspended context. Null: nothing is suspended here.
using Context = void*;

#if defined(__x86_64__) || defined(__aarch64__)

// Saves the callee-saved registers on the stack, stores the stack pointer in *from, continues `to`.
extern "C" void fs_fiber_switch(Context* from, Context to);

#if defined(__x86_64__)
__asm__(R"(
.text
.globl fs_fiber_switch
.hidden fs_fiber_switch
.type fs_fiber_switch, @function
fs_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fs_fiber_switch, .-fs_fiber_switch
)");
constexpr size_t kReturnWord = 6;
// After the return the stack pointer is 8 short of a multiple of 16, as after a call.
constexpr size_t kFrameWords = 8;
#else
__asm__(R"(
.text
.globl fs_fiber_switch
.hidden fs_fiber_switch
.type fs_fiber_switch, %function
fs_fiber_switch:
  stp d8, d9, [sp, #-160]!
  stp d10, d11, [sp, #16]
  stp d12, d13, [sp, #32]
  stp d14, d15, [sp, #48]
  stp x19, x20, [sp, #64]
  stp x21, x22, [sp, #80]
  stp x23, x24, [sp, #96]
  stp x25, x26, [sp, #112]
  stp x27, x28, [sp, #128]
  stp x29, x30, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp d10, d11, [sp, #16]
  ldp d12, d13, [sp, #32]
  ldp d14, d15, [sp, #48]
  ldp x19, x20, [sp, #64]
  ldp x21, x22, [sp, #80]
  ldp x23, x24, [sp, #96]
  ldp x25, x26, [sp, #112]
  ldp x27, x28, [sp, #128]
  ldp x29, x30, [sp, #144]
  ldp d8, d9, [sp], #160
  ret
.size fs_fiber_switch, .-fs_fiber_switch
)");
constexpr size_t kReturnWord = 19;
constexpr size_t kFrameWords = 22;
#endif

// A context that will run `entry`, which never returns, on the stack that ends at `top`, a
// multiple of 16.
inline Context fresh_context(char* top, void (*entry)()) {
  auto* words = reinterpret_cast<uintptr_t*>(top) - kFrameWords;
  words[kReturnWord] = reinterpret_cast<uintptr_t>(entry);
  words[kReturnWord + 1] = 0;  // a null return address ends stack walks
  return words;
}

inline void switch_context(Context* from, Context to) { fs_fiber_switch(from, to); }

#else

// The portable way: slower, since swapcontext asks the kernel for the signal mask every time.
constexpr size_t kStackBytes = 64 << 10;

inline Context fresh_context(char* top, void (*entry)()) {
  auto* context = reinterpret_cast<ucontext_t*>(top - kStackBytes);
  getcontext(context);
  context->uc_stack.ss_sp = context + 1;
  context->uc_stack.ss_size = kStackBytes - sizeof(ucontext_t);
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}

inline void switch_context(Context* from, Context to) {
  ucontext_t here;  // on the suspended stack, so it lives as long as the suspension
  *from = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}

#endif

// Stacks of one OS thread, kept for the next launch. A page is committed when first touched.
class StackPool {
 public:
  static constexpr size_t kUsable = 64 << 10;
  // Not a power of two: stacks used alike must not compete for the same cache sets.
  static constexpr size_t kStride = kUsable + (4 << 10) + 320;
  static constexpr size_t kPerSlab = 64;
  static constexpr size_t kKeptSlabs = 32;

  ~StackPool() { trim(0); }

  // The end (highest address) of a free stack, or nullptr when memory ran out.
  char* take() {
    if (free_.empty() && !grow()) return nullptr;
    char* top = free_.back();
    free_.pop_back();
    return top;
  }

  // The caller may still run on it, as long as it takes no other stack before it leaves.
  void give(char* top) { free_.push_back(top); }

  // Every stack is free again, whatever ran on it is dropped; only a working set is kept.
  void reset() {
    trim(kKeptSlabs);
    free_.clear();
    for (size_t i = slabs_.size(); i-- > 0;) add(slabs_[i]);
  }

 private:
  static constexpr size_t kSlabBytes = kPerSlab * kStride;

  bool grow() {
    void* slab = mmap(nullptr, kSlabBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) return false;
    slabs_.push_back(static_cast<char*>(slab));
    add(slabs_.back());
    return true;
  }

  void add(char* slab) {
    for (size_t i = kPerSlab; i > 0; --i)
      free_.push_back(slab + (i * kStride & ~size_t{15}));
  }

  void trim(size_t keep) {
    while (slabs_.size() > keep) {
      munmap(slabs_.back(), kSlabBytes);
      slabs_.pop_back();
    }
  }

  std::vector<char*> slabs_;
  std::vector<char*> free_;
};

}  // namespace fs
