#pragma once
// The kernels that a backend of the CPU has.

#include <string>

#include "ops/backend.h"

namespace subbyte::testing {

/// The name of the kernels of a backend of the CPU, such as "avx2".
inline std::string isa_of(const Backend& backend) {
  const std::string description = backend.description();
  return description.substr(0, description.find(' '));
}

}  // namespace subbyte::testing
