#include "kernels/cpu/cpu_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "support/compare.h"
#include "support/random_matrix.h"

namespace subbyte::cpu {
namespace {

bool runs_here(const Kernels& kernels) {
  return (kernels.required_features & ~cpu_features()) == 0;
}

TEST(SelectKernels, takes_the_first_that_the_machine_runs_well) {
  const auto chosen = select_kernels();
  ASSERT_TRUE(chosen.ok());
  for (const Kernels* kernels : all_kernels()) {
    const bool slow = kernels->name == "avx512bf16" && (cpu_features() & kCpuFastBf16Dots) == 0;
    if (!runs_here(*kernels) || slow) continue;
    EXPECT_EQ((*chosen)->name, kernels->name);
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

TEST(MatmulKernels, have_a_method_for_every_number_of_rows_and_a_name_for_every_method) {
  for (const Kernels* kernels : all_kernels()) {
    for (const MatmulKernel& kernel : kernels->matmuls) {
      std::map<std::string_view, void (*)(const MatmulTask&)> by_name;
      const auto check = [&](const Method& method) {
        ASSERT_NE(method.multiply, nullptr);
        ASSERT_NE(method.name, std::string_view());
        EXPECT_EQ(by_name.try_emplace(method.name, method.multiply).first->second, method.multiply)
            << kernels->name << ", " << method.name;
      };
      for (const auto& lists : kernel.lists) {
        for (const MethodList& list : lists) {
          check(list.invariant);
          int64_t rows = 0;
          for (const MethodList::Entry& entry : list.entries) {
            check(entry.method);
            EXPECT_GT(entry.most_rows, rows) << kernels->name;
            rows = entry.most_rows;
            if (rows == INT64_MAX) break;
          }
          EXPECT_EQ(rows, INT64_MAX) << kernels->name;
        }
      }
    }
  }
}

bool is_integer_or_e2m1(Format element) {
  return element == Format::kU2 || element == Format::kU3 || element == Format::kU4 ||
         element == Format::kU8 || element == Format::kE2M1;
}

/// Names of the methods that whole groups expect.
struct Names {
  std::string_view f32;   // of prompts
  std::string_view bf16;  // of prompts
  std::string_view int8;
  std::string_view invariant;  // f32
  std::string_view invariant_bf16;
  std::string_view invariant_int8;
};

Names names_of(std::string_view isa, const MatmulKernel& kernel) {
  const Format element = kernel.element;
  const bool dense = kernel.scale == Format::kNone;
  if (isa == "amx") {
    const bool exact =
        element == Format::kBF16 || (is_integer_or_e2m1(element) && element != Format::kU8);
    constexpr std::string_view kRounded = "rounded tiles";
    if (exact) return {"tiles", kRounded, kRounded, "tiles", kRounded, kRounded};
    return {dense ? "strips" : "two-term tiles", kRounded, kRounded, "rows", "rows", "rows"};
  }
  const bool bytes = is_integer_or_e2m1(element);
  constexpr std::string_view kBytes = "panels of bytes";
  if (isa == "avx512bf16" && bytes) {
    return {"panels of digits", "panels of pairs", kBytes, "rows", "rows", kBytes};
  }
  if (isa == "avx512bf16") {
    return {"strips", "panels of pairs", "panels of pairs", "rows", "rows", "rows"};
  }
  if (isa == "avx512vnni" && bytes) {
    return {"panels of digits", "panels of short digits", kBytes, "rows", "rows", kBytes};
  }
  return {"strips", "strips", "strips", "rows", "rows", "rows"};
}

TEST(ChooseMethod, obeys_the_precision_and_keeps_to_one_method_when_asked) {
  for (const Kernels* kernels : all_kernels()) {
    for (const MatmulKernel& kernel : kernels->matmuls) {
      const Weights weights = {.cols = 1024, .group_size = 128};
      const auto chosen = [&](int64_t m, Precision precision, bool invariant) -> std::string_view {
        return choose_method(*kernels, kernel, weights, m, precision, invariant).name;
      };
      const Names names = names_of(kernels->name, kernel);
      for (const int64_t m : {1, 4, 5, 512}) {
        EXPECT_EQ(chosen(m, Precision::kF32, true), names.invariant) << kernels->name;
        EXPECT_EQ(chosen(m, Precision::kBF16, true), names.invariant_bf16) << kernels->name;
        EXPECT_EQ(chosen(m, Precision::kInt8, true), names.invariant_int8) << kernels->name;
      }
      EXPECT_EQ(chosen(1, Precision::kF32, false), "rows");
      EXPECT_EQ(chosen(1, Precision::kBF16, false), "rows");
      EXPECT_EQ(chosen(1, Precision::kInt8, false), "rows");
      EXPECT_EQ(chosen(65, Precision::kF32, false), names.f32) << kernels->name;
      EXPECT_EQ(chosen(65, Precision::kBF16, false), names.bf16) << kernels->name;
      EXPECT_EQ(chosen(65, Precision::kInt8, false), names.int8) << kernels->name;
    }
  }
}

/// The method for a matrix of 1024 columns.
Method chosen_of(std::string_view isa, const WeightFormat& format, int64_t m, Precision precision,
                 bool invariant = false) {
  for (const Kernels* kernels : all_kernels()) {
    if (kernels->name != isa) continue;
    const Weights weights = {.cols = 1024, .group_size = format.group_size};
    return choose_method(*kernels, *find_matmul(*kernels, format), weights, m, precision,
                         invariant);
  }
  return {};
}

bool is_compiled_in(std::string_view isa) {
  for (const Kernels* kernels : all_kernels()) {
    if (kernels->name == isa) return true;
  }
  return false;
}

TEST(ChooseMethod, takes_tiles_for_a_few_tokens_only_where_they_are_faster) {
  if (!is_compiled_in("amx")) GTEST_SKIP();
  const auto chosen = [&](int64_t group_size, int64_t m, Precision precision,
                          bool invariant = false) -> std::string_view {
    const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, group_size};
    return chosen_of("amx", format, m, precision, invariant).name;
  };
  EXPECT_EQ(chosen(128, 2, Precision::kF32), "rows");
  EXPECT_EQ(chosen(128, 3, Precision::kF32), "digits");
  EXPECT_EQ(chosen(128, 5, Precision::kF32), "digits");
  EXPECT_EQ(chosen(128, 6, Precision::kF32), "wide digits");
  EXPECT_EQ(chosen(1024, 8, Precision::kF32), "wide digits");
  EXPECT_EQ(chosen(128, 9, Precision::kF32), "digits");
  EXPECT_EQ(chosen(1024, 10, Precision::kF32), "digits");
  EXPECT_EQ(chosen(128, 11, Precision::kF32), "tiles");
  EXPECT_EQ(chosen(128, 2, Precision::kBF16), "rows");
  EXPECT_EQ(chosen(128, 3, Precision::kBF16), "short digits");
  EXPECT_EQ(chosen(1024, 16, Precision::kBF16), "short digits");
  EXPECT_EQ(chosen(128, 17, Precision::kBF16), "rounded tiles");
  EXPECT_EQ(chosen(32, 3, Precision::kF32), "rows");
  EXPECT_EQ(chosen(32, 4, Precision::kF32), "split group tiles");
  EXPECT_EQ(chosen(96, 8, Precision::kF32), "split group tiles");
  EXPECT_EQ(chosen(24, 8, Precision::kF32), "rows");
  EXPECT_EQ(chosen(32, 32, Precision::kF32), "split group tiles");
  EXPECT_EQ(chosen(32, 33, Precision::kF32), "two-term tiles");
  EXPECT_EQ(chosen(24, 4, Precision::kBF16), "rows");
  EXPECT_EQ(chosen(24, 5, Precision::kBF16), "rounded tiles");
  EXPECT_EQ(chosen(32, 3, Precision::kBF16), "rows");
  EXPECT_EQ(chosen(32, 4, Precision::kBF16), "group tiles");
  EXPECT_EQ(chosen(32, 16, Precision::kBF16), "group tiles");
  EXPECT_EQ(chosen(32, 17, Precision::kBF16), "rounded tiles");
  EXPECT_EQ(chosen(32, 8, Precision::kInt8), "group tiles");  // as bf16
  EXPECT_EQ(chosen(32, 17, Precision::kInt8), "rounded tiles");
  EXPECT_EQ(chosen(128, 1, Precision::kF32, true), "tiles");
  EXPECT_EQ(chosen(32, 512, Precision::kF32, true), "rows");
}

TEST(ChooseMethod, knows_which_weights_tiles_decode_fast_or_exactly) {
  if (!is_compiled_in("amx")) GTEST_SKIP();
  const auto chosen = [](const WeightFormat& format, int64_t m, Precision precision,
                         bool invariant = false) -> std::string_view {
    return chosen_of("amx", format, m, precision, invariant).name;
  };
  const WeightFormat mxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  EXPECT_EQ(chosen(mxfp4, 2, Precision::kF32), "rows");
  EXPECT_EQ(chosen(mxfp4, 3, Precision::kF32), "digits");
  EXPECT_EQ(chosen(mxfp4, 8, Precision::kF32), "wide digits");
  EXPECT_EQ(chosen(mxfp4, 11, Precision::kF32), "tiles");
  EXPECT_EQ(chosen(mxfp4, 16, Precision::kBF16), "short digits");
  EXPECT_EQ(chosen(mxfp4, 17, Precision::kBF16), "rounded tiles");
  EXPECT_EQ(chosen(mxfp4, 1, Precision::kF32, true), "tiles");
  const WeightFormat nvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
  EXPECT_EQ(chosen(nvfp4, 3, Precision::kF32), "rows");
  EXPECT_EQ(chosen(nvfp4, 4, Precision::kF32), "tiles");
  EXPECT_EQ(chosen(nvfp4, 4, Precision::kBF16), "rounded tiles");
  const WeightFormat u3 = {Format::kU3, Format::kF16, Zero::kU8, 32};
  EXPECT_EQ(chosen(u3, 3, Precision::kF32), "rows");
  EXPECT_EQ(chosen(u3, 4, Precision::kF32), "split group tiles");
  EXPECT_EQ(chosen(u3, 33, Precision::kF32), "two-term tiles");
  EXPECT_EQ(chosen(u3, 16, Precision::kBF16), "group tiles");
  EXPECT_EQ(chosen(u3, 17, Precision::kBF16), "rounded tiles");
  const WeightFormat u8 = {Format::kU8, Format::kF16, Zero::kU16, 128};
  EXPECT_EQ(chosen(u8, 2, Precision::kF32), "rows");
  EXPECT_EQ(chosen(u8, 3, Precision::kF32), "digits");
  EXPECT_EQ(chosen(u8, 8, Precision::kF32), "wide digits");
  EXPECT_EQ(chosen(u8, 64, Precision::kF32), "digits");
  EXPECT_EQ(chosen(u8, 65, Precision::kF32), "two-term tiles");
  EXPECT_EQ(chosen(u8, 32, Precision::kBF16), "short digits");
  EXPECT_EQ(chosen(u8, 33, Precision::kBF16), "rounded tiles");
  const WeightFormat nf4 = {Format::kNF4, Format::kF32, Zero::kNone, 64};
  EXPECT_EQ(chosen(nf4, 3, Precision::kF32), "rows");
  EXPECT_EQ(chosen(nf4, 4, Precision::kF32), "split group tiles");
  EXPECT_EQ(chosen(nf4, 33, Precision::kF32), "two-term tiles");
  EXPECT_EQ(chosen(nf4, 3, Precision::kBF16), "group tiles");
  EXPECT_EQ(chosen(nf4, 17, Precision::kBF16), "rounded tiles");
  EXPECT_EQ(chosen(nf4, 8, Precision::kInt8), "group tiles");
  EXPECT_EQ(chosen(nf4, 8, Precision::kBF16, true), "rows");
}

TEST(ChooseMethod, takes_panels_for_many_tokens_and_floats_for_small_groups) {
  if (!is_compiled_in("avx512bf16")) GTEST_SKIP();
  const auto expect = [&](int64_t group_size, int64_t m, Precision precision, std::string_view name,
                          ActivationOrder order) {
    const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, group_size};
    const Method method = chosen_of("avx512bf16", format, m, precision);
    EXPECT_EQ(method.name, name) << "group " << group_size << ", M " << m;
    EXPECT_EQ(method.order, order) << "group " << group_size << ", M " << m;
  };
  expect(128, 12, Precision::kF32, "rows", ActivationOrder::kThreeBytes);
  expect(128, 13, Precision::kF32, "panels of digits", ActivationOrder::kDotDigits);
  expect(32, 16, Precision::kF32, "rows", ActivationOrder::kThreeBytes);
  expect(32, 17, Precision::kF32, "strips", ActivationOrder::kOctets);
  expect(32, 8, Precision::kBF16, "rows", ActivationOrder::kThreeBytes);
  expect(32, 9, Precision::kBF16, "panels of pairs", ActivationOrder::kDotPairs);
  expect(32, 3, Precision::kInt8, "rows", ActivationOrder::kThreeBytes);
  expect(32, 4, Precision::kInt8, "panels of bytes", ActivationOrder::kDotBytes);
  const auto name = [](const WeightFormat& format, int64_t m,
                       Precision precision) -> std::string_view {
    return chosen_of("avx512bf16", format, m, precision).name;
  };
  const WeightFormat nf4 = {Format::kNF4, Format::kF32, Zero::kNone, 128};
  EXPECT_EQ(name(nf4, 16, Precision::kF32), "rows");
  EXPECT_EQ(name(nf4, 17, Precision::kF32), "strips");
  const WeightFormat bf16 = {Format::kBF16};
  EXPECT_EQ(name(bf16, 4, Precision::kBF16), "rows");
  EXPECT_EQ(name(bf16, 5, Precision::kBF16), "panels of pairs");
  EXPECT_EQ(name(bf16, 5, Precision::kInt8), "panels of pairs");
}

TEST(ChooseMethod, takes_digits_where_only_dot_products_of_bytes_are_fast) {
  if (!is_compiled_in("avx512vnni")) GTEST_SKIP();
  const auto chosen = [](const WeightFormat& format, int64_t m,
                         Precision precision) -> std::string_view {
    return chosen_of("avx512vnni", format, m, precision).name;
  };
  const WeightFormat u4 = {Format::kU4, Format::kF16, Zero::kU8, 128};
  EXPECT_EQ(chosen(u4, 3, Precision::kF32), "rows");
  EXPECT_EQ(chosen(u4, 4, Precision::kF32), "panels of digits");
  EXPECT_EQ(chosen(u4, 2, Precision::kBF16), "rows");
  EXPECT_EQ(chosen(u4, 3, Precision::kBF16), "panels of short digits");
  const WeightFormat u8 = {Format::kU8, Format::kF16, Zero::kU16, 128};
  EXPECT_EQ(chosen(u8, 5, Precision::kF32), "rows");
  EXPECT_EQ(chosen(u8, 6, Precision::kF32), "panels of digits");
  EXPECT_EQ(chosen(u8, 4, Precision::kBF16), "rows");
  EXPECT_EQ(chosen(u8, 5, Precision::kBF16), "panels of short digits");
  const WeightFormat mxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  EXPECT_EQ(chosen(mxfp4, 5, Precision::kF32), "rows");
  EXPECT_EQ(chosen(mxfp4, 12, Precision::kF32), "panels of digits");
  EXPECT_EQ(chosen(mxfp4, 13, Precision::kF32), "strips");
  EXPECT_EQ(chosen(mxfp4, 4, Precision::kBF16), "rows");
  EXPECT_EQ(chosen(mxfp4, 5, Precision::kBF16), "panels of short digits");
  EXPECT_EQ(chosen(mxfp4, 3, Precision::kInt8), "rows");
  EXPECT_EQ(chosen(mxfp4, 4, Precision::kInt8), "panels of bytes");
  const WeightFormat nvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
  EXPECT_EQ(chosen(nvfp4, 8, Precision::kBF16), "rows");
  EXPECT_EQ(chosen(nvfp4, 9, Precision::kBF16), "strips");
  EXPECT_EQ(chosen({Format::kBF16}, 5, Precision::kBF16), "strips");
}

TEST(ChooseMethod, takes_digits_for_one_or_two_tokens_without_dot_products) {
  if (!is_compiled_in("avx2")) GTEST_SKIP();
  const auto expect = [&](const WeightFormat& format, int64_t m, std::string_view name,
                          ActivationOrder order, bool invariant = false) {
    const Method method = chosen_of("avx2", format, m, Precision::kF32, invariant);
    EXPECT_EQ(method.name, name) << "M " << m;
    EXPECT_EQ(method.order, order) << "M " << m;
  };
  const WeightFormat u4 = {Format::kU4, Format::kF16, Zero::kU8, 128};
  const WeightFormat nvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
  for (const WeightFormat& format : {u4, nvfp4}) {
    expect(format, 1, "rows", ActivationOrder::kThreeBytes);
    expect(format, 2, "rows", ActivationOrder::kThreeBytes);
    expect(format, 3, "rows of floats", ActivationOrder::kOctets);
    expect(format, 8, "rows of floats", ActivationOrder::kOctets);
    expect(format, 9, "strips", ActivationOrder::kOctets);
    expect(format, 9, "rows", ActivationOrder::kThreeBytes, true);
  }
  const WeightFormat nf4 = {Format::kNF4, Format::kF32, Zero::kNone, 64};
  expect(nf4, 1, "rows", ActivationOrder::kOctets);
  expect(nf4, 5, "strips", ActivationOrder::kOctets);
}

/// The layout that cpu_kernels.h draws, element by element.
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
    constexpr uint32_t kHaveDigits = kCpuAvx2 | kCpuAvx512Vnni;
    if (!runs_here(*kernels) || (kernels->required_features & kHaveDigits) == 0) continue;
    const int64_t lanes = kernels->lanes;
    const int64_t bytes = kernels->packed_bytes(8, ActivationOrder::kThreeBytes);
    ASSERT_EQ(bytes, (9 * 4 * lanes + 63) / 64 * 64);
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
