#pragma once
// Results that a test cannot go on without.

#include <stdexcept>
#include <utility>

#include "base/status.h"

namespace subbyte::testing {

/// The value; an error is an exception, of which GoogleTest makes a failure of this test, with its
/// line, and goes on with the others.
template <typename T>
T value_of(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

}  // namespace subbyte::testing
