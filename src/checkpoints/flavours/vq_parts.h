#pragma once
// Names of the tensors of vector quantization; vq.cc draws them.

#include <string_view>

namespace subbyte::vq {

inline constexpr std::string_view kCodes = ".vq_codes";
inline constexpr std::string_view kScales = ".vq_scales";
inline constexpr std::string_view kCodebook = ".vq_codebook";
inline constexpr std::string_view kFactor = ".vq_factor";
inline constexpr int kBlock = 32;

}  // namespace subbyte::vq
