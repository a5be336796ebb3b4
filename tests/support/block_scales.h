#pragma once
// Scales of blocks of 32 weights as kbit and vq store them: in E4M4, or in F16. They are read by
// formulas that share nothing with the code under test.

#include <cmath>
#include <string>
#include <utility>

#include "formats/format.h"
#include "support/test_tensors.h"

namespace subbyte {

/// At random, in bytes (E4M4) or in numbers.
inline TestTensor block_scales(std::string name, DType dtype, Shape shape, Random& random) {
  return dtype == DType::kU8 ? random_bits(std::move(name), dtype, std::move(shape), random)
                             : random_floats(std::move(name), dtype, std::move(shape), random);
}

inline double block_scale(const TestTensor& scales, int64_t block) {
  const auto place = static_cast<std::size_t>(block);
  if (scales.dtype == DType::kF16) return info(Format::kF16).decode(scales.at<uint16_t>(place));
  const auto byte = scales.at<uint8_t>(place);
  const int exponent = byte >> 4;
  const double mantissa = (byte & 15) / 16.0;
  return exponent == 0 ? std::ldexp(mantissa, -10) : std::ldexp(1 + mantissa, exponent - 11);
}

}  // namespace subbyte
