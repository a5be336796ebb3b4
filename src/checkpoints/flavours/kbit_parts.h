#pragma once
// Names of kbit's tensors; kbit.cc draws them.

#include <string_view>

namespace subbyte::kbit {

inline constexpr std::string_view kCodes = ".kbit_codes";
inline constexpr std::string_view kAbsmax = ".kbit_absmax";
inline constexpr std::string_view kCodebook = ".kbit_codebook";
inline constexpr std::string_view kFactor = ".kbit_factor";
inline constexpr int kBlock = 32;

}  // namespace subbyte::kbit
