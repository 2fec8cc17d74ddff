// What a kernel image compiled for the host and the emulator that runs it agree on.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Part of every image: an image built against another layout of this file is refused.
#define FS_EMULATION_ABI 7

struct FsEmulatedDim3 {
  unsigned x, y, z;
};

// What all threads of one block share.
struct FsEmulatedBlock {
  FsEmulatedDim3 index, size, grid_size;
  unsigned char* shared;  // dynamic shared memory, 128-byte aligned
};

// What a running thread knows about itself.
struct FsEmulatedThread {
  FsEmulatedDim3 index;
  unsigned lane;
  const FsEmulatedBlock* block;
};

// Where in the source a thread waits.
struct FsEmulatedSite {
  const char* file;
  int line;
};

enum class FsWarpOp : unsigned { kSync, kShuffle, kBallot };

enum class FsAccess : unsigned { kRead, kWrite, kAtomic };

// The emulator's services to a kernel. Each may suspend the calling thread.
struct FsEmulatedRuntime {
  void (*block_barrier)(FsEmulatedThread*, FsEmulatedSite);
  // All threads of a block meet; whether `holds` was true for each of them.
  bool (*block_vote)(FsEmulatedThread*, bool holds, FsEmulatedSite);
  // `count` threads of a block meet at its barrier number `barrier` (1 to 15).
  void (*named_barrier)(FsEmulatedThread*, unsigned barrier, unsigned count, FsEmulatedSite);
  void (*grid_barrier)(FsEmulatedThread*, FsEmulatedSite);
  void (*cluster_barrier)(FsEmulatedThread*, FsEmulatedSite);
  // The first thread of a block adds one to a counter for the block, or waits until it has a value.
  void (*arrive)(FsEmulatedThread*, uint32_t* counter, FsEmulatedSite);
  void (*wait)(FsEmulatedThread*, const uint32_t* counter, uint32_t value, FsEmulatedSite);
  // Where a place in this block's shared memory is in that of block `rank` of the cluster.
  void* (*cluster_shared)(FsEmulatedThread*, void* own, unsigned rank);
  // Lanes of `mask` meet; the result is the bits that lane `source` brought (kShuffle), the set of
  // lanes with bits != 0 (kBallot), or nothing (kSync).
  uint64_t (*warp)(FsEmulatedThread*, FsWarpOp op, unsigned mask, uint64_t bits, unsigned source);
  void (*yield)(FsEmulatedThread*);
  // Ends the launch with an error; does not return.
  void (*fail)(FsEmulatedThread*, const char* text);
  // Ends the launch: an access to `address`, which is no multiple of `alignment`.
  void (*misaligned)(FsEmulatedThread*, const void* address, unsigned alignment, FsEmulatedSite);
  // Checks or counts an access to memory of whatever kind; called only by images that are `checked`
  // or `counted`.
  void (*access)(FsEmulatedThread*, const void* address, size_t bytes, FsAccess);
};

enum class FsRole : unsigned { kInput, kOutput, kScratch };

struct FsEmulatedParameter {
  size_t bytes;
  FsRole role;
};

struct FsEmulatedKernel {
  const char* name;
  unsigned parameter_count;
  const FsEmulatedParameter* parameters;
  unsigned cluster;  // neighbouring blocks that share their shared memory
  void (*call)(void* const* pointers);  // one thread's work
};

// Each image exports one of these as `fs_emulated_image`.
struct FsEmulatedImage {
  uint32_t abi;
  uint32_t kernel_count;
  bool checked;  // reports its accesses, to find races
  bool counted;  // reports them, to be counted
  const FsEmulatedKernel* kernels;
  void (*bind)(const FsEmulatedRuntime*);
  FsEmulatedThread** (*self)();  // this OS thread's slot for the running CUDA thread
};
