// The CPU side of the custom calls "fusionstitch_launch", which runs a kernel image on the
// emulator, and "fusionstitch_load".
//
// Images are shared objects built from generated CUDA-C by the host compiler. The instantiate stage
// of the latter loads all of a module into a process-wide table by key, and its state, which XLA
// destroys with the executable, lets go of them; the former looks there. The same table and launch
// serve ctypes through the fs_emulate_* functions.

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "calls.h"
#include "emulator.h"
#include "held.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

// What no device goes beyond; of what one profile allows, see codegen/launchable.py.
constexpr unsigned kMaxBlock = 1024, kMaxCluster = 16;
constexpr int64_t kMaxShared = 227 << 10;

struct Loaded {
  void* library = nullptr;
  const FsEmulatedImage* image = nullptr;
};

// Never destroyed: XLA may let go of executables while the process ends.
auto& images = *new held::Images<Loaded>;
std::atomic<int> thread_order{0};
std::atomic<uint64_t> thread_seed{0};

// Loads `bytes`. Returns "" or what went wrong. Needs the mutex of `images`.
std::string load(std::string_view bytes, Loaded& loaded) {
  const int file = memfd_create("fusionstitch", MFD_CLOEXEC);
  if (file < 0) return "memfd_create failed: the kernel image cannot be loaded";
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = write(file, bytes.data() + done, bytes.size() - done);
    if (wrote <= 0) {
      close(file);
      return "the kernel image could not be written to memory";
    }
    done += static_cast<size_t>(wrote);
  }
  // dlopen knows libraries by name, and the number of a file is used again after close: a different
  // spelling of the path for each image keeps them apart.
  static size_t number = 0;
  std::string path = "/proc/self/fd/";
  for (size_t n = ++number; n > 0; n >>= 1) path += n & 1 ? "./" : "/";
  path += std::to_string(file);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  close(file);
  if (library == nullptr) return std::string("the kernel image cannot be loaded: ") + dlerror();
  auto* image = static_cast<const FsEmulatedImage*>(dlsym(library, "fs_emulated_image"));
  if (image == nullptr || image->abi != FS_EMULATION_ABI) {
    dlclose(library);
    return "the kernel image was built by another version of fusionstitch; clear its cache";
  }
  image->bind(&fs::Launch::runtime);
  loaded = {library, image};
  return "";
}

// The images of one executable, or of a caller from Python.
class Holder {
 public:
  static ffi::TypeId id;

  Holder() = default;
  Holder(const Holder&) = delete;
  ~Holder() {
    for (const Loaded& last : images.Release(keys_))
      if (last.library != nullptr) dlclose(last.library);
  }

  std::string hold(std::string_view key, std::string_view bytes) {
    std::unique_lock<std::shared_mutex> lock(images.mutex);
    keys_.emplace_back(key);
    Loaded& loaded = images.Hold(key);
    return loaded.library == nullptr ? load(bytes, loaded) : "";
  }

 private:
  std::vector<std::string> keys_;
};

ffi::TypeId Holder::id = {};
const ffi::TypeInfo holder_info = ffi::MakeTypeInfo<Holder>();

std::string launch(std::string_view key, std::string_view entry, const std::vector<void*>& pointers,
                   int64_t grid, int64_t block, int64_t shared, bool cooperative,
                   std::string_view ignoring = "", std::string* barriers = nullptr,
                   std::string* counts = nullptr) {
  const FsEmulatedImage* image = nullptr;
  {
    std::shared_lock<std::shared_mutex> lock(images.mutex);
    if (const Loaded* found = images.Find(key); found != nullptr) image = found->image;
  }
  if (image == nullptr)
    return "no kernel image with the key " + std::string(key) +
           " was loaded: the custom call that carries it is missing from the module";
  const FsEmulatedKernel* end = image->kernels + image->kernel_count;
  const FsEmulatedKernel* kernel = std::find_if(
      image->kernels, end, [&](const FsEmulatedKernel& k) { return entry == k.name; });
  if (kernel == end) return "the kernel image has no kernel named " + std::string(entry);
  if (kernel->parameter_count != pointers.size())
    return "kernel " + std::string(entry) + " takes " + std::to_string(kernel->parameter_count) +
           " buffers, but the call passes " + std::to_string(pointers.size());
  if (grid < 1 || grid > INT32_MAX || block < 1 || block > kMaxBlock || shared < 0 ||
      shared > kMaxShared || kernel->cluster > kMaxCluster)
    return "kernel " + std::string(entry) + " cannot be launched with " + std::to_string(grid) +
           " blocks of " + std::to_string(block) + " threads and " + std::to_string(shared) +
           " bytes of shared memory, in clusters of " + std::to_string(kernel->cluster);
  thread_local fs::StackPool stacks;
  const fs::Geometry geometry{static_cast<unsigned>(grid), static_cast<unsigned>(block),
                              static_cast<size_t>(shared), cooperative};
  fs::Launch launch(*image, *kernel, pointers.data(), geometry,
                    static_cast<fs::Order>(thread_order.load()), thread_seed.load(), stacks);
  launch.ignore(ignoring);
  const std::string error = launch.run();
  if (barriers != nullptr)
    for (const std::string& place : launch.barriers()) *barriers += place + "\n";
  if (counts != nullptr) *counts = launch.counts();
  return error;
}

ffi::Error as_ffi(const std::string& error) {
  return error.empty() ? ffi::Error::Success() : ffi::Error::Internal("fusionstitch: " + error);
}

held::Made<Holder> Instantiate(ffi::Dictionary attributes) {
  held::Made<Holder> made{std::make_unique<Holder>(), ffi::Error::Success()};
  made.error = calls::EachImage(attributes, [&](std::string_view key, std::string_view image, auto&) {
    return as_ffi(made.state->hold(key, image));
  });
  return made;
}

// The loading call has done its work at an earlier stage when it is executed.
ffi::Error Nothing(ffi::RemainingArgs, ffi::RemainingRets, ffi::Dictionary) {
  return ffi::Error::Success();
}

ffi::Error Execute(ffi::RemainingArgs inputs, ffi::RemainingRets outputs, std::string_view key,
                   std::string_view entry, int64_t grid, int64_t block, int64_t shared,
                   int64_t cooperative) try {
  std::vector<void*> pointers;
  ffi::Error error = calls::Addresses(inputs, outputs, pointers);
  if (error.failure()) return error;
  return as_ffi(launch(key, entry, pointers, grid, block, shared, cooperative != 0));
} catch (const std::exception& error) {
  return ffi::Error::Internal(std::string("fusionstitch: ") + error.what());
}

// Copies `error` into the caller's buffer; 0 means success.
int report(const std::string& error, char* text, size_t size) {
  if (size > 0) snprintf(text, size, "%s", error.c_str());
  return error.empty() ? 0 : 1;
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(fs_load, Instantiate, ffi::Ffi::BindInstantiate().Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fs_nothing, Nothing, calls::Ignoring(ffi::Ffi::Bind()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(fs_launch, Execute,
                              calls::Launching(ffi::Ffi::Bind().RemainingArgs().RemainingRets()));

extern "C" {

void fs_emulate_set_order(int order, uint64_t seed) {
  thread_order = order;
  thread_seed = seed;
}

XLA_FFI_TypeId* fs_state_id() { return &Holder::id; }
const XLA_FFI_TypeInfo* fs_state_info() { return &holder_info; }

// How many images are loaded. For tests.
size_t fs_image_count() { return images.size(); }

// Holds an image until fs_emulate_release is called for *holder, also where this fails.
int fs_emulate_hold(const char* key, const char* image, size_t size, void** holder, char* error,
                    size_t error_size) {
  auto* made = new Holder;
  *holder = made;
  return report(made->hold(key, std::string_view(image, size)), error, error_size);
}

void fs_emulate_release(void* holder) { delete static_cast<Holder*>(holder); }

int fs_emulate_launch(const char* key, const char* entry, void** pointers, size_t count,
                      int64_t grid, int64_t block, int64_t shared, int cooperative,
                      const char* ignoring, char* barriers, size_t barriers_size, char* counts,
                      size_t counts_size, char* error, size_t error_size) {
  std::string met, counted;
  const std::string found =
      launch(key, entry, std::vector<void*>(pointers, pointers + count), grid, block, shared,
             cooperative != 0, ignoring, &met, &counted);
  report(met, barriers, barriers_size);
  report(counted, counts, counts_size);
  return report(found, error, error_size);
}
}
