// A CUDA driver that does nothing, counts its calls and fails on demand: stands for libcuda.so.1.
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {
std::mutex mutex;
std::map<std::string, int> counts, failures;
std::vector<const void*> launched;  // the parameters of the last launch
std::string written;                // what was waited for and unloaded, in order
long context_of_streams = 4, libraries = 0;
thread_local long current = 0;
int capturing = 0;

// As cuda.h lays it out.
struct LaunchConfig {
  unsigned extents[7];
  void *stream, *attributes;
  unsigned attribute_count;
};
constexpr int kParameters = 3;  // of every kernel here

int called(const char* name) {
  std::lock_guard<std::mutex> lock(mutex);
  counts[name]++;
  auto found = failures.find(name);
  return found == failures.end() ? 0 : found->second;
}

void note(const char* what, long which) {
  std::lock_guard<std::mutex> lock(mutex);
  written += std::string(what) + " " + std::to_string(which) + "\n";
}

template <typename T>
int give(const char* name, T** out, long value) {
  const int status = called(name);
  if (status == 0) *out = reinterpret_cast<T*>(value);
  return status;
}
}  // namespace

extern "C" {
void fake_fail(const char* name, int status) {
  std::lock_guard<std::mutex> lock(mutex);
  failures.clear();
  if (status != 0) failures[name] = status;
}
int fake_launched(const void** pointers, int most) {
  for (int i = 0; i < most && i < static_cast<int>(launched.size()); i++) pointers[i] = launched[i];
  return static_cast<int>(launched.size());
}
void fake_context(long context) { context_of_streams = context; }
// Takes what was waited for and unloaded since the last call.
void fake_written(char* text, size_t size) {
  std::lock_guard<std::mutex> lock(mutex);
  snprintf(text, size, "%s", written.c_str());
  written.clear();
}
int fake_count(const char* name) {
  std::lock_guard<std::mutex> lock(mutex);
  return counts[name];
}

int cuGetErrorName(int status, const char** name) {
  static const std::map<int, const char*> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"},      {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {200, "CUDA_ERROR_INVALID_IMAGE"},    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {500, "CUDA_ERROR_NOT_FOUND"},        {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
      {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"}};
  auto found = names.find(status);
  *name = found == names.end() ? nullptr : found->second;
  return found == names.end() ? 1 : 0;
}
int cuLibraryLoadData(void** library, const void*, void*, void**, unsigned, void*, void**,
                      unsigned) {
  std::unique_lock<std::mutex> lock(mutex);
  const long number = ++libraries;
  lock.unlock();
  return give("cuLibraryLoadData", library, number);
}
int cuLibraryUnload(void* library) {
  const int status = called("cuLibraryUnload");
  note("unload", reinterpret_cast<long>(library));
  return status;
}
int cuCtxSynchronize() {
  const int status = called("cuCtxSynchronize");
  if (status == 0) note("wait", current);
  return status;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int now = 0;
  std::swap(now, *mode);
  note("mode", now);
  return called("cuThreadExchangeStreamCaptureMode");
}
int cuLibraryGetKernel(void** kernel, void*, const char*) {
  return give("cuLibraryGetKernel", kernel, 2);
}
int cuKernelGetFunction(void** function, void*) { return give("cuKernelGetFunction", function, 3); }
int cuKernelSetAttribute(int, int, void*, int) { return called("cuKernelSetAttribute"); }
int cuStreamGetCtx(void*, void** context) {
  return give("cuStreamGetCtx", context, context_of_streams);
}
int cuCtxPushCurrent_v2(void* context) {
  current = reinterpret_cast<long>(context);
  return called("cuCtxPushCurrent");
}
int cuCtxPopCurrent_v2(void** context) { return give("cuCtxPopCurrent", context, 4); }
int cuCtxGetDevice(int* device) {
  *device = 0;
  return called("cuCtxGetDevice");
}
void fake_capturing(int whether) { capturing = whether; }
int cuStreamGetCaptureInfo_v2(void*, int* status, uint64_t*, void** graph, const void***,
                              size_t* count) {
  *status = capturing;
  *count = 0;
  return give("cuStreamGetCaptureInfo", graph, 5);
}
int cuGraphAddEmptyNode(void** node, void* graph, const void**, size_t count) {
  if (graph != reinterpret_cast<void*>(5) || count != 0) return 1;
  return give("cuGraphAddEmptyNode", node, 6);
}
#ifndef LACKING
int cuLaunchKernelEx(const LaunchConfig* config, void*, void** each, void** packed) {
  const int status = called("cuLaunchKernelEx");
  const bool cooperative = config->attribute_count == 1;
  if (status != 0 || cooperative != (each != nullptr) || cooperative == (packed != nullptr)) {
    return status != 0 ? status : 1;
  }
  launched.clear();
  for (int i = 0; cooperative && i < kParameters; i++) {
    launched.push_back(*static_cast<void**>(each[i]));
  }
  if (cooperative) return 0;
  // cuda.h: 1 leads to the parameters, 2 to their bytes, null is the end
  if (packed[0] != reinterpret_cast<void*>(1) || packed[2] != reinterpret_cast<void*>(2) ||
      packed[4] != nullptr) {
    return 1;
  }
  const void* const* pointers = static_cast<void**>(packed[1]);
  launched.assign(pointers, pointers + *static_cast<size_t*>(packed[3]) / sizeof(void*));
  return 0;
}
#endif
int cuFuncLoad(void*) { return called("cuFuncLoad"); }
}
