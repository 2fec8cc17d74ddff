// A kernel alone: runs it on the inputs beside it, compares its outputs with what they should be,
// and times it. Included by the main.cu that `fusionstitch emit` writes into a kernel's folder.
//
// With nvcc it runs on the GPU; with a host compiler and FUSIONSTITCH_EMULATE on the emulator,
// whose times say nothing. Exit code 0: all outputs are right, or there is nothing to compare with.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#ifdef FUSIONSTITCH_EMULATE
#include "emulator.h"
#else
#include <cuda_runtime.h>
#endif

// How a buffer's elements are stored. `kTable` are floats of one byte, by a table of 256 values.
enum class FsElement { kInteger, kF16, kBf16, kF32, kF64, kTable };

enum class FsUse { kInput, kOutput, kScratch };

// A parameter of the kernel. Inputs lie in the file `name`.bin; of outputs it holds what is right:
// bytes for integers, doubles for floats, whose relative L2 error may be `bound`.
struct FsBuffer {
  const char* name;
  FsUse use;
  FsElement element;
  size_t bytes;
  size_t item;
  double bound;
  const double* table;
};

struct FsLaunch {
  const char* kernel;
  unsigned grid, block, cluster;
  size_t shared;
  bool cooperative;
};

namespace fs_harness {

constexpr int kWarm = 3, kBatches = 11, kBatch = 20;

inline bool read(const std::string& folder, const char* name, std::vector<unsigned char>& bytes) {
  const std::string path = folder + "/" + name + ".bin";
  FILE* file = fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  const size_t found = fread(bytes.data(), 1, bytes.size(), file);
  const bool whole = found == bytes.size() && fgetc(file) == EOF;
  fclose(file);
  if (!whole) {
    fprintf(stderr, "%s is not the %zu bytes that it should be: emit it again\n", path.c_str(),
            bytes.size());
    exit(2);
  }
  return true;
}

inline double half(uint16_t bits) {
  const double sign = bits >> 15 ? -1.0 : 1.0;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp(fraction, -24);
  return sign * ldexp(1024 + fraction, exponent - 25);
}

inline double value(const FsBuffer& buffer, const unsigned char* bytes, size_t i) {
  switch (buffer.element) {
    case FsElement::kTable:
      return buffer.table[bytes[i]];
    case FsElement::kF64: {
      double found;
      memcpy(&found, bytes + 8 * i, 8);
      return found;
    }
    case FsElement::kF32: {
      float found;
      memcpy(&found, bytes + 4 * i, 4);
      return found;
    }
    default: {
      uint16_t bits;
      memcpy(&bits, bytes + 2 * i, 2);
      if (buffer.element == FsElement::kF16) return half(bits);
      const uint32_t wide = (uint32_t)bits << 16;
      float found;
      memcpy(&found, &wide, 4);
      return found;
    }
  }
}

// Says how far an output is off, and returns whether that is too far.
inline bool wrong(const FsBuffer& buffer, const unsigned char* ours, const std::string& folder) {
  const size_t count = buffer.bytes / buffer.item;
  if (buffer.element == FsElement::kInteger) {
    std::vector<unsigned char> right(buffer.bytes);
    if (!read(folder, buffer.name, right)) {
      printf("%s  not compared\n", buffer.name);
      return false;
    }
    size_t off = 0;
    for (size_t i = 0; i < count; ++i)
      off += memcmp(&right[i * buffer.item], ours + i * buffer.item, buffer.item) != 0;
    printf("%s  %zu of %zu elements differ%s\n", buffer.name, off, count, off ? "  WRONG" : "");
    return off != 0;
  }
  std::vector<unsigned char> right(8 * count);
  if (!read(folder, buffer.name, right)) {
    printf("%s  not compared\n", buffer.name);
    return false;
  }
  double off = 0, all = 0;
  bool same = true;  // where there are NaN and infinities
  for (size_t i = 0; i < count; ++i) {
    double a = value(buffer, ours, i), b;
    memcpy(&b, &right[8 * i], 8);
    if (isnan(a) || isnan(b) || isinf(a) || isinf(b)) {
      same = same && (a == b || (isnan(a) && isnan(b)));
      continue;
    }
    off += (a - b) * (a - b);
    all += b * b;
  }
  const double error = off == 0 ? 0 : sqrt(off / all);
  const bool far = !same || !(error <= buffer.bound);
  printf("%s  relative error %.2e, allowed %.1e%s%s\n", buffer.name, error, buffer.bound,
         same ? "" : ", other NaN or infinities", far ? "  WRONG" : "");
  return far;
}

#ifdef FUSIONSTITCH_EMULATE

inline int run(const FsLaunch& launch, const FsEmulatedImage& image, std::vector<void*>& pointers,
               const std::vector<std::vector<unsigned char>>&, size_t) {
  image.bind(&fs::Launch::runtime);
  fs::StackPool stacks;
  const fs::Geometry geometry{launch.grid, launch.block, launch.shared, launch.cooperative};
  fs::Launch one(image, image.kernels[0], pointers.data(), geometry, fs::Order::kRandom, 1, stacks);
  const std::string error = one.run();
  if (!error.empty()) {
    fprintf(stderr, "%s: %s\n", launch.kernel, error.c_str());
    return 1;
  }
  printf("%s  ran on the emulator, whose times say nothing\n", launch.kernel);
  return 0;
}

#else

#define FS_CUDA(call)                                                                     \
  do {                                                                                    \
    const cudaError_t error = (call);                                                     \
    if (error != cudaSuccess) {                                                           \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                      \
      return 1;                                                                           \
    }                                                                                     \
  } while (0)

inline cudaError_t start(const FsLaunch& launch, const void* kernel, void** arguments) {
  if (launch.cooperative)
    return cudaLaunchCooperativeKernel(kernel, dim3(launch.grid), dim3(launch.block), arguments,
                                       launch.shared, nullptr);
  return cudaLaunchKernel(kernel, dim3(launch.grid), dim3(launch.block), arguments, launch.shared,
                          nullptr);
}

// Runs it once and brings back what it wrote, then times it: inputs and outputs stay where they
// are, so what fits the L2 cache is found there.
inline int run(const FsLaunch& launch, const void* kernel, std::vector<void*>& pointers,
               std::vector<std::vector<unsigned char>>& buffers, size_t moved) {
  std::vector<void*> device(pointers.size()), arguments(pointers.size());
  for (size_t i = 0; i < pointers.size(); ++i) {
    FS_CUDA(cudaMalloc(&device[i], std::max<size_t>(buffers[i].size(), 1)));
    FS_CUDA(cudaMemcpy(device[i], buffers[i].data(), buffers[i].size(), cudaMemcpyHostToDevice));
    arguments[i] = &device[i];
  }
  if (launch.shared > 0)
    FS_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)launch.shared));
  FS_CUDA(start(launch, kernel, arguments.data()));
  FS_CUDA(cudaDeviceSynchronize());
  for (size_t i = 0; i < pointers.size(); ++i)
    FS_CUDA(cudaMemcpy(buffers[i].data(), device[i], buffers[i].size(), cudaMemcpyDeviceToHost));
  cudaEvent_t begin, end;
  FS_CUDA(cudaEventCreate(&begin));
  FS_CUDA(cudaEventCreate(&end));
  std::vector<float> times;
  for (int n = -kWarm; n < kBatches; ++n) {
    FS_CUDA(cudaEventRecord(begin));
    for (int i = 0; i < kBatch; ++i) FS_CUDA(start(launch, kernel, arguments.data()));
    FS_CUDA(cudaEventRecord(end));
    FS_CUDA(cudaEventSynchronize(end));
    float ms;
    FS_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (n >= 0) times.push_back(1e3f * ms / kBatch);
  }
  std::sort(times.begin(), times.end());
  const float us = times[times.size() / 2];
  printf("%s  %.2f us (median of %d batches of %d launches; %.2f to %.2f), %.0f GB/s of inputs and "
         "outputs\n",
         launch.kernel, us, kBatches, kBatch, times.front(), times.back(), moved / us / 1e3);
  return 0;
}

#endif

template <class Kernel>
int check(const FsLaunch& launch, const Kernel& kernel, const FsBuffer* buffers, size_t count,
          const std::string& folder) {
  std::vector<std::vector<unsigned char>> bytes(count);
  std::vector<void*> pointers(count);
  size_t moved = 0;
  bool given = true;
  for (size_t i = 0; i < count; ++i) {
    // what nobody may rely on is no zero
    bytes[i].assign(buffers[i].bytes, buffers[i].use == FsUse::kInput ? 0 : 0xA5);
    if (buffers[i].use == FsUse::kInput) given = read(folder, buffers[i].name, bytes[i]) && given;
    if (buffers[i].use != FsUse::kScratch) moved += buffers[i].bytes;
    pointers[i] = bytes[i].data();
  }
  if (!given) printf("inputs are zeros: there are no files of them, so nothing is compared\n");
  if (const int failed = run(launch, kernel, pointers, bytes, moved)) return failed;
  bool off = false;
  for (size_t i = 0; given && i < count; ++i)
    if (buffers[i].use == FsUse::kOutput) off = wrong(buffers[i], bytes[i].data(), folder) || off;
  return off ? 1 : 0;
}

}  // namespace fs_harness
