// Calls an XLA FFI handler as XLA does, without XLA: builds the call frame that the C API describes.
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "xla/ffi/api/c_api.h"

struct XLA_FFI_Error {
  std::string message;
};

namespace {

XLA_FFI_Error* error_create(XLA_FFI_Error_Create_Args* args) {
  return new XLA_FFI_Error{args->message};
}
void error_destroy(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }
XLA_FFI_Error* stream_get(XLA_FFI_Stream_Get_Args* args) {
  args->stream = reinterpret_cast<void*>(8);
  return nullptr;
}

// What XLA keeps between the stages of a call stands where it has a context.
XLA_FFI_Error* state_set(XLA_FFI_State_Set_Args* args) {
  *reinterpret_cast<void**>(args->ctx) = args->state;
  return nullptr;
}
XLA_FFI_Error* state_get(XLA_FFI_State_Get_Args* args) {
  args->state = args->ctx == nullptr ? nullptr : *reinterpret_cast<void**>(args->ctx);
  return args->state == nullptr ? new XLA_FFI_Error{"State is not set"} : nullptr;
}

// Attributes by name, as XLA hands them over: ascending. What is added must outlive this.
class Attributes {
 public:
  void Add(const char* name, int64_t& number) {
    scalars_.push_back({XLA_FFI_DataType_S64, &number});
    values_[name] = {XLA_FFI_AttrType_SCALAR, &scalars_.back()};
  }
  void Add(const char* name, const char* text, size_t size) {
    strings_.push_back({text, size});
    values_[name] = {XLA_FFI_AttrType_STRING, &strings_.back()};
  }
  void Add(const char* name, const char* text) { Add(name, text, strlen(text)); }
  void Add(const char* name, XLA_FFI_Attrs* inner) {
    values_[name] = {XLA_FFI_AttrType_DICTIONARY, inner};
  }
  // To be called once, when all have been added.
  XLA_FFI_Attrs* Finished() {
    for (auto& [name, value] : values_) {
      strings_.push_back({name.data(), name.size()});
      names_.push_back(&strings_.back());
      types_.push_back(value.first);
      attrs_.push_back(value.second);
    }
    all_ = {};
    all_.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
    all_.size = static_cast<int64_t>(values_.size());
    all_.types = types_.data();
    all_.names = names_.data();
    all_.attrs = attrs_.data();
    return &all_;
  }

 private:
  std::map<std::string, std::pair<XLA_FFI_AttrType, void*>> values_;
  std::deque<XLA_FFI_Scalar> scalars_;
  std::deque<XLA_FFI_ByteSpan> strings_;
  std::vector<XLA_FFI_ByteSpan*> names_;
  std::vector<XLA_FFI_AttrType> types_;
  std::vector<void*> attrs_;
  XLA_FFI_Attrs all_;
};

}  // namespace

// Returns 0, or 1 with the handler's error in `text`. `buffers` are addresses of inputs and outputs.
// With a `bundle` the call loads `image` under `key` and under `other`, another key or null. The
// instantiate stage sets `state`, which other stages get; null for a call without one.
extern "C" int host_call(XLA_FFI_Handler* handler, int stage, const char* key, const char* bundle,
                         const char* other, const char* image, size_t image_size,
                         const char* entry, int64_t shared, int64_t cooperative, void** buffers,
                         int64_t inputs, int64_t outputs, void** state, char* text, size_t size) {
  XLA_FFI_Api api = {};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  api.api_version.major_version = XLA_FFI_API_MAJOR;
  api.api_version.minor_version = XLA_FFI_API_MINOR;
  api.XLA_FFI_Error_Create = error_create;
  api.XLA_FFI_Error_Destroy = error_destroy;
  api.XLA_FFI_Stream_Get = stream_get;
  api.XLA_FFI_State_Set = state_set;
  api.XLA_FFI_State_Get = state_get;

  std::vector<XLA_FFI_Buffer> holders(inputs + outputs);
  std::vector<void*> args;
  for (int64_t i = 0; i < inputs + outputs; i++) {
    holders[i] = {};
    holders[i].struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
    holders[i].dtype = XLA_FFI_DataType_F32;
    holders[i].data = buffers[i];
    args.push_back(&holders[i]);
  }
  std::vector<XLA_FFI_ArgType> arg_types(inputs, XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> ret_types(outputs, XLA_FFI_RetType_BUFFER);

  int64_t grid = 1, block = 32;
  Attributes attributes, images, parts, kernels;
  if (bundle == nullptr) {
    attributes.Add("block", block);
    attributes.Add("cooperative", cooperative);
    attributes.Add("entry", entry);
    attributes.Add("grid", grid);
    attributes.Add("key", key);
    attributes.Add("shared", shared);
  } else {
    kernels.Add(entry, shared);
    parts.Add("image", image, image_size);
    parts.Add("kernels", kernels.Finished());
    XLA_FFI_Attrs* brought = parts.Finished();
    images.Add(key, brought);
    if (other != nullptr) images.Add(other, brought);
    attributes.Add("bundle", bundle);
    attributes.Add("images", images.Finished());
  }

  XLA_FFI_CallFrame frame = {};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api;
  frame.ctx = reinterpret_cast<decltype(frame.ctx)>(state);
  frame.stage = static_cast<XLA_FFI_ExecutionStage>(stage);
  frame.args.struct_size = XLA_FFI_Args_STRUCT_SIZE;
  frame.rets.struct_size = XLA_FFI_Rets_STRUCT_SIZE;
  frame.attrs = *attributes.Finished();
  if (stage == XLA_FFI_ExecutionStage_EXECUTE) {
    frame.args.size = inputs;
    frame.args.types = arg_types.data();
    frame.args.args = args.data();
    frame.rets.size = outputs;
    frame.rets.types = ret_types.data();
    frame.rets.rets = args.data() + inputs;
  }
  XLA_FFI_Error* error = handler(&frame);
  if (error == nullptr) return 0;
  snprintf(text, size, "%s", error->message.c_str());
  delete error;
  return 1;
}

// Destroys a state as XLA does with its executable.
extern "C" void host_destroy(const XLA_FFI_TypeInfo* (*info)(), void* state) {
  info()->deleter(state);
}
