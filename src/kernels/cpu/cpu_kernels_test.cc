#include "kernels/cpu/cpu_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_features.h"
#include "matrix/recast.h"
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
  // A new line in kernel_list.inl.h shows here, because a new element costs code in every folder,
  // with zero points and without. 16 lines are of integers with offsets, which have that of those
  // with zero points.
  for (const Kernels* kernels : all_kernels()) {
    std::set<std::string> formats;
    for (const MatmulKernel& kernel : kernels->matmuls) {
      formats.insert(to_string(WeightFormat{kernel.element, kernel.scale, kernel.zero, 32}));
    }
    EXPECT_EQ(formats.size(), 85) << kernels->name;
    EXPECT_EQ(kernels->matmuls.size(), 85) << kernels->name;
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
  EXPECT_NE(find_matmul(kernels, {Format::kVQ2, Format::kE4M4, Zero::kNone, 32}), nullptr);
  EXPECT_EQ(find_matmul(kernels, {Format::kVQ2, Format::kE4M4, Zero::kNone, 16}), nullptr);
  EXPECT_EQ(find_matmul(kernels, {Format::kE4M3, Format::kNone, Zero::kNone, 0}), nullptr);
}

TEST(MatmulKernels, have_a_variant_for_every_number_of_rows_and_a_name_for_every_variant) {
  for (const Kernels* kernels : all_kernels()) {
    for (const MatmulKernel& kernel : kernels->matmuls) {
      std::map<std::string_view, void (*)(const MatmulTask&)> by_name;
      const auto check = [&](const KernelVariant& variant) {
        ASSERT_NE(variant.multiply, nullptr);
        ASSERT_NE(variant.name, std::string_view());
        EXPECT_EQ(by_name.try_emplace(variant.name, variant.multiply).first->second,
                  variant.multiply)
            << kernels->name << ", " << variant.name;
      };
      for (const auto& lists : kernel.lists) {
        for (const VariantList& list : lists) {
          check(list.invariant);
          int64_t rows = 0;
          for (const VariantList::Entry& entry : list.entries) {
            check(entry.variant);
            EXPECT_GT(entry.max_m, rows) << kernels->name;
            rows = entry.max_m;
            if (rows == INT64_MAX) break;
          }
          EXPECT_EQ(rows, INT64_MAX) << kernels->name;
        }
      }
    }
  }
}

bool is_long_integer(Format element) {
  return element == Format::kU5 || element == Format::kU6 || element == Format::kU7 ||
         element == Format::kU8;
}
bool has_bytes(Format element) {
  return element == Format::kU2 || element == Format::kU3 || element == Format::kU4 ||
         is_long_integer(element) || element == Format::kE2M1 || element == Format::kIQ4;
}

bool is_compiled_in(std::string_view isa) {
  for (const Kernels* kernels : all_kernels()) {
    if (kernels->name == isa) return true;
  }
  return false;
}

bool sums_three_bytes(std::string_view isa) {
  return isa == "amx" || isa == "avx512bf16" || isa == "avx512vnni";
}

/// Those that avx2 has as bytes.
bool has_bytes_on_avx2(Format element) {
  return element == Format::kU4 || element == Format::kU5 || element == Format::kU6 ||
         element == Format::kU8 || element == Format::kE2M1 || element == Format::kIQ4;
}

/// Names of the variants that whole groups expect.
struct Names {
  std::string_view f32;   // of prompts
  std::string_view bf16;  // of prompts
  std::string_view int8;
  std::string_view invariant;  // f32
  std::string_view invariant_bf16;
  std::string_view invariant_int8;
};

/// Rows of activations by themselves: in limbs where there are dot products of bytes.
std::string_view gemv_of(std::string_view isa, Format element) {
  if (isa == "scalar" || isa == "avx512") return "gemv/f32";
  if (isa == "avx2") {
    return element == Format::kU4 || element == Format::kE2M1 ? "gemv/int8x3" : "gemv/f32";
  }
  if (isa == "avx512bf16" && element == Format::kNFL2) return "gemv/hi-lo";
  return has_bytes(element) ? "gemv/int8x3" : "gemv/f32";
}

Names names_of(std::string_view isa, const MatmulKernel& kernel) {
  const Format element = unsigned_element(kernel.element);
  const bool dense = kernel.scale == Format::kNone;
  const std::string_view gemv = gemv_of(isa, element);
  if (isa == "amx") {
    const bool exact = element == Format::kBF16 || element == Format::kE4M3 ||
                       (has_bytes(element) && !is_long_integer(element) &&
                        element != Format::kIQ4 && !is_offset(kernel.zero));
    constexpr std::string_view kRounded = "many_rows/bf16";
    if (exact)
      return {"many_rows/hi-lo", kRounded, kRounded, "many_rows/hi-lo", kRounded, kRounded};
    return {dense ? "gemm/f32" : "many_rows/both-hi-lo", kRounded, kRounded, gemv, gemv, gemv};
  }
  const bool bytes = has_bytes(element);
  constexpr std::string_view kBytes = "dot_gemm/int8";
  if (isa == "avx512bf16" && bytes) {
    return {"dot_gemm/int8x3", "dot_gemm/bf16", kBytes, gemv, gemv, kBytes};
  }
  if (isa == "avx512bf16") {
    return {"gemm/f32", "dot_gemm/bf16", "dot_gemm/bf16", gemv, gemv, gemv};
  }
  if (isa == "avx512vnni" && bytes) {
    return {"dot_gemm/int8x3", "dot_gemm/int8x2", kBytes, gemv, gemv, kBytes};
  }
  if (isa == "avx2" && has_bytes_on_avx2(element)) {
    return {"gemm/f32", "gemm/f32", kBytes, gemv, gemv, kBytes};
  }
  return {"gemm/f32", "gemm/f32", "gemm/f32", gemv, gemv, gemv};
}

TEST(ChooseVariant, obeys_the_precision_and_keeps_to_one_variant_where_batches_must_not_matter) {
  for (const Kernels* kernels : all_kernels()) {
    for (const MatmulKernel& kernel : kernels->matmuls) {
      const Weights weights = {.cols = 1024, .group_size = 128};
      const auto chosen = [&](int64_t m, Precision precision, bool invariant) -> std::string_view {
        return choose_variant(*kernels, kernel, weights, m, precision, invariant).name;
      };
      const Names names = names_of(kernels->name, kernel);
      const Format codes = unsigned_element(kernel.element);
      for (const int64_t m : {1, 4, 5, 512}) {
        EXPECT_EQ(chosen(m, Precision::kF32, true), names.invariant) << kernels->name;
        EXPECT_EQ(chosen(m, Precision::kBF16, true), names.invariant_bf16) << kernels->name;
        EXPECT_EQ(chosen(m, Precision::kInt8, true), names.invariant_int8) << kernels->name;
      }
      const std::string_view gemv = gemv_of(kernels->name, codes);
      EXPECT_EQ(chosen(1, Precision::kF32, false), gemv) << kernels->name;
      EXPECT_EQ(chosen(1, Precision::kBF16, false), gemv) << kernels->name;
      const bool is_left_to_avx2 = sums_three_bytes(kernels->name) && is_compiled_in("avx2") &&
                                   codes == Format::kU4 && is_offset(kernel.zero);
      const bool one_in_bytes = (sums_three_bytes(kernels->name) && has_bytes(codes)) ||
                                (kernels->name == "avx2" && has_bytes_on_avx2(codes));
      const bool of_k32 = is_left_to_avx2 || (kernels->name == "avx2" && codes == Format::kU4);
      const std::string_view bytes = of_k32 ? "gemv/int8-k32" : "gemv/int8";
      EXPECT_EQ(chosen(1, Precision::kInt8, false), one_in_bytes ? bytes : gemv) << kernels->name;
      EXPECT_EQ(chosen(65, Precision::kF32, false), names.f32) << kernels->name;
      EXPECT_EQ(chosen(65, Precision::kBF16, false), names.bf16) << kernels->name;
      EXPECT_EQ(chosen(65, Precision::kInt8, false), names.int8) << kernels->name;
    }
  }
}

/// The variant for a matrix of 1024 columns.
KernelVariant chosen_of(std::string_view isa, const WeightFormat& format, int64_t m,
                        Precision precision, bool invariant = false) {
  for (const Kernels* kernels : all_kernels()) {
    if (kernels->name != isa) continue;
    const Weights weights = {.cols = 1024, .group_size = format.group_size};
    return choose_variant(*kernels, *find_matmul(*kernels, format), weights, m, precision,
                          invariant);
  }
  return {};
}

TEST(ChooseVariant, takes_tiles_for_a_few_tokens_only_where_they_are_faster) {
  if (!is_compiled_in("amx")) GTEST_SKIP() << "this build has no kernels for amx";
  const auto chosen = [&](int64_t group_size, int64_t m, Precision precision,
                          bool invariant = false) -> std::string_view {
    const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, group_size};
    return chosen_of("amx", format, m, precision, invariant).name;
  };
  EXPECT_EQ(chosen(128, 2, Precision::kF32), "gemv/int8x3");
  EXPECT_EQ(chosen(128, 3, Precision::kF32), "few_rows/int8x3");
  EXPECT_EQ(chosen(128, 5, Precision::kF32), "few_rows/int8x3");
  EXPECT_EQ(chosen(128, 6, Precision::kF32), "few_rows/int8x3-wide");
  EXPECT_EQ(chosen(1024, 8, Precision::kF32), "few_rows/int8x3-wide");
  EXPECT_EQ(chosen(128, 9, Precision::kF32), "few_rows/int8x3");
  EXPECT_EQ(chosen(1024, 10, Precision::kF32), "few_rows/int8x3");
  EXPECT_EQ(chosen(128, 11, Precision::kF32), "many_rows/hi-lo");
  EXPECT_EQ(chosen(128, 2, Precision::kBF16), "gemv/int8x3");
  EXPECT_EQ(chosen(128, 3, Precision::kBF16), "few_rows/int8x2");
  EXPECT_EQ(chosen(1024, 16, Precision::kBF16), "few_rows/int8x2");
  EXPECT_EQ(chosen(128, 17, Precision::kBF16), "many_rows/bf16");
  EXPECT_EQ(chosen(32, 3, Precision::kF32), "gemv/int8x3");
  EXPECT_EQ(chosen(32, 4, Precision::kF32), "few_rows/hi-lo");
  EXPECT_EQ(chosen(96, 8, Precision::kF32), "few_rows/hi-lo");
  EXPECT_EQ(chosen(24, 8, Precision::kF32), "gemv/int8x3");
  EXPECT_EQ(chosen(32, 32, Precision::kF32), "few_rows/hi-lo");
  EXPECT_EQ(chosen(32, 33, Precision::kF32), "many_rows/both-hi-lo");
  EXPECT_EQ(chosen(24, 4, Precision::kBF16), "gemv/int8x3");
  EXPECT_EQ(chosen(24, 5, Precision::kBF16), "many_rows/bf16");
  EXPECT_EQ(chosen(32, 3, Precision::kBF16), "gemv/int8x3");
  EXPECT_EQ(chosen(32, 4, Precision::kBF16), "few_rows/bf16");
  EXPECT_EQ(chosen(32, 16, Precision::kBF16), "few_rows/bf16");
  EXPECT_EQ(chosen(32, 17, Precision::kBF16), "many_rows/bf16");
  EXPECT_EQ(chosen(32, 3, Precision::kInt8), "gemv/int8");
  EXPECT_EQ(chosen(32, 8, Precision::kInt8), "few_rows/bf16");  // as bf16
  EXPECT_EQ(chosen(32, 17, Precision::kInt8), "many_rows/bf16");
  EXPECT_EQ(chosen(128, 1, Precision::kF32, true), "many_rows/hi-lo");
  EXPECT_EQ(chosen(32, 512, Precision::kF32, true), "gemv/int8x3");
}

TEST(ChooseVariant, knows_which_weights_tiles_decode_fast_or_exactly) {
  if (!is_compiled_in("amx")) GTEST_SKIP() << "this build has no kernels for amx";
  const auto chosen = [](const WeightFormat& format, int64_t m, Precision precision,
                         bool invariant = false) -> std::string_view {
    return chosen_of("amx", format, m, precision, invariant).name;
  };
  const WeightFormat mxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  EXPECT_EQ(chosen(mxfp4, 2, Precision::kF32), "gemv/int8x3");
  EXPECT_EQ(chosen(mxfp4, 3, Precision::kF32), "few_rows/int8x3");
  EXPECT_EQ(chosen(mxfp4, 8, Precision::kF32), "few_rows/int8x3-wide");
  EXPECT_EQ(chosen(mxfp4, 11, Precision::kF32), "many_rows/hi-lo");
  EXPECT_EQ(chosen(mxfp4, 16, Precision::kBF16), "few_rows/int8x2");
  EXPECT_EQ(chosen(mxfp4, 17, Precision::kBF16), "many_rows/bf16");
  EXPECT_EQ(chosen(mxfp4, 1, Precision::kF32, true), "many_rows/hi-lo");
  const WeightFormat nvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
  EXPECT_EQ(chosen(nvfp4, 3, Precision::kF32), "gemv/int8x3");
  EXPECT_EQ(chosen(nvfp4, 4, Precision::kF32), "many_rows/hi-lo");
  EXPECT_EQ(chosen(nvfp4, 4, Precision::kBF16), "many_rows/bf16");
  const WeightFormat u3 = {Format::kU3, Format::kF16, Zero::kU8, 32};
  EXPECT_EQ(chosen(u3, 3, Precision::kF32), "gemv/int8x3");
  EXPECT_EQ(chosen(u3, 4, Precision::kF32), "few_rows/hi-lo");
  EXPECT_EQ(chosen(u3, 33, Precision::kF32), "many_rows/both-hi-lo");
  EXPECT_EQ(chosen(u3, 16, Precision::kBF16), "few_rows/bf16");
  EXPECT_EQ(chosen(u3, 17, Precision::kBF16), "many_rows/bf16");
  const WeightFormat u8 = {Format::kU8, Format::kF16, Zero::kU16, 128};
  EXPECT_EQ(chosen(u8, 2, Precision::kF32), "gemv/int8x3");
  EXPECT_EQ(chosen(u8, 3, Precision::kF32), "few_rows/int8x3");
  EXPECT_EQ(chosen(u8, 8, Precision::kF32), "few_rows/int8x3-wide");
  EXPECT_EQ(chosen(u8, 64, Precision::kF32), "few_rows/int8x3");
  EXPECT_EQ(chosen(u8, 65, Precision::kF32), "many_rows/both-hi-lo");
  EXPECT_EQ(chosen(u8, 32, Precision::kBF16), "few_rows/int8x2");
  EXPECT_EQ(chosen(u8, 33, Precision::kBF16), "many_rows/bf16");
  const WeightFormat nf4 = {Format::kNF4, Format::kF32, Zero::kNone, 64};
  EXPECT_EQ(chosen(nf4, 3, Precision::kF32), "gemv/f32");
  EXPECT_EQ(chosen(nf4, 4, Precision::kF32), "few_rows/hi-lo");
  EXPECT_EQ(chosen(nf4, 33, Precision::kF32), "many_rows/both-hi-lo");
  EXPECT_EQ(chosen(nf4, 3, Precision::kBF16), "few_rows/bf16");
  EXPECT_EQ(chosen(nf4, 17, Precision::kBF16), "many_rows/bf16");
  EXPECT_EQ(chosen(nf4, 8, Precision::kInt8), "few_rows/bf16");
  EXPECT_EQ(chosen(nf4, 8, Precision::kBF16, true), "gemv/f32");
}

TEST(ChooseVariant, takes_panels_for_many_tokens_and_floats_for_small_groups) {
  if (!is_compiled_in("avx512bf16")) GTEST_SKIP() << "this build has no kernels for avx512bf16";
  const auto expect = [&](int64_t group_size, int64_t m, Precision precision,
                          std::string_view name) {
    const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, group_size};
    const KernelVariant variant = chosen_of("avx512bf16", format, m, precision);
    EXPECT_EQ(variant.name, name) << "group " << group_size << ", M " << m;
  };
  expect(128, 12, Precision::kF32, "gemv/int8x3");
  expect(128, 13, Precision::kF32, "dot_gemm/int8x3");
  expect(32, 16, Precision::kF32, "gemv/int8x3");
  expect(32, 17, Precision::kF32, "gemm/f32");
  expect(32, 8, Precision::kBF16, "gemv/int8x3");
  expect(32, 9, Precision::kBF16, "dot_gemm/bf16");
  expect(32, 3, Precision::kInt8, "gemv/int8");
  expect(32, 4, Precision::kInt8, "dot_gemm/int8");
  const auto name = [](const WeightFormat& format, int64_t m,
                       Precision precision) -> std::string_view {
    return chosen_of("avx512bf16", format, m, precision).name;
  };
  const WeightFormat nf4 = {Format::kNF4, Format::kF32, Zero::kNone, 128};
  EXPECT_EQ(name(nf4, 16, Precision::kF32), "gemv/f32");
  EXPECT_EQ(name(nf4, 17, Precision::kF32), "gemm/f32");
  for (const Format element : {Format::kBF16, Format::kF16}) {
    const WeightFormat dense = {element};
    for (const Precision precision : {Precision::kBF16, Precision::kInt8}) {
      EXPECT_EQ(name(dense, 4, precision), "gemv/f32");
      EXPECT_EQ(name(dense, 16, precision), "gemm/f32");
      EXPECT_EQ(name(dense, 17, precision), "dot_gemm/bf16");
    }
  }
}

TEST(ChooseVariant, takes_int8x3_where_only_dot_products_of_bytes_are_fast) {
  if (!is_compiled_in("avx512vnni")) GTEST_SKIP() << "this build has no kernels for avx512vnni";
  const auto chosen = [](const WeightFormat& format, int64_t m,
                         Precision precision) -> std::string_view {
    return chosen_of("avx512vnni", format, m, precision).name;
  };
  const WeightFormat u4 = {Format::kU4, Format::kF16, Zero::kU8, 128};
  EXPECT_EQ(chosen(u4, 3, Precision::kF32), "gemv/int8x3");
  EXPECT_EQ(chosen(u4, 4, Precision::kF32), "dot_gemm/int8x3");
  EXPECT_EQ(chosen(u4, 2, Precision::kBF16), "gemv/int8x3");
  EXPECT_EQ(chosen(u4, 3, Precision::kBF16), "dot_gemm/int8x2");
  const WeightFormat u8 = {Format::kU8, Format::kF16, Zero::kU16, 128};
  EXPECT_EQ(chosen(u8, 5, Precision::kF32), "gemv/int8x3");
  EXPECT_EQ(chosen(u8, 6, Precision::kF32), "dot_gemm/int8x3");
  EXPECT_EQ(chosen(u8, 4, Precision::kBF16), "gemv/int8x3");
  EXPECT_EQ(chosen(u8, 5, Precision::kBF16), "dot_gemm/int8x2");
  const WeightFormat mxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  EXPECT_EQ(chosen(mxfp4, 5, Precision::kF32), "gemv/int8x3");
  EXPECT_EQ(chosen(mxfp4, 12, Precision::kF32), "dot_gemm/int8x3");
  EXPECT_EQ(chosen(mxfp4, 13, Precision::kF32), "gemm/f32");
  EXPECT_EQ(chosen(mxfp4, 4, Precision::kBF16), "gemv/int8x3");
  EXPECT_EQ(chosen(mxfp4, 5, Precision::kBF16), "dot_gemm/int8x2");
  EXPECT_EQ(chosen(mxfp4, 3, Precision::kInt8), "gemv/int8");
  EXPECT_EQ(chosen(mxfp4, 4, Precision::kInt8), "dot_gemm/int8");
  const WeightFormat nvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
  EXPECT_EQ(chosen(nvfp4, 8, Precision::kBF16), "gemv/int8x3");
  EXPECT_EQ(chosen(nvfp4, 9, Precision::kBF16), "gemm/f32");
  EXPECT_EQ(chosen({Format::kBF16}, 5, Precision::kBF16), "gemm/f32");
}

TEST(ChooseVariant, takes_int8x3_for_one_or_two_tokens_without_dot_products) {
  if (!is_compiled_in("avx2")) GTEST_SKIP() << "this build has no kernels for avx2";
  const auto expect = [&](const WeightFormat& format, int64_t m, std::string_view name,
                          bool invariant = false) {
    const KernelVariant variant = chosen_of("avx2", format, m, Precision::kF32, invariant);
    EXPECT_EQ(variant.name, name) << "M " << m;
  };
  const WeightFormat u4 = {Format::kU4, Format::kF16, Zero::kU8, 128};
  const WeightFormat nvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
  for (const WeightFormat& format : {u4, nvfp4}) {
    expect(format, 1, "gemv/int8x3");
    expect(format, 2, "gemv/int8x3");
    expect(format, 3, "gemv/f32");
    expect(format, 8, "gemv/f32");
    expect(format, 9, "gemm/f32");
    expect(format, 9, "gemv/int8x3", true);
  }
  const WeightFormat nf4 = {Format::kNF4, Format::kF32, Zero::kNone, 64};
  expect(nf4, 1, "gemv/f32");
  expect(nf4, 5, "gemm/f32");
}

TEST(ChooseVariant, takes_bytes_for_every_m_without_dot_products) {
  if (!is_compiled_in("avx2")) GTEST_SKIP() << "this build has no kernels for avx2";
  const WeightFormat q4_k = {Format::kU4, Format::kU6, Zero::kOffsetU6, 32};
  const WeightFormat q6_k = {Format::kI6, Format::kI8, Zero::kNone, 16};
  for (const WeightFormat& format : {q4_k, q6_k}) {
    const std::string_view few = format.group_size == 32 ? "gemv/int8-k32" : "gemv/int8";
    EXPECT_EQ(chosen_of("avx2", format, 1, Precision::kInt8).name, few);
    EXPECT_EQ(chosen_of("avx2", format, 4, Precision::kInt8).name, few);
    EXPECT_EQ(chosen_of("avx2", format, 5, Precision::kInt8).name, "dot_gemm/int8");
  }
}

/// Codes of four bits with offsets in groups of 32 n, for a few rows in bytes; the table of the
/// other tier is of the same kernels in the same order, and wants no more scratch.
TEST(ChooseVariant, leaves_a_few_rows_in_bytes_to_avx2) {
  if (!is_compiled_in("avx2")) GTEST_SKIP() << "this build has no kernels for avx2";
  const WeightFormat q4_k = {Format::kU4, Format::kU6, Zero::kOffsetU6, 32};
  const WeightFormat q4_0 = {Format::kI4, Format::kF16, Zero::kNone, 32};
  for (const Kernels* kernels : all_kernels()) {
    if (!sums_three_bytes(kernels->name)) continue;
    const auto chosen = [&](const WeightFormat& format, int64_t m, Precision precision) {
      return chosen_of(kernels->name, format, m, precision).name;
    };
    EXPECT_STREQ(chosen(q4_k, 1, Precision::kInt8), "gemv/int8-k32") << kernels->name;
    EXPECT_STREQ(chosen(q4_k, 3, Precision::kInt8), "gemv/int8-k32") << kernels->name;
    EXPECT_STRNE(chosen(q4_k, 12, Precision::kInt8), "gemv/int8-k32") << kernels->name;
    EXPECT_STREQ(chosen(q4_k, 1, Precision::kF32), "gemv/int8x3") << kernels->name;
    EXPECT_STREQ(chosen(q4_0, 1, Precision::kInt8), "gemv/int8") << kernels->name;
    EXPECT_STREQ(chosen_of(kernels->name, q4_k, 1, Precision::kInt8, true).name,
                 kernels->name == "amx" ? "gemv/int8x3" : "dot_gemm/int8");
    for (const Kernels* avx2 : all_kernels()) {
      if (avx2->name != "avx2") continue;
      EXPECT_EQ(find_matmul(*avx2, q4_k) - avx2->matmuls.data(),
                find_matmul(*kernels, q4_k) - kernels->matmuls.data());
      for (int64_t k = 8; k < 1 << 17; k += 1000) {
        EXPECT_LE(avx2->scratch_bytes(k), kernels->scratch_bytes(k)) << kernels->name << ", " << k;
      }
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
