#pragma once
// The shaders of src/kernels/metal, compiled for the host and run by threads (metal_shim.h).

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace subbyte::testing {

/// Pointers as in arguments.h of the kernels; `arguments` is an apple::Arguments.
struct MetalCall {
  const void* arguments = nullptr;
  const void* codes = nullptr;
  const void* scales = nullptr;
  const void* zeros = nullptr;
  const void* codebook = nullptr;
  const void* gather = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
  int threadgroups = 1;
  int simdgroups = 1;  // of a threadgroup
  std::size_t table_bytes = 0;
  std::size_t sums_bytes = 0;
};

/// false: there is no kernel of that name. Threads flush subnormal floats and halves to zero, as
/// Metal allows.
bool run_metal_kernel(std::string_view name, const MetalCall& call);

/// How many kernels there are.
std::size_t metal_kernel_count();

}  // namespace subbyte::testing
