#include "foreign_layouts/ggml_types.h"

#include <algorithm>
#include <array>

namespace subbyte {
namespace {

constexpr std::nullopt_t kNoMatrix = std::nullopt;

constexpr WeightFormat dense(Format element) {
  return {.element = element};
}

constexpr WeightFormat groups(Format element, int64_t size, Format scale, Zero zero = Zero::kNone) {
  return {.element = element, .scale = scale, .zero = zero, .group_size = size};
}

constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, dense(Format::kF32)},
    {1, "F16", 1, 2, dense(Format::kF16)},
    {2, "Q4_0", 32, 18, groups(Format::kI4, 32, Format::kF16)},
    {3, "Q4_1", 32, 20, groups(Format::kU4, 32, Format::kF16, Zero::kF16)},
    {6, "Q5_0", 32, 22, groups(Format::kI5, 32, Format::kF16)},
    {7, "Q5_1", 32, 24, groups(Format::kU5, 32, Format::kF16, Zero::kF16)},
    {8, "Q8_0", 32, 34, groups(Format::kI8, 32, Format::kF16)},
    {10, "Q2_K", 256, 84, groups(Format::kU2, 16, Format::kU4, Zero::kOffsetU4)},
    {11, "Q3_K", 256, 110, groups(Format::kI3, 16, Format::kI6)},
    {12, "Q4_K", 256, 144, groups(Format::kU4, 32, Format::kU6, Zero::kOffsetU6)},
    {13, "Q5_K", 256, 176, groups(Format::kU5, 32, Format::kU6, Zero::kOffsetU6)},
    {14, "Q6_K", 256, 210, groups(Format::kI6, 16, Format::kI8)},
    {16, "IQ2_XXS", 256, 66, groups(Format::kNFL3, 32, Format::kU6)},
    {17, "IQ2_XS", 256, 74, groups(Format::kNFL3, 16, Format::kU6)},
    {18, "IQ3_XXS", 256, 98, groups(Format::kNFL4, 32, Format::kU6)},
    {19, "IQ1_S", 256, 50, groups(Format::kNFL3, 32, Format::kU6)},
    {20, "IQ4_NL", 32, 18, groups(Format::kIQ4, 32, Format::kF16)},
    {21, "IQ3_S", 256, 110, groups(Format::kNFL4, 32, Format::kU6)},
    {22, "IQ2_S", 256, 82, groups(Format::kNFL3, 16, Format::kU6)},
    {23, "IQ4_XS", 256, 136, groups(Format::kIQ4, 32, Format::kI6)},
    {24, "I8", 1, 1, kNoMatrix},
    {25, "I16", 1, 2, kNoMatrix},
    {26, "I32", 1, 4, kNoMatrix},
    {27, "I64", 1, 8, kNoMatrix},
    {28, "F64", 1, 8, kNoMatrix},
    {29, "IQ1_M", 256, 56, groups(Format::kNFL3, 16, Format::kU6)},
    {30, "BF16", 1, 2, dense(Format::kBF16)},
    {34, "TQ1_0", 256, 54, groups(Format::kU2, 256, Format::kF16, Zero::kU8)},
    {35, "TQ2_0", 256, 66, groups(Format::kU2, 256, Format::kF16, Zero::kU8)},
    {39, "MXFP4", 32, 17, groups(Format::kE2M1, 32, Format::kE8M0)},
    {40, "NVFP4", 64, 36, groups(Format::kE2M1, 16, Format::kE4M3)},
    {41, "Q1_0", 128, 18, groups(Format::kU2, 128, Format::kF16, Zero::kU8)},
    {42, "Q2_0", 64, 18, groups(Format::kU2, 64, Format::kF16, Zero::kU8)},
};

constexpr std::array<uint32_t, 8> kRemoved = {4, 5, 31, 32, 33, 36, 37, 38};

}  // namespace

std::span<const GgmlType> ggml_types() {
  return kTypes;
}

const GgmlType* find_ggml_type(uint32_t number) {
  const auto* const found = std::ranges::find(kTypes, number, &GgmlType::number);
  return found == std::end(kTypes) ? nullptr : found;
}

const GgmlType* find_ggml_type(std::string_view name) {
  const auto* const found = std::ranges::find(kTypes, name, &GgmlType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

bool is_removed_ggml_type(uint32_t number) {
  return std::ranges::find(kRemoved, number) != kRemoved.end();
}

}  // namespace subbyte
