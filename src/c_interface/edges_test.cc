// Sizes at the edges of 64 bits: every call ends with a result or with one line, and reads and
// writes nothing that it was not given.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "support/c_handles.h"

namespace subbyte::testing {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kEdges[] = {kLeast,
                              kLeast + 1,
                              -(int64_t{1} << 32),
                              -1,
                              0,
                              1,
                              2,
                              7,
                              8,
                              31,
                              32,
                              33,
                              63,
                              64,
                              128,
                              (1 << 24) - 1,
                              1 << 24,
                              (1 << 24) + 1,
                              int64_t{1} << 31,
                              int64_t{1} << 32,
                              int64_t{1} << 40,
                              int64_t{1} << 62,
                              kMost - 63,
                              kMost};
constexpr int64_t kBytes = 1 << 14;

int64_t edge(Random& random) {
  return kEdges[random.below(std::size(kEdges))];
}

/// Checks that a call has said why it was refused, in one line.
void expect_ended(int result) {
  if (result == SUBBYTE_OK) return;
  EXPECT_NE(subbyte_last_error_code(), std::string());
  EXPECT_NE(std::string(subbyte_last_error_code()), "c.exception") << subbyte_last_error();
  EXPECT_EQ(std::string(subbyte_last_error()).find('\n'), std::string::npos);
}

/// Changes up to three of the numbers.
void change(Random& random, const std::vector<int64_t*>& numbers) {
  for (uint64_t i = 0; i <= random.below(3); ++i) {
    *numbers[random.below(numbers.size())] = edge(random);
  }
}

TEST(CEdges, of_descriptions) {
  const CContext context = c_context();
  Random random(57);
  const std::vector<std::byte> bytes(kBytes, std::byte{1});
  const std::vector<float> codebook = {-1, -0.5, 0.5, 1};
  int num_made = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto w = c_struct<subbyte_weights>();
    w.element = static_cast<int32_t>(1 + random.below(SUBBYTE_VQ4));
    w.scale = random.below(4) == 0 ? SUBBYTE_NONE : static_cast<int32_t>(random.below(9));
    w.zero = static_cast<int32_t>(random.below(2) == 0 ? 0 : random.below(SUBBYTE_U16 + 1));
    w.codes = w.scales = w.zeros = bytes.data();
    w.rows = static_cast<int64_t>(1 + random.below(9));
    w.cols = static_cast<int64_t>(1 + random.below(130));
    w.group_size = static_cast<int64_t>(random.below(40));
    w.tensor_scale = 0.5;
    if (w.element == SUBBYTE_NFL2) w.codebook = codebook.data();
    w.row_order = static_cast<int32_t>(random.below(3));
    w.borrow = static_cast<int32_t>(random.below(2));
    change(random,
           {&w.rows, &w.cols, &w.group_size, &w.codes_stride, &w.scales_stride, &w.zeros_stride});
    w.codes_bytes = w.scales_bytes = w.zeros_bytes = kBytes;
    subbyte_matrix* made = nullptr;
    const int result = subbyte_matrix_create(context.get(), &w, nullptr, &made);
    expect_ended(result);
    if (result != SUBBYTE_OK) {
      EXPECT_EQ(made, nullptr);
      continue;
    }
    const CMatrix matrix(made);
    ++num_made;
    // Its codes are bytes that were given, two bits or more each.
    ASSERT_LE(w.rows * w.cols, kBytes * 4);
    constexpr float kPoison = 12345;
    std::vector<float> out(static_cast<std::size_t>(w.rows * w.cols) + 1, kPoison);
    std::vector<float> again = out;
    expect_ended(subbyte_matrix_dequantize(made, SUBBYTE_F32, out.data(), nullptr));
    expect_ended(subbyte_dequantize(context.get(), &w, SUBBYTE_F32, again.data(), nullptr));
    EXPECT_TRUE(std::ranges::equal(out, again, [](float a, float b) { return a == b || a != a; }));
    EXPECT_EQ(out.back(), kPoison);
    EXPECT_EQ(std::ranges::count(out, kPoison), 1) << "a weight that nobody wrote";
    int64_t size = 0;
    expect_ended(subbyte_matrix_bytes(made, &size));
    EXPECT_EQ(size > 0, w.rows > 0);
  }
  EXPECT_GT(num_made, 1000);
}

TEST(CEdges, of_products) {
  const CContext context = c_context();
  Random random(58);
  const std::vector<std::byte> bytes(kBytes, std::byte{1});
  auto w = c_struct<subbyte_weights>();
  w.element = SUBBYTE_U4;
  w.scale = SUBBYTE_F32;
  w.codes = w.scales = bytes.data();
  w.rows = 4;
  w.cols = 64;
  w.codes_bytes = w.scales_bytes = kBytes;
  const CMatrix matrix = c_matrix(context, w);
  std::vector<float> x(kBytes), y(kBytes);
  for (int i = 0; i < 20'000; ++i) {
    auto p = c_struct<subbyte_product>();
    p.x = x.data();
    p.y = y.data();
    p.number = SUBBYTE_F32;
    p.m = static_cast<int64_t>(random.below(3));
    p.batch = static_cast<int64_t>(random.below(3));
    change(random, {&p.m, &p.batch, &p.x_stride, &p.y_stride, &p.residual_stride, &p.x_batch_stride,
                    &p.y_batch_stride, &p.residual_batch_stride});
    // It reserves with the same checks, and reads no number.
    expect_ended(subbyte_product_reserve(matrix.get(), &p));
    const bool is_small = p.m >= 0 && p.m <= 2 && p.batch >= 0 && p.batch <= 2;
    for (const int64_t stride : {p.x_stride, p.y_stride, p.x_batch_stride, p.y_batch_stride}) {
      if (is_small && stride > 256) p.m = p.batch = 0;  // beyond the buffers
    }
    if (is_small) expect_ended(subbyte_multiply(matrix.get(), &p));
  }
  auto p = c_struct<subbyte_product>();
  p.m = (int64_t{1} << 31) - 1;
  p.number = SUBBYTE_F32;
  p.x_stride = (int64_t{1} << 40) - 1;
  EXPECT_EQ(code_of(subbyte_product_reserve(matrix.get(), &p)), "c.argument") << "2^71 numbers";
  p.x_stride = 0;
  p.m = 1;
  p.batch = 4;
  p.y_batch_stride = kMost / 2;
  EXPECT_EQ(code_of(subbyte_product_reserve(matrix.get(), &p)), "c.argument") << "4 of 2^62";
}

TEST(CEdges, of_blocks_and_kbit) {
  Random random(59);
  for (int i = 0; i < 20'000; ++i) {
    auto blocks = c_struct<subbyte_blocks>();
    blocks.format = std::array{"mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4"}[random.below(4)];
    blocks.layout = std::array{"linear", "128x4", "8x4"}[random.below(3)];
    blocks.input = SUBBYTE_F32;
    blocks.rows = blocks.cols = blocks.alignment = 64;
    change(random, {&blocks.rows, &blocks.cols, &blocks.alignment});
    auto sizes = c_struct<subbyte_blocks_sizes>();
    const int measured = subbyte_blocks_measure(&blocks, &sizes);
    expect_ended(measured);
    if (measured == SUBBYTE_OK) {
      EXPECT_GE(sizes.padded_cols, blocks.cols);
      EXPECT_GE(sizes.code_bytes, blocks.rows * blocks.cols / 2);
      EXPECT_GE(sizes.scale_rows, blocks.rows);
      EXPECT_GE(sizes.scale_cols, blocks.cols / 32);
    }
    auto kbit = c_struct<subbyte_kbit>();
    kbit.k = 4;
    kbit.n = kbit.k_dim = 128;
    kbit.tiled = static_cast<int32_t>(random.below(2));
    change(random, {&kbit.n, &kbit.k_dim});
    int64_t words = 0, scales = 0;
    const int kbit_measured = subbyte_kbit_measure(&kbit, &words, &scales);
    expect_ended(kbit_measured);
    if (kbit_measured != SUBBYTE_OK) continue;
    EXPECT_GE(words, 0);
    EXPECT_GE(scales, 0);
  }
}

TEST(CEdges, of_kbit_with_buffers) {
  const CContext context = c_context();
  Random random(60);
  std::vector<uint32_t> packed(kBytes);
  std::vector<uint8_t> absmax(kBytes);
  std::vector<float> numbers(kBytes, 0.5f);
  const std::vector<float> codebook = {-1, -0.5, 0.5, 1};
  for (int i = 0; i < 20'000; ++i) {
    auto kbit = c_struct<subbyte_kbit>();
    kbit.packed = packed.data();
    kbit.absmax = absmax.data();
    kbit.codebook = codebook.data();
    kbit.k = 2;
    kbit.n = 64;
    kbit.k_dim = 64;
    change(random, {&kbit.n, &kbit.k_dim});
    // Buffers hold a block of no larger shape, and none is read beyond.
    kbit.packed_words = 64 * 64 / 32 * 2 + 4;
    kbit.absmax_elements = 64 * 64 / 32 + 2;
    kbit.tiled = static_cast<int32_t>(random.below(2));
    expect_ended(subbyte_kbit_quantize(context.get(), numbers.data(), SUBBYTE_F32, &kbit));
    expect_ended(subbyte_kbit_dequantize(context.get(), &kbit, SUBBYTE_F32, numbers.data()));
    std::ranges::fill(numbers, 0.5f);
    const int64_t m = std::array{kLeast,     int64_t{-1},      int64_t{0},
                                 int64_t{1}, int64_t{1} << 31, kMost}[random.below(6)];
    if (kbit.n <= 64 && kbit.k_dim <= 64) {
      expect_ended(subbyte_kbit_multiply(context.get(), &kbit, numbers.data(), numbers.data() + 64,
                                         m, SUBBYTE_F16, nullptr, 0));
    }
    expect_ended(subbyte_hadamard_rotate(numbers.data(), std::min<int64_t>(edge(random), 64),
                                         SUBBYTE_F16, edge(random), nullptr));
    std::ranges::fill(numbers, 0.5f);
  }
  auto kbit = c_struct<subbyte_kbit>();
  kbit.packed = packed.data();
  kbit.absmax = absmax.data();
  kbit.codebook = codebook.data();
  kbit.packed_words = kbit.absmax_elements = kBytes;
  kbit.k = 2;
  kbit.n = kbit.k_dim = 64;
  for (const auto& [size, code] : {std::pair(0.5f, "ok"), std::pair(1e-30f, "quantize.loss"),
                                   std::pair(32.0f, "quantize.scale_overflow")}) {
    std::ranges::fill(numbers, size);
    EXPECT_EQ(code_of(subbyte_kbit_quantize(context.get(), numbers.data(), SUBBYTE_F32, &kbit)),
              code);
  }
  kbit.n = 1;
  kbit.k_dim = (int64_t{1} << 39);
  EXPECT_EQ(code_of(subbyte_kbit_multiply(context.get(), &kbit, numbers.data(), numbers.data(),
                                          (int64_t{1} << 31) - 1, SUBBYTE_F16, nullptr, 0)),
            "c.argument")
      << "2^70 numbers";
}

TEST(CEdges, of_groups) {
  const CContext context = c_context();
  const std::vector<std::byte> bytes(kBytes);
  std::vector<std::byte> out(kBytes);
  std::vector<int32_t> rows((1 << 20) + 1);
  auto weights = c_struct<subbyte_group_weights>();
  weights.b = weights.b_scale = bytes.data();
  // b would have 2^67 bytes, which is 0 where products wrap.
  weights.groups = 1 << 20;
  weights.n = weights.k = 1 << 24;
  subbyte_group_gemm* made = nullptr;
  ASSERT_EQ(subbyte_group_gemm_create(context.get(), &weights, nullptr, &made), SUBBYTE_OK);
  auto call = c_struct<subbyte_group_call>();
  call.a = call.a_scale = bytes.data();
  call.out = out.data();
  call.m_indptr = rows.data();
  EXPECT_EQ(code_of(subbyte_group_gemm_run(made, &call)), "group_gemm.b");
  subbyte_group_gemm_destroy(made);
  Random random(61);
  for (int i = 0; i < 2'000; ++i) {
    weights.groups = 1;
    weights.n = weights.k = 128;
    weights.b_bytes = weights.b_scale_bytes = kBytes;
    change(random,
           {&weights.groups, &weights.n, &weights.k, &weights.b_bytes, &weights.b_scale_bytes});
    if (subbyte_group_gemm_create(context.get(), &weights, nullptr, &made) != SUBBYTE_OK) continue;
    change(random, {&call.m, &call.a_bytes, &call.a_scale_bytes, &call.out_bytes});
    expect_ended(subbyte_group_gemm_run(made, &call));
    expect_ended(subbyte_group_gemm_reserve(made, edge(random), nullptr));
    subbyte_group_gemm_destroy(made);
    int64_t row = 0;
    expect_ended(subbyte_group_scale_row(rows.data(), std::min<int64_t>(edge(random), 1 << 10),
                                         edge(random), &row));
  }
}

TEST(CEdges, of_quantizers) {
  const CContext context = c_context();
  Random random(62);
  const std::vector<float> numbers(kBytes, 0.5f);
  for (int i = 0; i < 5'000; ++i) {
    auto quantizer = c_struct<subbyte_quantizer>();
    quantizer.format = std::array{"awq", "gptq", "nf4", "kbit", "nvfp4", "mxfp4"}[random.below(6)];
    int64_t rows = 4, cols = 128, bits = 0;
    change(random, {&rows, &cols, &quantizer.group_size, &bits});
    quantizer.bits = static_cast<int32_t>(bits);
    const bool is_given = rows <= 128 && cols <= 128;
    const bool is_beyond = rows > 1 << 24 || cols > 1 << 24;
    if (!is_given && !is_beyond) continue;
    subbyte_matrix* made = nullptr;
    const int result = subbyte_matrix_quantize(context.get(), &quantizer, numbers.data(),
                                               SUBBYTE_F32, rows, cols, &made);
    expect_ended(result);
    EXPECT_TRUE(!is_beyond || result != SUBBYTE_OK);
    subbyte_matrix_destroy(made);
  }
}

}  // namespace
}  // namespace subbyte::testing
