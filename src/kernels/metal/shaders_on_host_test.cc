// The text of the shaders as C++. Their namespaces get other names here: an inline function of
// subbyte::gpu that means Metal's numbers must not meet one that means the host's.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "support/metal_kernels.h"
#include "support/metal_shim.h"

#define gpu gpu_in_metal
#define apple apple_in_metal
#include "kernels/metal/dequantize.metal"
#include "kernels/metal/small_m.metal"

namespace subbyte::testing {
namespace {

using Kernel = decltype(&dequantize_integers4_f16);

struct NamedKernel {
  std::string_view name;
  Kernel kernel_function;
};

#define SUBBYTE_NAMED(name) {#name, name},
#define SUBBYTE_METAL_DECODER(name, ...)  \
  SUBBYTE_NAMED(dequantize_##name##_f16)  \
  SUBBYTE_NAMED(dequantize_##name##_bf16) \
  SUBBYTE_NAMED(small_m1_##name##_f16)    \
  SUBBYTE_NAMED(small_m1_##name##_bf16)   \
  SUBBYTE_NAMED(small_m8_##name##_f16)    \
  SUBBYTE_NAMED(small_m8_##name##_bf16)
constexpr NamedKernel kKernels[] = {
#include "kernels/metal/decoders.def"
};
#undef SUBBYTE_METAL_DECODER

}  // namespace

std::size_t metal_kernel_count() {
  return std::size(kKernels);
}

bool run_metal_kernel(std::string_view name, const MetalCall& call) {
  const auto* found = std::find_if(std::begin(kKernels), std::end(kKernels),
                                   [&](const NamedKernel& k) { return k.name == name; });
  if (found == std::end(kKernels)) return false;
  std::vector<uint32_t> table(call.table_bytes / 4);
  std::vector<float> sums(call.sums_bytes / 4);
  const auto poison = [&] {
    std::memset(table.data(), 0xff, call.table_bytes);
    std::memset(sums.data(), 0xff, call.sums_bytes);
  };
  const auto simdgroups = static_cast<uint32_t>(call.simdgroups);
  metal_shim::run_grid(
      call.threadgroups, call.simdgroups, poison, [&](const metal_shim::Position& at) {
        found->kernel_function(
            *static_cast<const apple::Arguments*>(call.arguments),
            static_cast<const uint32_t*>(call.codes), static_cast<const uint8_t*>(call.scales),
            static_cast<const uint8_t*>(call.zeros), static_cast<const uint16_t*>(call.codebook),
            static_cast<const uint32_t*>(call.gather), static_cast<const uint16_t*>(call.x),
            static_cast<uint16_t*>(call.y), table.data(), sums.data(), at.group, at.simdgroup,
            at.lane, simdgroups);
      });
  return true;
}

}  // namespace subbyte::testing
