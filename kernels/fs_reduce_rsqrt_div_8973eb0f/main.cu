// Runs fs_reduce_rsqrt_div_8973eb0f on the inputs in this folder, checks what it gives and times it.
//
//   nvcc -std=c++17 -O3 -arch=sm_90 -I.. main.cu -o main && ./main
//
// On the CPU, without any time that means something:
//
//   g++ -std=c++17 -O1 -fno-strict-aliasing -DFUSIONSTITCH_EMULATE -I.. -I../emulator -x c++ main.cu -o main && ./main
#include "harness.h"
#ifdef FUSIONSTITCH_EMULATE
#define clock fs_emulated_clock
#endif
#include "../fs_reduce_rsqrt_div_8973eb0f.cu"

static const FsBuffer buffers[] = {
    {"in0", FsUse::kInput, FsElement::kBf16, 16384, 2, 0.0, nullptr},  // bf16[64,128]
    {"in1", FsUse::kInput, FsElement::kBf16, 256, 2, 0.0, nullptr},  // bf16[128]
    {"in2", FsUse::kInput, FsElement::kBf16, 16384, 2, 0.0, nullptr},  // bf16[64,128]
    {"in3", FsUse::kInput, FsElement::kBf16, 256, 2, 0.0, nullptr},  // bf16[128]
    {"out0", FsUse::kOutput, FsElement::kBf16, 256, 2, 0.006484930292801204, nullptr},  // bf16[128]
    {"out1", FsUse::kOutput, FsElement::kBf16, 16384, 2, 0.009062777139672174, nullptr},  // bf16[64,128]
    {"out2", FsUse::kOutput, FsElement::kBf16, 256, 2, 0.010991240809978426, nullptr},  // bf16[128]
    {"out3", FsUse::kOutput, FsElement::kBf16, 16384, 2, 0.009489604271134319, nullptr},  // bf16[64,128]
    {"scratch0", FsUse::kScratch, FsElement::kF32, 256, 4, 0.0, nullptr},  // f32[64]
    {"scratch1", FsUse::kScratch, FsElement::kF32, 256, 4, 0.0, nullptr},  // f32[64]
};
static const FsLaunch launch = {"fs_reduce_rsqrt_div_8973eb0f", 8, 256, 1, 1024, true};

#ifdef FUSIONSTITCH_EMULATE
static const FsEmulatedParameter parameters[] = {{16384, FsRole::kInput}, {256, FsRole::kInput}, {16384, FsRole::kInput}, {256, FsRole::kInput}, {256, FsRole::kOutput}, {16384, FsRole::kOutput}, {256, FsRole::kOutput}, {16384, FsRole::kOutput}, {256, FsRole::kScratch}, {256, FsRole::kScratch}};
static void call(void* const* p) { fs_reduce_rsqrt_div_8973eb0f(FsEmulatedPointer{p[0]}, FsEmulatedPointer{p[1]}, FsEmulatedPointer{p[2]}, FsEmulatedPointer{p[3]}, FsEmulatedPointer{p[4]}, FsEmulatedPointer{p[5]}, FsEmulatedPointer{p[6]}, FsEmulatedPointer{p[7]}, FsEmulatedPointer{p[8]}, FsEmulatedPointer{p[9]}); }
static const FsEmulatedKernel kernels[] = {{"fs_reduce_rsqrt_div_8973eb0f", 10, parameters, 1, call}};
FS_EMULATED_IMAGE(kernels)
static const FsEmulatedImage& kernel = fs_emulated_image;
#else
static const void* const kernel = (const void*)fs_reduce_rsqrt_div_8973eb0f;
#endif

// The folder with the files of inputs and outputs may be named.
int main(int count, char** words) {
  const size_t number = sizeof(buffers) / sizeof(buffers[0]);
  return fs_harness::check(launch, kernel, buffers, number, count > 1 ? words[1] : ".");
}
