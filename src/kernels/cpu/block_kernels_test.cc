#include "kernels/cpu/block_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "formats/format.h"
#include "kernels/cpu/cpu_kernels.h"

namespace subbyte {
namespace {

std::vector<const cpu::Kernels*> kernels_of_this_machine() {
  std::vector<const cpu::Kernels*> kernels;
  for (const cpu::Kernels* table : cpu::all_kernels()) {
    if (cpu::select_kernels(table->name).ok()) kernels.push_back(table);
  }
  return kernels;
}

uint32_t bits_of(double value) {
  return std::bit_cast<uint32_t>(static_cast<float>(value));
}

TEST(LoadNumbers, all_codes_of_16_bits) {
  constexpr std::size_t kCodes = 1 << 16;
  std::vector<uint16_t> codes(kCodes + 5);  // more than whole vectors
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  for (const Format format : {Format::kF16, Format::kBF16}) {
    const auto element = format == Format::kF16 ? Element::kF16 : Element::kBF16;
    for (const cpu::Kernels* kernels : kernels_of_this_machine()) {
      std::vector<float> numbers(codes.size());
      kernels->vectors->blocks->load[static_cast<int>(element)](numbers.data(), codes.data(),
                                                                static_cast<int64_t>(codes.size()));
      for (std::size_t i = 0; i < codes.size(); ++i) {
        const double want = info(format).decode(codes[i]);
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(numbers[i])) << i;
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(numbers[i]), bits_of(want)) << kernels->name << i;
        }
      }
    }
  }
}

TEST(LoadNumbers, says_whether_a_bf16_is_subnormal) {
  const uint16_t normal[] = {0x0000, 0x8000, 0x0080, 0x8080, 0x3F80, 0x7F7F, 0x7F80, 0x7FC0};
  const uint16_t subnormal[] = {0x0001, 0x8001, 0x007F, 0x807F, 0x0040};
  const auto is_normal = [](const cpu::Kernels& kernels, std::vector<uint16_t> codes) {
    std::vector<float> numbers(codes.size());
    return kernels.vectors->blocks->load[static_cast<int>(Element::kBF16)](
        numbers.data(), codes.data(), static_cast<int64_t>(codes.size()));
  };
  for (const cpu::Kernels* kernels : kernels_of_this_machine()) {
    EXPECT_TRUE(is_normal(*kernels, {}));
    for (const std::size_t place : {std::size_t{0}, std::size_t{31}, std::size_t{70}}) {
      std::vector<uint16_t> codes(71, 0x4000);
      for (const uint16_t code : normal) {
        codes[place] = code;
        EXPECT_TRUE(is_normal(*kernels, codes)) << kernels->name << ' ' << code;
      }
      for (const uint16_t code : subnormal) {
        codes[place] = code;
        EXPECT_FALSE(is_normal(*kernels, codes)) << kernels->name << ' ' << code;
      }
    }
  }
}

TEST(SumGroups, rounds_once_what_it_adds_in_double_precision) {
  Random random(11);
  for (const int64_t size : {1, 7, 15, 16, 17, 40, 128}) {
    constexpr int64_t kGroups = 5;
    std::vector<float> x(static_cast<std::size_t>(kGroups * size));
    for (float& number : x) number = static_cast<float>(random.normal());
    x[0] = 0x1p24f;  // a sum in f32 would lose the rest
    for (const double factor : {1.0, -0.375}) {
      std::vector<float> first;
      for (const cpu::Kernels* kernels : kernels_of_this_machine()) {
        std::vector<float> sums(kGroups);
        kernels->vectors->blocks->sum_groups(sums.data(), x.data(), kGroups, size, factor);
        for (std::size_t g = 0; g < kGroups; ++g) {
          long double want = 0;
          long double magnitudes = 0;
          for (int64_t i = 0; i < size; ++i) {
            const auto number = static_cast<long double>(
                x[g * static_cast<std::size_t>(size) + static_cast<std::size_t>(i)]);
            want += number;
            magnitudes += std::fabs(number);
          }
          // Half of a step of f32, and size roundings of doubles.
          const long double bound = std::fabs(want * factor) * 0x1p-24L +
                                    magnitudes * static_cast<long double>(size) * 0x1p-52L;
          EXPECT_LE(std::fabs(static_cast<long double>(sums[g]) - want * factor), bound)
              << kernels->name << ' ' << size;
        }
        if (first.empty()) first = sums;
        EXPECT_EQ(sums, first) << kernels->name;
      }
    }
  }
  std::vector<float> x = {1, std::numeric_limits<float>::quiet_NaN()};
  for (const cpu::Kernels* kernels : kernels_of_this_machine()) {
    float sum = 0;
    kernels->vectors->blocks->sum_groups(&sum, x.data(), 1, 2, 1);
    EXPECT_TRUE(std::isnan(sum));
  }
}

}  // namespace
}  // namespace subbyte
