// What the launchers of all platforms read of the custom calls; artifact.py writes the attributes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace calls {

namespace ffi = xla::ffi;

// Binds the kernel and its launch, attribute by attribute: a struct of attributes is decoded by
// looking up each name at every launch.
template <typename Binding>
auto Launching(Binding binding) {
  return std::move(binding)
      .template Attr<std::string_view>("key")
      .template Attr<std::string_view>("entry")
      .template Attr<int64_t>("grid")
      .template Attr<int64_t>("block")
      .template Attr<int64_t>("shared")
      .template Attr<int64_t>("cooperative");
}

// Binds whatever the loading call has.
template <typename Binding>
auto Ignoring(Binding binding) {
  return std::move(binding).RemainingArgs().RemainingRets().Attrs();
}

// Appends the addresses that the kernel takes: operands, then results.
inline ffi::Error Addresses(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
                            std::vector<void*>& pointers) {
  pointers.reserve(args.size() + rets.size());
  for (size_t i = 0; i < args.size(); i++) {
    auto buffer = args.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    pointers.push_back(buffer->untyped_data());
  }
  for (size_t i = 0; i < rets.size(); i++) {
    auto buffer = rets.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    // a result without elements is there for XLA alone
    if ((*buffer)->element_count() > 0) pointers.push_back((*buffer)->untyped_data());
  }
  return ffi::Error::Success();
}

// Calls `load(key, image, parts)` for each image of the loading call until one fails.
template <typename F>
ffi::Error EachImage(const ffi::Dictionary& attributes, F load) {
  auto images = attributes.get<ffi::Dictionary>("images");
  if (!images.has_value()) return images.error();
  for (auto key = images->begin(); key != images->end(); ++key) {
    auto parts = images->get<ffi::Dictionary>(*key);
    if (!parts.has_value()) return parts.error();
    auto image = parts->get<std::string_view>("image");
    if (!image.has_value()) return image.error();
    ffi::Error error = load(*key, *image, *parts);
    if (error.failure()) return error;
  }
  return ffi::Error::Success();
}

}  // namespace calls
