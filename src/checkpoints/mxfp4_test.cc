// Random blocks, read by the table of E2M1 values and 2^(byte - 127).

#include <gtest/gtest.h>

#include "support/import_fixture.h"

namespace subbyte {
namespace {

constexpr double kE2M1[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                              -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

struct Experts {
  TestTensor blocks, scales;
  int64_t experts, rows, cols;

  double weight(int64_t e, int64_t n, int64_t k) const {
    const int64_t block = ((e * rows + n) * cols + k) / 32;
    const auto byte = blocks.at<uint8_t>(block * 16 + k % 32 / 2);
    const double element = kE2M1[k % 2 == 0 ? byte & 0xF : byte >> 4];  // low nibble first
    return element * std::ldexp(1.0, scales.at<uint8_t>(block) - 127);
  }
};

Experts random_experts(uint64_t experts, uint64_t rows, uint64_t cols) {
  Random random(experts * 100 + rows + cols);
  Experts made = {random_bits("m_blocks", DType::kU8, {experts, rows, cols / 32, 16}, random),
                  random_bits("m_scales", DType::kU8, {experts, rows, cols / 32}, random),
                  static_cast<int64_t>(experts), static_cast<int64_t>(rows),
                  static_cast<int64_t>(cols)};
  for (char& byte : made.scales.bytes) byte = byte == '\xFF' ? '\x7F' : byte;
  return made;
}

class Mxfp4 : public ImportFixture {
 protected:
  Mxfp4() { config_.method = Method::kMxfp4; }

  void expect_experts(const Experts& made) {
    const auto matrices = import_experts(context(), "m");
    ASSERT_TRUE(matrices.ok()) << matrices.error().message;
    ASSERT_EQ(static_cast<int64_t>(matrices->size()), made.experts);
    for (int64_t e = 0; e < made.experts; ++e) {
      expect_equal((*matrices)[e].view, made.rows, made.cols,
                   [&](int64_t n, int64_t k) { return made.weight(e, n, k); });
    }
  }
};

TEST_F(Mxfp4, decodes_all_experts) {
  for (const auto& [experts, rows, cols] :
       {std::tuple(1, 1, 32), {3, 10, 96}, {2, 17, 256}, {8, 6, 64}}) {
    const Experts made = random_experts(experts, rows, cols);
    open({made.blocks, made.scales});
    expect_experts(made);
  }
}

TEST_F(Mxfp4, decodes_the_byte_whose_value_is_known) {
  // Byte 0x5e with scale 123: element 0 is -0.25, element 1 is 0.1875.
  open({filled<uint8_t>("m_blocks", DType::kU8, {1, 1, 1, 16}, 0x5E),
        filled<uint8_t>("m_scales", DType::kU8, {1, 1, 1}, 123)});
  expect_weights(1, 32, [](int64_t, int64_t k) { return k % 2 == 0 ? -0.25 : 0.1875; });
}

TEST_F(Mxfp4, the_smallest_scale_is_not_zero) {
  open({filled<uint8_t>("m_blocks", DType::kU8, {1, 2, 1, 16}, 0x72),
        filled<uint8_t>("m_scales", DType::kU8, {1, 2, 1}, 0)});
  expect_weights(2, 32, [](int64_t, int64_t k) { return k % 2 == 0 ? 0x1p-127 : 0x6p-127; });
}

TEST_F(Mxfp4, uses_the_bytes_where_they_lie) {
  const Experts made = random_experts(2, 4, 64);
  open({made.blocks, made.scales});
  const auto matrices = import_experts(context(), "m");
  ASSERT_TRUE(matrices.ok());
  const Tensor* blocks = source_->find("m_blocks");
  EXPECT_EQ((*matrices)[0].view.codes.data(), blocks->bytes.data());
  EXPECT_EQ((*matrices)[1].view.codes.data(), blocks->bytes.data() + 4 * 2 * 16);
  // The matrices keep the mapping alive without the source.
  source_.reset();
  expect_equal((*matrices)[1].view, 4, 64,
               [&](int64_t n, int64_t k) { return made.weight(1, n, k); });
}

TEST_F(Mxfp4, does_not_depend_on_the_alignment_of_the_file) {
  const Experts made = random_experts(2, 3, 64);
  for (const std::size_t remainder : {1, 3, 6}) {
    open_misaligned({made.scales, made.blocks}, remainder);
    expect_experts(made);
  }
}

TEST_F(Mxfp4, describes_the_experts) {
  const Experts made = random_experts(3, 10, 96);
  open({made.blocks, made.scales});
  const auto info = describe_module(context(), "m");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->importer, "mxfp4");
  EXPECT_EQ(info->experts, 3);
  EXPECT_EQ(info->rows, 10);
  EXPECT_EQ(info->cols, 96);
  EXPECT_EQ(to_string(info->format), "e2m1 g32 scale e8m0");
  EXPECT_EQ(info->bytes(), 3u * 10 * 3 * 17);
}

TEST_F(Mxfp4, refuses_wrong_shapes_types_and_nan) {
  const Experts good = random_experts(2, 4, 64);
  Random random(1);
  const auto blocks = [&](DType dtype, Shape shape) {
    return code_of({random_bits("m_blocks", dtype, std::move(shape), random), good.scales});
  };
  const auto scales = [&](DType dtype, Shape shape) {
    return code_of({good.blocks, filled<uint8_t>("m_scales", dtype, std::move(shape), 120)});
  };
  EXPECT_EQ(blocks(DType::kU8, {2, 4, 32}), "import.shape");  // three dimensions
  EXPECT_EQ(blocks(DType::kU8, {2, 4, 2, 8}), "import.shape");
  EXPECT_EQ(blocks(DType::kU8, {2, 4, 2, 32}), "import.shape");
  EXPECT_EQ(blocks(DType::kU8, {2, 4, 0, 16}), "import.shape");
  EXPECT_EQ(blocks(DType::kU8, {0, 4, 2, 16}), "import.shape");
  EXPECT_EQ(blocks(DType::kI8, {2, 4, 2, 16}), "import.dtype");
  EXPECT_EQ(blocks(DType::kF32, {2, 4, 2, 16}), "import.dtype");
  EXPECT_EQ(scales(DType::kU8, {2, 4, 3}), "import.shape");
  EXPECT_EQ(scales(DType::kU8, {2, 5, 2}), "import.shape");
  EXPECT_EQ(scales(DType::kU8, {1, 4, 2}), "import.shape");
  EXPECT_EQ(scales(DType::kU8, {2, 4, 2, 1}), "import.shape");
  EXPECT_EQ(scales(DType::kF8E8M0, {2, 4, 2}), "import.dtype");
  EXPECT_EQ(code_of({good.blocks}), "import.missing");
  Experts nan = good;
  nan.scales.set<uint8_t>(13, 0xFF);
  EXPECT_EQ(code_of({nan.blocks, nan.scales}), "import.scale_not_finite");
  EXPECT_NE(message().find("0xFF (NaN) at index 13"), std::string::npos) << message();
}

TEST_F(Mxfp4, refuses_another_method) {
  const Experts good = random_experts(2, 4, 64);
  for (const Method method : {Method::kNone, Method::kAwq, Method::kGptq}) {
    config_.method = method;
    EXPECT_EQ(code_of({good.blocks, good.scales}), "import.config");
  }
}

}  // namespace
}  // namespace subbyte
