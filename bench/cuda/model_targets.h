#pragma once
// What the project wants of whole models on an H200, as data.

#include <cstdint>
#include <string_view>

namespace subbyte::bench {

/// What a target is a multiple of.
enum class TargetOf : uint8_t { kTokensPerSecond, kOneStream, kVendorRate, kLlamaCpp };

struct ModelTarget {
  std::string_view model;
  std::string_view measure;
  TargetOf of;
  double must;
  double aim;
};

inline constexpr ModelTarget kModelTargets[] = {
    {"8b", "decode", TargetOf::kTokensPerSecond, 560, 700},
    {"8b", "decode-long", TargetOf::kOneStream, 0.7, 0.8},
    {"8b", "decode-batch-16", TargetOf::kOneStream, 8, 11},
    {"8b", "decode-batch-64", TargetOf::kOneStream, 22, 30},
    {"8b", "decode-batch-256", TargetOf::kOneStream, 45, 70},
    {"8b", "prefill", TargetOf::kVendorRate, 0.6, 0.75},
    {"0.6b", "decode", TargetOf::kLlamaCpp, 2, 3},
    {"oss-20b", "decode", TargetOf::kTokensPerSecond, 615, 800},
    {"oss-20b", "prefill", TargetOf::kTokensPerSecond, 25000, 35000},
};

}  // namespace subbyte::bench
