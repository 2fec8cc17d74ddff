// Calls an XLA FFI handler as XLA does, without XLA: builds the call frame that the C API describes.
#include <cstdio>
#include <cstring>
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

}  // namespace

// Returns 0, or 1 with the handler's error in `text`. `buffers` are addresses of inputs and outputs.
extern "C" int host_call(XLA_FFI_Handler* handler, int stage, const char* key, const char* image,
                         size_t image_size, const char* entry, int64_t shared, int64_t cooperative,
                         void** buffers, int64_t inputs, int64_t outputs, char* text, size_t size) {
  XLA_FFI_Api api = {};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  api.api_version.major_version = XLA_FFI_API_MAJOR;
  api.api_version.minor_version = XLA_FFI_API_MINOR;
  api.XLA_FFI_Error_Create = error_create;
  api.XLA_FFI_Error_Destroy = error_destroy;
  api.XLA_FFI_Stream_Get = stream_get;

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
  XLA_FFI_Scalar scalars[] = {{XLA_FFI_DataType_S64, &block},
                              {XLA_FFI_DataType_S64, &cooperative},
                              {XLA_FFI_DataType_S64, &grid},
                              {XLA_FFI_DataType_S64, &shared}};
  XLA_FFI_ByteSpan strings[] = {
      {entry, strlen(entry)}, {image, image_size}, {key, strlen(key)}};
  // by name, ascending
  const char* names[] = {"block", "cooperative", "entry", "grid", "image", "key", "shared"};
  void* values[] = {&scalars[0], &scalars[1], &strings[0], &scalars[2],
                    &strings[1], &strings[2], &scalars[3]};
  XLA_FFI_ByteSpan spans[7];
  XLA_FFI_ByteSpan* span_pointers[7];
  XLA_FFI_AttrType types[7];
  for (int i = 0; i < 7; i++) {
    spans[i] = {names[i], strlen(names[i])};
    span_pointers[i] = &spans[i];
    const bool is_string = i == 2 || i == 4 || i == 5;
    types[i] = is_string ? XLA_FFI_AttrType_STRING : XLA_FFI_AttrType_SCALAR;
  }

  XLA_FFI_CallFrame frame = {};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api;
  frame.ctx = nullptr;
  frame.stage = static_cast<XLA_FFI_ExecutionStage>(stage);
  frame.args.struct_size = XLA_FFI_Args_STRUCT_SIZE;
  frame.rets.struct_size = XLA_FFI_Rets_STRUCT_SIZE;
  frame.attrs.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
  if (stage == XLA_FFI_ExecutionStage_EXECUTE) {
    frame.args.size = inputs;
    frame.args.types = arg_types.data();
    frame.args.args = args.data();
    frame.rets.size = outputs;
    frame.rets.types = ret_types.data();
    frame.rets.rets = args.data() + inputs;
  }
  frame.attrs.size = 7;
  frame.attrs.types = types;
  frame.attrs.names = span_pointers;
  frame.attrs.attrs = values;
  XLA_FFI_Error* error = handler(&frame);
  if (error == nullptr) return 0;
  snprintf(text, size, "%s", error->message.c_str());
  delete error;
  return 1;
}
