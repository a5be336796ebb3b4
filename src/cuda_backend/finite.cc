#include "cuda_backend/finite.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "cuda_backend/device_memory.h"

namespace subbyte {
namespace {

/// Infinity and NaN are the numbers with all bits of the exponent.
template <class Bits>
Result<bool> lack_exponent(const void* numbers, int64_t count, Bits exponent, cuda::Stream stream) {
  std::vector<Bits> bits(count);
  cudaError_t error =
      cudaMemcpyAsync(bits.data(), numbers, count * sizeof(Bits), cudaMemcpyDeviceToHost, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (error != cudaSuccess) return cuda_error("cuda.copy", "copy of a tensor", error);
  return std::ranges::all_of(bits, [&](Bits b) { return (b & exponent) != exponent; });
}

}  // namespace

Result<bool> are_finite(const void* numbers, int64_t count, cuda::Element element,
                        cuda::Stream stream) {
  if (element == cuda::Element::kF32) {
    return lack_exponent<uint32_t>(numbers, count, 0x7F800000, stream);
  }
  const uint16_t exponent = element == cuda::Element::kF16 ? 0x7C00 : 0x7F80;
  return lack_exponent<uint16_t>(numbers, count, exponent, stream);
}

}  // namespace subbyte
