// The custom call "fusionstitch_launch" on CUDA: launches the kernel that its attributes carry.
//
// Driver API only, and libcuda is opened at run time: the few types and functions in use are
// declared here, so that neither the CUDA toolkit nor a link dependency is needed to compile this.
// No handler synchronises, allocates device memory or takes Python's lock, so XLA may capture
// every call into its command buffers.
#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

// ---- the driver ---------------------------------------------------------------------------------

using Status = int;  // CUresult, 0 for success
using Device = int;
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Library = struct LibraryTag*;
using Kernel = struct KernelTag*;
using Function = struct FunctionTag*;

// CUlaunchAttribute, CUlaunchConfig and the two constants are laid out as cuda.h lays them out.
struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    int cooperative;
  } value;
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56, "as in cuda.h");
constexpr int kLaunchAttributeCooperative = 2;
constexpr int kMaxDynamicSharedBytes = 8;

struct Driver {
  std::string missing;  // why the driver cannot be used; empty when it can
  Status (*ErrorName)(Status, const char**);
  Status (*LoadLibrary)(Library*, const void*, void*, void**, unsigned, void*, void**, unsigned);
  Status (*GetKernel)(Kernel*, Library, const char*);
  Status (*GetFunction)(Function*, Kernel);
  Status (*SetAttribute)(int, int, Kernel, Device);
  Status (*StreamContext)(Stream, Context*);
  Status (*PushContext)(Context);
  Status (*PopContext)(Context*);
  Status (*ContextDevice)(Device*);
  Status (*Launch)(const LaunchConfig*, Function, void**, void**);
  Status (*LoadFunction)(Function);  // null before CUDA 12.4

  Driver() {
    void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      missing = "libcuda.so.1 cannot be opened";
      return;
    }
    Find(handle, "cuGetErrorName", ErrorName);
    Find(handle, "cuLibraryLoadData", LoadLibrary);
    Find(handle, "cuLibraryGetKernel", GetKernel);
    Find(handle, "cuKernelGetFunction", GetFunction);
    Find(handle, "cuKernelSetAttribute", SetAttribute);
    Find(handle, "cuStreamGetCtx", StreamContext);
    Find(handle, "cuCtxPushCurrent_v2", PushContext);
    Find(handle, "cuCtxPopCurrent_v2", PopContext);
    Find(handle, "cuCtxGetDevice", ContextDevice);
    Find(handle, "cuLaunchKernelEx", Launch);
    LoadFunction = reinterpret_cast<Status (*)(Function)>(dlsym(handle, "cuFuncLoad"));
  }

  template <typename F>
  void Find(void* handle, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(handle, name));
    if (function == nullptr) missing = std::string("the CUDA driver lacks ") + name;
  }
};

const Driver& TheDriver() {
  static const Driver* driver = new Driver;
  return *driver;
}

// ---- what a custom call carries -----------------------------------------------------------------

struct Call {
  std::string_view key, image, entry;
  int64_t grid, block, shared, cooperative;
};

}  // namespace

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(Call, ffi::StructMember<std::string_view>("key"),
                                      ffi::StructMember<std::string_view>("image"),
                                      ffi::StructMember<std::string_view>("entry"),
                                      ffi::StructMember<int64_t>("grid"),
                                      ffi::StructMember<int64_t>("block"),
                                      ffi::StructMember<int64_t>("shared"),
                                      ffi::StructMember<int64_t>("cooperative"));

namespace {

// ---- images and kernels, one table for the whole process ----------------------------------------

struct Entry {
  std::string image;
  Library library = nullptr;
  std::map<std::string, Kernel, std::less<>> kernels;      // by entry name
  std::map<std::pair<Context, Kernel>, int64_t> prepared;  // dynamic shared bytes allowed there
};

std::shared_mutex table_mutex;

std::map<std::string, Entry, std::less<>>& Table() {
  static auto* table = new std::map<std::string, Entry, std::less<>>;
  return *table;
}

ffi::Error Failed(const char* call, Status status, std::string_view entry) {
  const char* name = nullptr;
  TheDriver().ErrorName(status, &name);
  return ffi::Error::Internal("fusionstitch: " + std::string(call) + " failed for kernel " +
                              std::string(entry) + ": " + (name ? name : "unknown error"));
}

ffi::Error Missing(std::string_view key) {
  return ffi::Error::Internal("fusionstitch: no image was registered for key " + std::string(key) +
                              "; compile the program again without its cached executable");
}

// ---- stage: instantiate -------------------------------------------------------------------------

// Only the first call with a key in a module brings the image; XLA instantiates all calls of a
// module before it executes any.
ffi::Error Instantiate(Call call) {
  if (call.image.empty()) return ffi::Error::Success();
  std::unique_lock<std::shared_mutex> lock(table_mutex);
  Entry& entry = Table()[std::string(call.key)];
  if (entry.image.empty()) entry.image = call.image;
  return ffi::Error::Success();
}

// ---- stage: initialize --------------------------------------------------------------------------

// The kernel of the table, loaded if this is its first use. Holds: table_mutex, exclusively.
ffi::Error Load(const Driver& driver, Entry& entry, std::string_view name, Kernel& kernel) {
  if (entry.library == nullptr) {
    Status status = driver.LoadLibrary(&entry.library, entry.image.data(), nullptr, nullptr, 0,
                                       nullptr, nullptr, 0);
    if (status != 0) {
      entry.library = nullptr;
      return Failed("cuLibraryLoadData", status, name);
    }
  }
  auto found = entry.kernels.find(name);
  if (found == entry.kernels.end()) {
    Kernel loaded = nullptr;
    Status status = driver.GetKernel(&loaded, entry.library, std::string(name).c_str());
    if (status != 0) return Failed("cuLibraryGetKernel", status, name);
    found = entry.kernels.emplace(std::string(name), loaded).first;
  }
  kernel = found->second;
  return ffi::Error::Success();
}

// Loads the code into the stream's context now, not lazily at the first launch, which may be inside
// a capture; and opts in to large dynamic shared memory on the context's device.
ffi::Error Prepare(const Driver& driver, Context context, Kernel kernel, std::string_view name,
                   int64_t shared) {
  Status status = driver.PushContext(context);
  if (status != 0) return Failed("cuCtxPushCurrent", status, name);
  const char* call = "cuCtxGetDevice";
  Device device = 0;
  Function function = nullptr;
  status = driver.ContextDevice(&device);
  if (status == 0) {
    call = "cuKernelSetAttribute";
    if (shared > 0) {
      status = driver.SetAttribute(kMaxDynamicSharedBytes, static_cast<int>(shared), kernel, device);
    }
  }
  if (status == 0) {
    call = "cuKernelGetFunction";
    status = driver.GetFunction(&function, kernel);
  }
  if (status == 0 && driver.LoadFunction != nullptr) {
    call = "cuFuncLoad";
    status = driver.LoadFunction(function);
  }
  Context popped = nullptr;
  driver.PopContext(&popped);
  return status == 0 ? ffi::Error::Success() : Failed(call, status, name);
}

ffi::Error Initialize(Stream stream, Call call) {
  const Driver& driver = TheDriver();
  if (!driver.missing.empty()) return ffi::Error::Internal("fusionstitch: " + driver.missing);
  Context context = nullptr;
  if (Status status = driver.StreamContext(stream, &context); status != 0) {
    return Failed("cuStreamGetCtx", status, call.entry);
  }
  {
    std::shared_lock<std::shared_mutex> lock(table_mutex);
    auto found = Table().find(call.key);
    if (found == Table().end()) return Missing(call.key);
    auto kernel = found->second.kernels.find(call.entry);
    if (kernel != found->second.kernels.end()) {
      auto done = found->second.prepared.find({context, kernel->second});
      if (done != found->second.prepared.end() && done->second >= call.shared) {
        return ffi::Error::Success();
      }
    }
  }
  std::unique_lock<std::shared_mutex> lock(table_mutex);
  Entry& found = Table().find(call.key)->second;
  Kernel kernel = nullptr;
  if (ffi::Error error = Load(driver, found, call.entry, kernel); error.failure()) return error;
  auto done = found.prepared.find({context, kernel});
  if (done != found.prepared.end() && done->second >= call.shared) return ffi::Error::Success();
  ffi::Error error = Prepare(driver, context, kernel, call.entry, call.shared);
  if (error.success()) found.prepared[{context, kernel}] = call.shared;
  return error;
}

// ---- stage: execute -----------------------------------------------------------------------------

ffi::Error Execute(Stream stream, ffi::RemainingArgs args, ffi::RemainingRets rets, Call call) {
  Kernel kernel = nullptr;
  {
    std::shared_lock<std::shared_mutex> lock(table_mutex);
    auto found = Table().find(call.key);
    if (found == Table().end()) return Missing(call.key);
    auto loaded = found->second.kernels.find(call.entry);
    if (loaded == found->second.kernels.end()) return Missing(call.key);
    kernel = loaded->second;
  }
  std::vector<void*> pointers;
  pointers.reserve(args.size() + rets.size());
  for (size_t i = 0; i < args.size(); i++) {
    auto buffer = args.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    pointers.push_back(buffer->untyped_data());
  }
  for (size_t i = 0; i < rets.size(); i++) {
    auto buffer = rets.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    pointers.push_back((*buffer)->untyped_data());
  }
  std::vector<void*> parameters;
  parameters.reserve(pointers.size());
  for (void*& pointer : pointers) parameters.push_back(&pointer);

  LaunchAttribute attribute = {};
  attribute.id = kLaunchAttributeCooperative;
  attribute.value.cooperative = 1;
  LaunchConfig config = {};
  config.grid_x = static_cast<unsigned>(call.grid);
  config.block_x = static_cast<unsigned>(call.block);
  config.grid_y = config.grid_z = config.block_y = config.block_z = 1;
  config.shared_bytes = static_cast<unsigned>(call.shared);
  config.stream = stream;
  config.attributes = &attribute;
  config.attribute_count = call.cooperative != 0 ? 1 : 0;
  // A kernel handle stands for its function in the context of the stream.
  Status status = TheDriver().Launch(&config, reinterpret_cast<Function>(kernel),
                                     parameters.data(), nullptr);
  return status == 0 ? ffi::Error::Success() : Failed("cuLaunchKernelEx", status, call.entry);
}

}  // namespace

// XLA wants the trait on every stage of a target that it may capture.
XLA_FFI_DEFINE_HANDLER_SYMBOL(FusionStitchInstantiate, Instantiate,
                              ffi::Ffi::BindInstantiate().Attrs<Call>(),
                              {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    FusionStitchInitialize, Initialize,
    ffi::Ffi::BindInitialize().Ctx<ffi::PlatformStream<Stream>>().Attrs<Call>(),
    {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(FusionStitchExecute, Execute,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<Stream>>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attrs<Call>(),
                              {ffi::Traits::kCmdBufferCompatible});
