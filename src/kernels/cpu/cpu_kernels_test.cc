#include "kernels/cpu/cpu_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "support/compare.h"
#include "support/random_matrix.h"

namespace subbyte::cpu {
namespace {

bool runs_here(const Kernels& kernels) {
  return (kernels.required_features & ~cpu_features()) == 0;
}

TEST(SelectKernels, takes_the_first_that_the_machine_runs) {
  const auto chosen = select_kernels();
  ASSERT_TRUE(chosen.ok());
  for (const Kernels* kernels : all_kernels()) {
    if (!runs_here(*kernels)) continue;
    EXPECT_EQ(*chosen, kernels);
    break;
  }
}

TEST(SelectKernels, obeys_a_name_or_says_that_the_machine_cannot) {
  for (const Kernels* kernels : all_kernels()) {
    const auto chosen = select_kernels(kernels->name);
    ASSERT_EQ(chosen.ok(), runs_here(*kernels)) << kernels->name;
    if (chosen.ok()) {
      EXPECT_EQ(*chosen, kernels);
    } else {
      EXPECT_EQ(chosen.error().code, "isa.unsupported");
    }
  }
}

TEST(SelectKernels, an_unknown_name_is_told_the_known_ones) {
  const auto chosen = select_kernels("avx1024");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.error().code, "isa.unknown");
  EXPECT_NE(chosen.error().message.find("avx1024"), std::string::npos);
  EXPECT_NE(chosen.error().message.find("scalar"), std::string::npos);
}

TEST(AllKernels, end_with_scalar_which_needs_nothing) {
  EXPECT_EQ(all_kernels().back()->name, "scalar");
  EXPECT_EQ(all_kernels().back()->required_features, 0);
}

TEST(AllKernels, multiply_the_same_formats_each_once) {
  // 26: a new line in kernel_list.inl.h shows here, because each costs code in every folder.
  for (const Kernels* kernels : all_kernels()) {
    std::set<std::string> formats;
    for (const MatmulKernel& kernel : kernels->matmuls) {
      formats.insert(to_string(WeightFormat{kernel.element, kernel.scale, kernel.zero, 32}));
    }
    EXPECT_EQ(formats.size(), 26) << kernels->name;
    EXPECT_EQ(kernels->matmuls.size(), 26) << kernels->name;
    for (const MatmulKernel& kernel : all_kernels().back()->matmuls) {
      EXPECT_TRUE(
          formats.count(to_string(WeightFormat{kernel.element, kernel.scale, kernel.zero, 32})));
    }
  }
}

TEST(FindMatmul, refuses_what_has_no_kernel) {
  const Kernels& kernels = *all_kernels().back();
  const WeightFormat good = {Format::kU4, Format::kF16, Zero::kU8, 128};
  EXPECT_NE(find_matmul(kernels, good), nullptr);
  EXPECT_NE(find_matmul(kernels, {Format::kU4, Format::kF16, Zero::kU8, 0}), nullptr);
  EXPECT_EQ(find_matmul(kernels, {Format::kU4, Format::kF16, Zero::kU8, 12}), nullptr);
  EXPECT_EQ(find_matmul(kernels, {Format::kU4, Format::kF16, Zero::kU8, -8}), nullptr);
  EXPECT_EQ(find_matmul(kernels, {Format::kU4, Format::kF16, Zero::kU16, 128}), nullptr);
  EXPECT_EQ(find_matmul(kernels, {Format::kU4, Format::kE8M0, Zero::kU8, 32}), nullptr);
  EXPECT_EQ(find_matmul(kernels, {Format::kE4M3, Format::kNone, Zero::kNone, 0}), nullptr);
}

TEST(ChooseMethod, obeys_the_precision_and_keeps_to_one_method_when_asked) {
  for (const Kernels* kernels : all_kernels()) {
    for (const MatmulKernel& kernel : kernels->matmuls) {
      const Weights weights = {.cols = 1024, .group_size = 128};
      const auto chosen = [&](int64_t m, Precision precision, bool invariant) {
        return choose_method(*kernels, kernel, weights, m, precision, invariant).multiply;
      };
      const bool tiles = kernel.many_for_one;
      const Method& exact = tiles ? kernel.many : kernel.few;
      const Method& rounded = tiles ? kernel.bf16 : kernel.few;
      const Method& bytes = kernel.int8.multiply != nullptr ? kernel.int8 : exact;
      for (const int64_t m : {1, 4, 5, 512}) {
        EXPECT_EQ(chosen(m, Precision::kF32, true), exact.multiply);
        EXPECT_EQ(chosen(m, Precision::kBF16, true), rounded.multiply);
        EXPECT_EQ(chosen(m, Precision::kInt8, true), bytes.multiply);
      }
      if (kernel.bf16.multiply != nullptr) {
        EXPECT_EQ(chosen(17, Precision::kBF16, false), kernel.bf16.multiply);
      }
      if (kernel.int8.multiply != nullptr) {
        const auto& prompts = kernel.int8_many.multiply != nullptr ? kernel.int8_many : kernel.int8;
        EXPECT_EQ(chosen(8, Precision::kInt8, false), kernel.int8.multiply);
        EXPECT_EQ(chosen(11, Precision::kInt8, false), prompts.multiply);
      }
      EXPECT_EQ(chosen(1, Precision::kBF16, false), kernel.few.multiply);
      EXPECT_EQ(chosen(1, Precision::kF32, false), kernel.few.multiply);
      EXPECT_EQ(chosen(17, Precision::kF32, false), kernel.many.multiply);
    }
  }
}

/// The layout that cpu_kernels.h draws, element by element.
TEST(ChooseMethod, takes_tiles_for_a_few_tokens_only_where_they_are_faster) {
  for (const Kernels* kernels : all_kernels()) {
    if (kernels->name != "amx") continue;
    const MatmulKernel& kernel =
        *find_matmul(*kernels, {Format::kU4, Format::kF16, Zero::kU8, 128});
    const auto chosen = [&](int64_t group_size, int64_t m, Precision precision,
                            bool invariant = false) {
      const Weights weights = {.cols = 1024, .group_size = group_size};
      return choose_method(*kernels, kernel, weights, m, precision, invariant).multiply;
    };
    EXPECT_EQ(chosen(128, 2, Precision::kF32), kernel.few.multiply);
    EXPECT_EQ(chosen(128, 3, Precision::kF32), kernel.several.multiply);
    EXPECT_EQ(chosen(128, 5, Precision::kF32), kernel.several.multiply);
    EXPECT_EQ(chosen(128, 6, Precision::kF32), kernel.several_wide.multiply);
    EXPECT_EQ(chosen(1024, 8, Precision::kF32), kernel.several_wide.multiply);
    EXPECT_EQ(chosen(128, 9, Precision::kF32), kernel.several.multiply);
    EXPECT_EQ(chosen(1024, 10, Precision::kF32), kernel.several.multiply);
    EXPECT_EQ(chosen(128, 11, Precision::kF32), kernel.many.multiply);
    EXPECT_EQ(chosen(128, 2, Precision::kBF16), kernel.few.multiply);
    EXPECT_EQ(chosen(128, 3, Precision::kBF16), kernel.several_bf16.multiply);
    EXPECT_EQ(chosen(1024, 16, Precision::kBF16), kernel.several_bf16.multiply);
    EXPECT_EQ(chosen(128, 17, Precision::kBF16), kernel.bf16.multiply);
    EXPECT_EQ(chosen(32, 2, Precision::kF32), kernel.few.multiply);
    EXPECT_EQ(chosen(32, 3, Precision::kF32), kernel.several_small_groups.multiply);
    EXPECT_EQ(chosen(96, 8, Precision::kF32), kernel.several_small_groups.multiply);
    EXPECT_EQ(chosen(24, 8, Precision::kF32), kernel.few.multiply);
    EXPECT_EQ(chosen(32, 11, Precision::kF32), kernel.few.multiply);
    EXPECT_EQ(chosen(32, 12, Precision::kF32), kernel.many_small_groups.multiply);
    EXPECT_EQ(chosen(24, 4, Precision::kBF16), kernel.few.multiply);
    EXPECT_EQ(chosen(24, 5, Precision::kBF16), kernel.bf16.multiply);
    EXPECT_EQ(chosen(32, 2, Precision::kBF16), kernel.few.multiply);
    EXPECT_EQ(chosen(32, 16, Precision::kBF16), kernel.several_small_groups_bf16.multiply);
    EXPECT_EQ(chosen(32, 17, Precision::kBF16), kernel.bf16.multiply);
    EXPECT_EQ(chosen(128, 1, Precision::kF32, true), kernel.many.multiply);
    EXPECT_EQ(chosen(32, 512, Precision::kF32, true), kernel.few.multiply);
  }
}

TEST(ChooseMethod, takes_panels_for_many_tokens_and_floats_for_small_groups) {
  for (const Kernels* kernels : all_kernels()) {
    if (kernels->name != "avx512bf16") continue;
    const MatmulKernel& kernel =
        *find_matmul(*kernels, {Format::kU4, Format::kF16, Zero::kU8, 128});
    const auto chosen = [&](int64_t group_size, int64_t m, Precision precision) {
      const Weights weights = {.cols = 1024, .group_size = group_size};
      return choose_method(*kernels, kernel, weights, m, precision, false).order;
    };
    EXPECT_EQ(chosen(128, 12, Precision::kF32), ActivationOrder::kThreeBytes);
    EXPECT_EQ(chosen(128, 13, Precision::kF32), ActivationOrder::kDotDigits);
    EXPECT_EQ(chosen(32, 16, Precision::kF32), ActivationOrder::kThreeBytes);
    EXPECT_EQ(chosen(32, 17, Precision::kF32), ActivationOrder::kOctets);
    EXPECT_EQ(chosen(32, 8, Precision::kBF16), ActivationOrder::kThreeBytes);
    EXPECT_EQ(chosen(32, 9, Precision::kBF16), ActivationOrder::kDotPairs);
    EXPECT_EQ(chosen(32, 10, Precision::kInt8), ActivationOrder::kBytes);
    EXPECT_EQ(chosen(32, 11, Precision::kInt8), ActivationOrder::kDotBytes);
  }
}

TEST(Pack, puts_inputs_where_the_header_says) {
  for (const Kernels* kernels : all_kernels()) {
    if (!runs_here(*kernels)) continue;
    const int64_t lanes = kernels->lanes;
    for (const int64_t k : {1, 5, 8, 64, 100, 128, 136, 1000}) {
      std::vector<float> x(k);
      std::vector<uint32_t> gather(k);
      for (int64_t i = 0; i < k; ++i) {
        x[i] = static_cast<float>(1 + i);
        gather[i] = static_cast<uint32_t>((i * 7 + 3) % k);
      }
      for (const uint32_t* order :
           {static_cast<const uint32_t*>(nullptr), static_cast<const uint32_t*>(gather.data())}) {
        const auto input = [&](int64_t i) {
          return i >= k ? 0 : order == nullptr ? x[i] : x[order[i]];
        };
        const int64_t blocks = (k + 8 * lanes - 1) / (8 * lanes);
        for (const auto kind : {ActivationOrder::kOctets, ActivationOrder::kNatural}) {
          const bool octets = kind == ActivationOrder::kOctets;
          const int64_t block = octets ? 9 * lanes : 8 * lanes;
          const int64_t bytes = (blocks * block * 4 + 63) / 64 * 64;
          ASSERT_EQ(kernels->packed_bytes(k, kind), bytes);
          testing::GuardedBytes packed(bytes);
          const auto* p = reinterpret_cast<const float*>(packed.data());
          kernels->pack(reinterpret_cast<uint8_t*>(packed.data()), x.data(), 1, order, k, kind);
          for (int64_t b = 0; b < blocks; ++b) {
            for (int64_t lane = 0; lane < lanes; ++lane) {
              float sum = 0;
              for (int64_t j = 0; j < 8; ++j) {
                const int64_t i = 8 * lanes * b + (octets ? 8 * lane + j : lanes * j + lane);
                ASSERT_EQ(p[b * block + j * lanes + lane], input(i)) << kernels->name << " " << k;
                sum += input(i);
              }
              if (octets) {
                ASSERT_EQ(p[b * block + 8 * lanes + lane], sum) << kernels->name;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Pack, three_digits_are_the_inputs_in_steps_of_a_power_of_two) {
  struct Octet {
    float inputs[8];
    float scale;  // expected
  };
  // 127 * 0x010101 is the largest number of steps; just above it they are twice as long.
  constexpr float kLargest = 127 * 0x010101;
  const Octet octets[] = {
      {{1, -2, 3, -4, 5, -6, 7, 0.5F}, 0x1p-20F},
      {{0, 0, 0, 0, 0, 0, 0, 0}, 0x1p-126F},
      {{kLargest, -kLargest, 1, -1, 127, 128, -128, -129}, 1},
      {{kLargest + 0.5F, -1, 2, -2, 3, -3, 32768, -32768}, 2},
      {{0x1.FFFFFEp127F, -0x1p127F, 0x1p104F, 0, 0x1p106F, 0, 0, -0x1p107F}, 0x1p106F},
      {{0x1p-149F, -0x1p-149F, 0x1p-127F, 0x1p-126F, 0, 0, 0, 0x1p-110F}, 0x1p-126F}};
  for (const Kernels* kernels : all_kernels()) {
    if (!runs_here(*kernels) || (kernels->required_features & kCpuAvx512Vnni) == 0) continue;
    const int64_t lanes = kernels->lanes;
    const int64_t bytes = kernels->packed_bytes(8, ActivationOrder::kThreeBytes);
    ASSERT_EQ(bytes, 9 * 4 * lanes);
    testing::GuardedBytes packed(bytes);
    for (const Octet& octet : octets) {
      kernels->pack(reinterpret_cast<uint8_t*>(packed.data()), octet.inputs, 1, nullptr, 8,
                    ActivationOrder::kThreeBytes);
      const auto* digits = reinterpret_cast<const int8_t*>(packed.data());
      const auto* last = reinterpret_cast<const float*>(packed.data());
      EXPECT_EQ(last[7 * lanes], octet.scale);
      double sum = 0;
      for (int64_t i = 0; i < 8; ++i) {
        double t = 0;
        for (int64_t digit = 0; digit < 3; ++digit) {
          t = 256 * t + digits[(2 * digit + i % 2) * 4 * lanes + i / 2];
        }
        EXPECT_EQ(t, std::nearbyint(octet.inputs[i] / octet.scale)) << octet.inputs[i];
        sum += t;
      }
      EXPECT_EQ(last[8 * lanes], static_cast<float>(sum * octet.scale));
    }
  }
}

TEST(Axpy, adds_a_multiple_and_writes_nothing_else) {
  for (const Kernels* kernels : all_kernels()) {
    if (!runs_here(*kernels)) continue;
    for (int64_t n = 0; n < 100; ++n) {
      std::vector<float> x(n);
      std::vector<float> y(n + 16, 7.0F);
      for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(i);
      kernels->axpy(y.data(), -2, x.data(), n);
      for (int64_t i = 0; i < n + 16; ++i) {
        ASSERT_EQ(y[i], i < n ? 7 - 2 * static_cast<float>(i) : 7) << kernels->name << ", " << n;
      }
    }
  }
}

}  // namespace
}  // namespace subbyte::cpu
