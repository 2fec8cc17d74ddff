// Kernel images by key, counted by who holds them, and what tells XLA of a holder.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace held {

namespace ffi = xla::ffi;

// Images are there as long as somebody holds them. The mutex guards what is in them as well.
template <typename Image>
class Images {
 public:
  std::shared_mutex mutex;

  // Null for one that nobody holds. Needs the mutex.
  Image* Find(std::string_view key) {
    auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second.image;
  }

  // The image of `key`, an empty one for the first holder. Needs the mutex for this thread alone.
  Image& Hold(std::string_view key) {
    Entry& entry = entries_.try_emplace(std::string(key)).first->second;
    entry.holders++;
    return entry.image;
  }

  // Undoes Hold for each of `keys`; returns the images that nobody holds any more.
  std::vector<Image> Release(const std::vector<std::string>& keys) {
    std::vector<Image> left;
    std::unique_lock<std::shared_mutex> lock(mutex);
    for (const std::string& key : keys) {
      auto found = entries_.find(key);
      if (found == entries_.end() || --found->second.holders > 0) continue;
      left.push_back(std::move(found->second.image));
      entries_.erase(found);
    }
    return left;
  }

  size_t size() {
    std::shared_lock<std::shared_mutex> lock(mutex);
    return entries_.size();
  }

 private:
  struct Entry {
    Image image;
    int holders = 0;
  };
  std::map<std::string, Entry, std::less<>> entries_;
};

// Asks for the state that the instantiate stage made, null where XLA has none for this executable.
template <typename T>
struct State {};

// What an instantiate stage gives: the state that XLA is to destroy with the executable. Where XLA
// does not take it, as T is not registered there, what it holds stays for the rest of the process.
template <typename T>
struct Made {
  std::unique_ptr<T> state;
  ffi::Error error;
};

}  // namespace held

namespace xla::ffi {

// Other than for std::unique_ptr, T may be registered after the handler: where JAX has no client yet
// it registers what it was given handlers first.
template <ExecutionStage stage, typename T>
struct ResultEncoding<stage, held::Made<T>> {
  // Versions of XLA name the type of `context` differently.
  template <typename Context>
  static XLA_FFI_Error* Encode(const XLA_FFI_Api* api, Context* context, held::Made<T> made) {
    if (made.error.failure()) return internal::CreateError(api, made.error);
    XLA_FFI_State_Set_Args args = {};
    args.struct_size = XLA_FFI_State_Set_Args_STRUCT_SIZE;
    args.stage = XLA_FFI_ExecutionStage_INSTANTIATE;
    args.ctx = context;
    args.type_id = &T::id;
    args.state = made.state.release();
    if (XLA_FFI_Error* error = api->XLA_FFI_State_Set(&args); error != nullptr) {
      internal::DestroyError(api, error);
    }
    return nullptr;
  }
};

template <typename T>
struct CtxDecoding<held::State<T>> {
  using Type = T*;

  template <typename Context>
  static std::optional<Type> Decode(const XLA_FFI_Api* api, Context* context, DiagnosticEngine&) {
    XLA_FFI_State_Get_Args args = {};
    args.struct_size = XLA_FFI_State_Get_Args_STRUCT_SIZE;
    args.stage = XLA_FFI_ExecutionStage_INSTANTIATE;
    args.ctx = context;
    args.type_id = &T::id;
    if (XLA_FFI_Error* error = api->XLA_FFI_State_Get(&args); error != nullptr) {
      internal::DestroyError(api, error);
      return nullptr;
    }
    return static_cast<Type>(args.state);
  }
};

}  // namespace xla::ffi
