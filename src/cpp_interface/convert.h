#pragma once
// Public types as the library's own, and back. In namespace v0 an unqualified name is the public
// one; the library's own of the same name is subbyte::NAME.

#include <utility>

#include "base/status.h"
#include "matrix/matrix.h"
#include "subbyte/matrix.h"
#include "subbyte/status.h"

namespace subbyte::v0 {

inline Error to_public(subbyte::Error error) {
  return {error.code, std::move(error.message)};
}

template <typename T>
Result<T> to_public(subbyte::Result<T> result) {
  if (!result.ok()) return to_public(std::move(result).error());
  return std::move(result).value();
}

inline Status to_public(subbyte::Status status) {
  if (!status.ok()) return to_public(std::move(status).error());
  return {};
}

// matrix.cc checks that the enumerations are the same.
inline Format to_public(subbyte::Format format) {
  return static_cast<Format>(format);
}

inline subbyte::Format to_own(Format format) {
  return static_cast<subbyte::Format>(format);
}

inline WeightFormat to_public(const subbyte::WeightFormat& format) {
  return {to_public(format.element), to_public(format.scale), static_cast<Zero>(format.zero),
          format.group_size};
}

inline subbyte::WeightFormat to_own(const WeightFormat& format) {
  return {to_own(format.element), to_own(format.scale), static_cast<subbyte::Zero>(format.zero),
          format.group_size};
}

}  // namespace subbyte::v0
