// Codes are read bit by bit, codebooks and E4M4 by formulas written here.

#include <gtest/gtest.h>

#include "support/block_scales.h"
#include "support/round_trip.h"

namespace subbyte {
namespace {

class Kbit : public RoundTripFixture {
 protected:
  Kbit() { say({{"quant_method", "kbit"}, {"bits", {2, 3, 4, 5}}, {"block_size", 32}}); }

  static std::vector<float> codebook(int bits) {
    std::vector<float> values;
    for (int code = 0; code < 1 << bits; ++code) {
      values.push_back(static_cast<float>(code * code) / 64 - 0.5f);
    }
    return values;
  }

  static TestTensor floats(std::string name, const std::vector<float>& values) {
    return {std::move(name),
            DType::kF32,
            {values.size()},
            {reinterpret_cast<const char*>(values.data()), 4 * values.size()}};
  }

  static std::vector<TestTensor> layer(int bits, uint64_t rows, uint64_t cols, DType scales) {
    Random random(rows * 100 + cols);
    return {random_bits("m.kbit_codes", DType::kU8, {rows, cols * bits / 8}, random),
            block_scales("m.kbit_absmax", scales, {rows, cols / 32}, random),
            floats("m.kbit_codebook", codebook(bits)), floats("m.kbit_factor", {0.25f})};
  }

  static double weight(const std::vector<TestTensor>& tensors, int bits, int64_t cols, int64_t n,
                       int64_t k) {
    uint32_t code = 0;
    for (int bit = 0; bit < bits; ++bit) {
      const int64_t at = (n * cols + k) * bits + bit;
      code |= (tensors[0].at<uint8_t>(at / 8) >> (at % 8) & 1u) << bit;
    }
    const int64_t block = (n * cols + k) / 32;
    return double{codebook(bits)[code]} * block_scale(tensors[1], block) * tensors[3].at<float>(0);
  }
};

TEST_F(Kbit, means_what_the_definition_says_and_comes_back) {
  for (int bits = 2; bits <= 5; ++bits) {
    for (const auto& [rows, cols] : {std::pair(1, 32), {10, 96}, {17, 256}}) {
      for (const DType scales : {DType::kU8, DType::kF16}) {
        const std::vector<TestTensor> tensors = layer(bits, rows, cols, scales);
        const auto expected = [&, width = cols](int64_t n, int64_t k) {
          return weight(tensors, bits, width, n, k);
        };
        expect_in_place(tensors, rows, cols, expected);
        expect_round_trip("kbit", tensors);
      }
    }
  }
}

TEST_F(Kbit, default_codebook_is_that_of_the_element_and_the_factor_may_be_absent) {
  std::vector<TestTensor> tensors = layer(4, 4, 64, DType::kU8);
  std::vector<float> values;
  for (uint32_t code = 0; code < 16; ++code) {
    values.push_back(static_cast<float>(info(Format::kNFL4).decode(code)));
  }
  tensors[2] = floats("m.kbit_codebook", values);
  tensors.pop_back();
  open(tensors);
  const auto matrix = import_matrix(context(), "m");
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  EXPECT_TRUE(matrix->view.codebook.empty());
  EXPECT_EQ(matrix->view.tensor_scale, 1);
}

TEST_F(Kbit, refuses_wrong_shapes_types_and_numbers) {
  const std::vector<TestTensor> good = layer(4, 4, 64, DType::kU8);
  EXPECT_EQ(code_of(good), "");
  Random random(1);
  const auto with = [&](const TestTensor& tensor) { return code_of(good, tensor); };
  const auto codes = [&](DType dtype, Shape shape) {
    return with(random_bits("m.kbit_codes", dtype, std::move(shape), random));
  };
  EXPECT_EQ(codes(DType::kU8, {4, 36}), "import.shape");
  EXPECT_EQ(codes(DType::kU8, {4, 48}), "import.shape");
  EXPECT_EQ(codes(DType::kU8, {3, 32}), "import.shape");
  EXPECT_EQ(codes(DType::kU8, {4, 0}), "import.shape");
  EXPECT_EQ(codes(DType::kU8, {128}), "import.shape");
  EXPECT_EQ(codes(DType::kU8, {1, 4, 32}), "import.shape");
  EXPECT_EQ(codes(DType::kI8, {4, 32}), "import.dtype");
  EXPECT_EQ(with(random_bits("m.kbit_absmax", DType::kU8, {4, 3}, random)), "import.shape");
  EXPECT_EQ(with(random_bits("m.kbit_absmax", DType::kU8, {4, 0}, random)), "import.shape");
  EXPECT_EQ(with(random_bits("m.kbit_absmax", DType::kI8, {4, 2}, random)), "import.dtype");
  EXPECT_EQ(with(filled<uint16_t>("m.kbit_absmax", DType::kF16, {4, 2}, 0x7E00)),
            "import.scale_not_finite");
  EXPECT_EQ(with(floats("m.kbit_codebook", codebook(3))), "import.shape");
  std::vector<float> values = codebook(4);
  std::swap(values[3], values[4]);
  EXPECT_EQ(with(floats("m.kbit_codebook", values)), "import.codebook");
  EXPECT_NE(message().find("increasing"), std::string::npos) << message();
  values = codebook(4);
  values[15] = NAN;
  EXPECT_EQ(with(floats("m.kbit_codebook", values)), "import.codebook");
  EXPECT_EQ(with(floats("m.kbit_factor", {0})), "import.scale_not_finite");
  EXPECT_EQ(with(floats("m.kbit_factor", {1, 1})), "import.shape");
  EXPECT_EQ(code_of({good[0], good[1]}), "import.missing");
  EXPECT_EQ(code_of({good[0], good[2]}), "import.missing");
}

TEST_F(Kbit, refuses_another_label) {
  const std::vector<TestTensor> good = layer(4, 4, 64, DType::kU8);
  say("bits", {2, 3});
  EXPECT_EQ(code_of(good), "import.config");
  say({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}});
  EXPECT_EQ(code_of(good), "import.config");
}

}  // namespace
}  // namespace subbyte
