// The custom calls on CUDA: "fusionstitch_launch" launches the kernel that its attributes name, which
// "fusionstitch_load" has loaded, once in a module, from the images in its own. The latter's state,
// which XLA destroys with the executable, holds the images: what no executable holds is unloaded.
//
// Driver API only, and libcuda is opened at run time: the few types and functions in use are
// declared here, so that neither the CUDA toolkit nor a link dependency is needed to compile this.
// No handler synchronises, allocates device memory or takes Python's lock, so XLA may capture
// every launch into its command buffers.
#include <dlfcn.h>

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "calls.h"
#include "held.h"
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
using Graph = struct GraphTag*;
using GraphNode = struct GraphNodeTag*;

// CUlaunchAttribute, CUlaunchConfig and the constants are laid out as cuda.h lays them out.
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
constexpr int kStreamCaptureModeRelaxed = 2;
constexpr int kStreamCaptures = 1;
// CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE and _END
void* const kParameters = reinterpret_cast<void*>(1);
void* const kParameterBytes = reinterpret_cast<void*>(2);
void* const kParametersEnd = nullptr;

struct Driver {
  std::string missing;  // why the driver cannot be used; empty when it can
  Status (*ErrorName)(Status, const char**);
  Status (*LoadLibrary)(Library*, const void*, void*, void**, unsigned, void*, void**, unsigned);
  Status (*UnloadLibrary)(Library);
  Status (*GetKernel)(Kernel*, Library, const char*);
  Status (*GetFunction)(Function*, Kernel);
  Status (*SetAttribute)(int, int, Kernel, Device);
  Status (*StreamContext)(Stream, Context*);
  Status (*PushContext)(Context);
  Status (*PopContext)(Context*);
  Status (*ContextDevice)(Device*);
  Status (*Synchronize)();
  Status (*ExchangeCaptureMode)(int*);
  Status (*CaptureInfo)(Stream, int*, uint64_t*, Graph*, const GraphNode**, size_t*);
  Status (*AddEmptyNode)(GraphNode*, Graph, const GraphNode*, size_t);
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
    Find(handle, "cuLibraryUnload", UnloadLibrary);
    Find(handle, "cuLibraryGetKernel", GetKernel);
    Find(handle, "cuKernelGetFunction", GetFunction);
    Find(handle, "cuKernelSetAttribute", SetAttribute);
    Find(handle, "cuStreamGetCtx", StreamContext);
    Find(handle, "cuCtxPushCurrent_v2", PushContext);
    Find(handle, "cuCtxPopCurrent_v2", PopContext);
    Find(handle, "cuCtxGetDevice", ContextDevice);
    Find(handle, "cuCtxSynchronize", Synchronize);
    Find(handle, "cuThreadExchangeStreamCaptureMode", ExchangeCaptureMode);
    Find(handle, "cuStreamGetCaptureInfo_v2", CaptureInfo);
    Find(handle, "cuGraphAddEmptyNode", AddEmptyNode);
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

// ---- images and kernels, one table for the whole process ----------------------------------------

struct Loaded {
  Kernel kernel = nullptr;
  // Bytes of dynamic shared memory it may be launched with, in each context it is ready in.
  std::map<Context, int64_t> allowed;
};

struct Image {
  Library library = nullptr;
  std::map<std::string, Loaded, std::less<>> kernels;  // by name
};

// Never destroyed: XLA may let go of executables while the process ends.
auto& images = *new held::Images<Image>;

ffi::Error Failed(const char* call, Status status, std::string_view whose) {
  const char* name = nullptr;
  TheDriver().ErrorName(status, &name);
  return ffi::Error::Internal("fusionstitch: " + std::string(call) + " failed for " +
                              std::string(whose) + ": " + (name ? name : "unknown error"));
}

ffi::Error FailedFor(const char* call, Status status, std::string_view kernel) {
  return Failed(call, status, "kernel " + std::string(kernel));
}

ffi::Error Missing(std::string_view key) {
  return ffi::Error::Internal("fusionstitch: no image was registered for key " + std::string(key) +
                              "; compile the program again without its cached executable");
}

// ---- images -------------------------------------------------------------------------------------

// Whether the `count` parts of `size` bytes from `offset` on lie within `image`.
bool Within(std::string_view image, uint64_t offset, uint64_t size, uint64_t count = 1) {
  return offset <= image.size() && (count == 0 || size <= (image.size() - offset) / count);
}

// Part `number` of a table that lies within the image.
template <typename Part>
Part PartOf(std::string_view image, uint64_t offset, uint64_t size, uint64_t number) {
  Part part;
  std::memcpy(&part, image.data() + offset + number * size, sizeof(Part));
  return part;
}

// Whether an image is an ELF file with all that its headers speak of, as images.py asks where one
// is built. The driver is told no length: of an image that was cut short it reads what lies behind.
bool IsWhole(std::string_view image) {
  if (image.size() < sizeof(Elf64_Ehdr)) return false;
  const auto header = PartOf<Elf64_Ehdr>(image, 0, 0, 0);
  const unsigned char* ident = header.e_ident;
  if (std::memcmp(ident, ELFMAG, SELFMAG) != 0 || ident[EI_CLASS] != ELFCLASS64 ||
      ident[EI_DATA] != ELFDATA2LSB || header.e_shnum == 0 ||
      header.e_shentsize < sizeof(Elf64_Shdr) ||
      !Within(image, header.e_shoff, header.e_shentsize, header.e_shnum) ||
      !Within(image, header.e_phoff, header.e_phentsize, header.e_phnum)) {
    return false;
  }
  for (uint64_t i = 0; i < header.e_shnum; i++) {
    const auto section = PartOf<Elf64_Shdr>(image, header.e_shoff, header.e_shentsize, i);
    if (section.sh_type == SHT_NOBITS) continue;
    if (!Within(image, section.sh_offset, section.sh_size)) return false;
  }
  return true;
}

// ---- what holds images ---------------------------------------------------------------------------

// Unloads images that nobody holds any more, and whose last launches are done: XLA destroys command
// buffers with the executable, but does not say that it waited for the streams. Where a context
// cannot be waited for, its images stay until the next are unloaded.
void Unload(std::vector<Image> last) {
  static std::mutex mutex;
  static auto& staying = *new std::vector<Image>;
  const Driver& driver = TheDriver();
  std::lock_guard<std::mutex> lock(mutex);
  for (Image& image : last) {
    if (image.library != nullptr) staying.push_back(std::move(image));
  }
  if (staying.empty()) return;
  // Neither waiting nor unloading may end a capture that goes on in this thread or another.
  int mode = kStreamCaptureModeRelaxed;
  if (driver.ExchangeCaptureMode(&mode) != 0) return;
  std::map<Context, bool> idle;
  auto is_idle = [&](Context context) {
    auto [found, first] = idle.try_emplace(context, false);
    if (first && driver.PushContext(context) == 0) {
      found->second = driver.Synchronize() == 0;
      Context popped = nullptr;
      driver.PopContext(&popped);
    }
    return found->second;
  };
  std::vector<Image> busy;
  for (Image& image : staying) {
    bool done = true;
    for (const auto& [name, loaded] : image.kernels) {
      for (const auto& [context, shared] : loaded.allowed) done = done && is_idle(context);
    }
    if (done) {
      driver.UnloadLibrary(image.library);
    } else {
      busy.push_back(std::move(image));
    }
  }
  staying = std::move(busy);
  driver.ExchangeCaptureMode(&mode);
}

// One executable's hold on its images.
class Program {
 public:
  static ffi::TypeId id;

  std::set<Context> ready;  // where all of its kernels are; guarded by the mutex of the images

  Program() = default;
  Program(const Program&) = delete;
  ~Program() { Unload(images.Release(keys_)); }

  // Needs the mutex of the images for this thread alone.
  ffi::Error Hold(const ffi::Dictionary& attributes) {
    return calls::EachImage(attributes, [&](std::string_view key, std::string_view, const auto&) {
      keys_.emplace_back(key);
      images.Hold(key);
      return ffi::Error::Success();
    });
  }

 private:
  std::vector<std::string> keys_;
};

ffi::TypeId Program::id = {};
const ffi::TypeInfo program_info = ffi::MakeTypeInfo<Program>();

// The programs of executables without a state, by bundle, for the rest of the process. XLA keeps the
// state of no executable in its persistent cache: it instantiates the call of such a one again, but
// not where the executable was written by a launcher that made no state.
std::map<std::string, Program, std::less<>>& Lasting() {
  static auto* programs = new std::map<std::string, Program, std::less<>>;
  return *programs;
}

// ---- stage: instantiate -------------------------------------------------------------------------

// Runs where the executable is made, in no context: what it holds is loaded later.
held::Made<Program> Instantiate(ffi::Dictionary attributes) {
  auto program = std::make_unique<Program>();
  std::unique_lock<std::shared_mutex> lock(images.mutex);
  ffi::Error error = program->Hold(attributes);
  lock.unlock();
  return {std::move(program), std::move(error)};
}

// ---- stage: initialize --------------------------------------------------------------------------

// Finds the kernel `name` in the image of these `bytes`, which is loaded first if need be.
ffi::Error FindKernel(const Driver& driver, std::string_view bytes, const std::string& name,
                      Image& image, Loaded& loaded) {
  if (image.library == nullptr) {
    if (!IsWhole(bytes)) {
      return ffi::Error::Internal("fusionstitch: the code of kernel " + name +
                                  " is no cubin, or was cut short");
    }
    Status status = driver.LoadLibrary(&image.library, bytes.data(), nullptr, nullptr, 0, nullptr,
                                       nullptr, 0);
    if (status != 0) {
      image.library = nullptr;
      return FailedFor("cuLibraryLoadData", status, name);
    }
  }
  if (loaded.kernel != nullptr) return ffi::Error::Success();
  Status status = driver.GetKernel(&loaded.kernel, image.library, name.c_str());
  if (status == 0) return ffi::Error::Success();
  loaded.kernel = nullptr;
  return FailedFor("cuLibraryGetKernel", status, name);
}

// Loads the code into the stream's context now, not lazily at the first launch, which may be inside
// a capture; and opts in to large dynamic shared memory on the context's device.
ffi::Error Prepare(const Driver& driver, Context context, Kernel kernel, std::string_view name,
                   int64_t shared) {
  Status status = driver.PushContext(context);
  if (status != 0) return FailedFor("cuCtxPushCurrent", status, name);
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
  return status == 0 ? ffi::Error::Success() : FailedFor(call, status, name);
}

// Makes the kernels of an image ready in a context: `parts` have the dynamic shared memory of each.
ffi::Error LoadImage(const Driver& driver, Context context, std::string_view key,
                     std::string_view bytes, const ffi::Dictionary& parts) {
  auto kernels = parts.get<ffi::Dictionary>("kernels");
  if (!kernels.has_value()) return kernels.error();
  Image* found = images.Find(key);
  if (found == nullptr) return Missing(key);
  Image& image = *found;
  for (auto it = kernels->begin(); it != kernels->end(); ++it) {
    auto shared = kernels->get<int64_t>(*it);
    if (!shared.has_value()) return shared.error();
    const std::string name(*it);
    Loaded& loaded = image.kernels[name];
    auto ready = loaded.allowed.find(context);
    if (ready != loaded.allowed.end() && ready->second >= *shared) continue;
    ffi::Error error = FindKernel(driver, bytes, name, image, loaded);
    if (error.success()) error = Prepare(driver, context, loaded.kernel, name, *shared);
    if (error.failure()) return error;
    loaded.allowed[context] = *shared;
  }
  return ffi::Error::Success();
}

// XLA initializes all calls of a program, loops and branches included, before it executes any, each
// time it runs: the program knows where it is ready, so that this costs little. `bundle` names what
// is brought.
ffi::Error Load(Stream stream, Program* program, ffi::Dictionary attributes) {
  const Driver& driver = TheDriver();
  if (!driver.missing.empty()) return ffi::Error::Internal("fusionstitch: " + driver.missing);
  auto bundle = attributes.get<std::string_view>("bundle");
  if (!bundle.has_value()) return bundle.error();
  Context context = nullptr;
  if (Status status = driver.StreamContext(stream, &context); status != 0) {
    return Failed("cuStreamGetCtx", status, "all kernels");
  }
  {
    std::shared_lock<std::shared_mutex> lock(images.mutex);
    if (program == nullptr) {
      auto found = Lasting().find(*bundle);
      if (found != Lasting().end()) program = &found->second;
    }
    if (program != nullptr && program->ready.count(context) > 0) return ffi::Error::Success();
  }
  std::unique_lock<std::shared_mutex> lock(images.mutex);
  if (program == nullptr) {
    auto [found, first] = Lasting().try_emplace(std::string(*bundle));
    program = &found->second;
    ffi::Error error = first ? program->Hold(attributes) : ffi::Error::Success();
    if (error.failure()) return error;
  }
  ffi::Error error = calls::EachImage(
      attributes, [&](std::string_view key, std::string_view bytes, const auto& parts) {
        return LoadImage(driver, context, key, bytes, parts);
      });
  if (error.success()) program->ready.insert(context);
  return error;
}

// ---- stage: execute -----------------------------------------------------------------------------

// The loading call has done its work when it is executed. Where it stands among launches it is one
// of XLA's command buffer, as it would end that otherwise: captured it leaves an empty node, because
// XLA takes a capture of nothing for an error.
ffi::Error Nothing(Stream stream, ffi::RemainingArgs, ffi::RemainingRets, ffi::Dictionary) {
  const Driver& driver = TheDriver();
  if (!driver.missing.empty()) return ffi::Error::Internal("fusionstitch: " + driver.missing);
  int capturing = 0;
  uint64_t id = 0;
  Graph graph = nullptr;
  const GraphNode* before = nullptr;
  size_t count = 0;
  Status status = driver.CaptureInfo(stream, &capturing, &id, &graph, &before, &count);
  if (status != 0) return Failed("cuStreamGetCaptureInfo", status, "all kernels");
  if (capturing != kStreamCaptures) return ffi::Error::Success();
  GraphNode node = nullptr;
  status = driver.AddEmptyNode(&node, graph, before, count);
  return status == 0 ? ffi::Error::Success() : Failed("cuGraphAddEmptyNode", status, "all kernels");
}

ffi::Error Launch(Stream stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                  std::string_view key, std::string_view name, int64_t grid, int64_t block,
                  int64_t shared, int64_t cooperative) {
  Kernel kernel = nullptr;
  {
    std::shared_lock<std::shared_mutex> lock(images.mutex);
    const Image* image = images.Find(key);
    if (image == nullptr) return Missing(key);
    auto loaded = image->kernels.find(name);
    if (loaded != image->kernels.end()) kernel = loaded->second.kernel;
    if (kernel == nullptr) return Missing(key);
  }
  std::vector<void*> pointers;
  ffi::Error error = calls::Addresses(args, rets, pointers);
  if (error.failure()) return error;
  // All parameters are pointers, one behind the other as the kernel takes them: handed over as they
  // are, the driver copies them at once; of an array of addresses it copies each by itself, but a
  // cooperative launch takes nothing else.
  size_t bytes = pointers.size() * sizeof(void*);
  void* packed[] = {kParameters, pointers.data(), kParameterBytes, &bytes, kParametersEnd};
  std::vector<void*> each;
  if (cooperative != 0) {
    for (void*& pointer : pointers) each.push_back(&pointer);
  }

  LaunchAttribute attribute = {};
  attribute.id = kLaunchAttributeCooperative;
  attribute.value.cooperative = 1;
  LaunchConfig config = {};
  config.grid_x = static_cast<unsigned>(grid);
  config.block_x = static_cast<unsigned>(block);
  config.grid_y = config.grid_z = config.block_y = config.block_z = 1;
  config.shared_bytes = static_cast<unsigned>(shared);
  config.stream = stream;
  config.attributes = &attribute;
  config.attribute_count = cooperative != 0 ? 1 : 0;
  // A kernel handle stands for its function in the context of the stream.
  Status status = TheDriver().Launch(&config, reinterpret_cast<Function>(kernel),
                                     cooperative != 0 ? each.data() : nullptr,
                                     cooperative != 0 ? nullptr : packed);
  return status == 0 ? ffi::Error::Success() : FailedFor("cuLaunchKernelEx", status, name);
}

}  // namespace

extern "C" {

XLA_FFI_TypeId* fs_state_id() { return &Program::id; }
const XLA_FFI_TypeInfo* fs_state_info() { return &program_info; }

// For tests: how many images are held, and whether one is all there.
size_t fs_image_count() { return images.size(); }
bool fs_is_whole(const char* image, size_t size) { return IsWhole(std::string_view(image, size)); }
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(fs_launch, Launch,
                              calls::Launching(ffi::Ffi::Bind()
                                                   .Ctx<ffi::PlatformStream<Stream>>()
                                                   .RemainingArgs()
                                                   .RemainingRets()),
                              {ffi::Traits::kCmdBufferCompatible});
XLA_FFI_DEFINE_HANDLER_SYMBOL(fs_hold, Instantiate, ffi::Ffi::BindInstantiate().Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fs_load, Load,
                              ffi::Ffi::BindInitialize()
                                  .Ctx<ffi::PlatformStream<Stream>>()
                                  .Ctx<held::State<Program>>()
                                  .Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fs_nothing, Nothing,
                              calls::Ignoring(ffi::Ffi::Bind().Ctx<ffi::PlatformStream<Stream>>()),
                              {ffi::Traits::kCmdBufferCompatible});
