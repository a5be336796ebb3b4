// Bytes and codebooks are read and rotated by formulas written here.

#include <gtest/gtest.h>

#include <bit>

#include "support/block_scales.h"
#include "support/random_matrix.h"
#include "support/round_trip.h"

namespace subbyte {
namespace {

double f16(uint16_t bits) {
  return info(Format::kF16).decode(bits);
}

class Vq : public RoundTripFixture {
 protected:
  Vq() { say({{"quant_method", "vq"}, {"bits", {2, 4}}, {"block_size", 32}, {"rotation", 0}}); }

  static std::vector<TestTensor> layer(uint64_t size, uint64_t rows, uint64_t cols, DType scales) {
    Random random(rows * 100 + cols);
    TestTensor factor = random_floats("m.vq_factor", DType::kF32, {1}, random);
    const float quarter = 0.25f;
    std::memcpy(factor.bytes.data(), &quarter, 4);
    return {random_bits("m.vq_codes", DType::kU8, {rows, cols / size}, random),
            block_scales("m.vq_scales", scales, {rows, cols / 32}, random),
            random_floats("m.vq_codebook", DType::kF16, {256, size}, random), factor};
  }

  static double stored(const std::vector<TestTensor>& tensors, int64_t size, int64_t cols,
                       int64_t n, int64_t k) {
    const int64_t byte = tensors[0].at<uint8_t>((n * cols + k) / size);
    const int64_t block = (n * cols + k) / 32;
    const double scale = block_scale(tensors[1], block);
    return f16(tensors[2].at<uint16_t>(byte * size + k % size)) * scale * tensors[3].at<float>(0);
  }
};

TEST_F(Vq, means_what_the_definition_says_and_comes_back) {
  for (const int64_t size : {2, 4}) {
    for (const auto& [rows, cols] : {std::pair(1, 32), {10, 96}, {17, 256}}) {
      for (const DType scales : {DType::kU8, DType::kF16}) {
        const std::vector<TestTensor> tensors = layer(size, rows, cols, scales);
        const auto expected = [&, width = cols](int64_t n, int64_t k) {
          return stored(tensors, size, width, n, k);
        };
        expect_in_place(tensors, rows, cols, expected);
        expect_round_trip("vq", tensors);
      }
    }
  }
}

/// In exact sums: the scales are powers of two.
TEST_F(Vq, rotates_runs_that_divide_the_inputs) {
  say("rotation", 256);
  for (const auto& [cols, run] : {std::pair(512, 256), {192, 64}, {96, 16}}) {
    std::vector<TestTensor> tensors = layer(4, 3, static_cast<uint64_t>(cols), DType::kU8);
    for (char& scale : tensors[1].bytes) scale = static_cast<char>((scale & 0x30) | 0x80);
    const auto expected = [&, width = cols, size = run](int64_t n, int64_t k) {
      double sum = 0;
      for (int64_t j = 0; j < size; ++j) {
        const bool is_negative = std::popcount(static_cast<uint64_t>(j & k % size)) % 2 != 0;
        const double weight = stored(tensors, 4, width, n, k / size * size + j);
        sum += is_negative ? -weight : weight;
      }
      return sum / std::sqrt(size);
    };
    open(tensors);
    expect_weights(3, cols, expected);
    EXPECT_EQ(matrix_.view.format.rotation, run);
    expect_round_trip("vq", tensors);
  }
}

TEST_F(Vq, factor_may_be_absent) {
  std::vector<TestTensor> tensors = layer(4, 4, 64, DType::kU8);
  tensors.pop_back();
  open(tensors);
  const auto matrix = import_matrix(context(), "m");
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  EXPECT_EQ(matrix->view.tensor_scale, 1);
}

TEST_F(Vq, refuses_wrong_shapes_types_and_numbers) {
  const std::vector<TestTensor> good = layer(4, 4, 64, DType::kU8);
  EXPECT_EQ(code_of(good), "");
  Random random(1);
  const auto with = [&](const TestTensor& tensor) { return code_of(good, tensor); };
  const auto codes = [&](DType dtype, Shape shape) {
    return with(random_bits("m.vq_codes", dtype, std::move(shape), random));
  };
  EXPECT_EQ(codes(DType::kU8, {4, 17}), "import.shape");
  EXPECT_EQ(codes(DType::kU8, {4, 32}), "import.shape");  // of vectors of 2
  EXPECT_EQ(codes(DType::kU8, {3, 16}), "import.shape");
  EXPECT_EQ(codes(DType::kU8, {4, 0}), "import.shape");
  EXPECT_EQ(codes(DType::kU8, {64}), "import.shape");
  EXPECT_EQ(codes(DType::kI8, {4, 16}), "import.dtype");
  const auto scales = [&](DType dtype, Shape shape) {
    return with(random_bits("m.vq_scales", dtype, std::move(shape), random));
  };
  EXPECT_EQ(scales(DType::kU8, {4, 3}), "import.shape");
  EXPECT_EQ(scales(DType::kU8, {4, 0}), "import.shape");
  EXPECT_EQ(scales(DType::kI8, {4, 2}), "import.dtype");
  const auto codebook = [&](DType dtype, Shape shape) {
    return with(random_floats("m.vq_codebook", dtype, std::move(shape), random));
  };
  EXPECT_EQ(codebook(DType::kF16, {256, 3}), "import.shape");
  EXPECT_EQ(codebook(DType::kF16, {255, 4}), "import.shape");
  EXPECT_EQ(codebook(DType::kF16, {1024}), "import.shape");
  EXPECT_EQ(codebook(DType::kF32, {256, 4}), "import.dtype");
  TestTensor nan = good[2];
  nan.bytes[501] = 0x7E;  // NaN
  EXPECT_EQ(with(nan), "import.codebook");
  TestTensor factor = good[3];
  for (const float wrong : {0.0f, -1.0f, std::numeric_limits<float>::infinity()}) {
    std::memcpy(factor.bytes.data(), &wrong, 4);
    EXPECT_EQ(with(factor), "import.scale_not_finite");
  }
  say("bits", 4);
  EXPECT_EQ(code_of(good), "import.config");
  say({{"quant_method", "kbit"}, {"bits", 2}, {"block_size", 32}});
  EXPECT_EQ(code_of(good), "import.config");
}

TEST_F(Vq, exporter_refuses_what_its_files_cannot_say) {
  ThreadPool pool(1);
  const Exporter& exporter = *find_exporter("vq");
  const auto code = [&](const MatrixView& view) {
    const auto written = exporter.write(view, "m", pool);
    return written.ok() ? std::string() : std::string(written.error().code);
  };
  const WeightFormat format = {Format::kVQ2, Format::kE4M4, Zero::kNone, 32, 64};
  const auto random = testing::random_matrix(format, 3, 192, testing::Contents::kReal, 5);
  EXPECT_EQ(code(random.view), "");
  MatrixView view = random.view;
  view.format.rotation = 16;  // of 192 inputs the config would mean 64
  EXPECT_EQ(code(view), "export.format");
  view = random.view;
  view.format.scale = Format::kBF16;
  EXPECT_EQ(code(view), "export.format");
  view = random.view;
  view.tensor_scale = 1.0 / 3;
  EXPECT_EQ(code(view), "export.tensor_scale");
  view = random.view;
  view.codebook = {};
  EXPECT_EQ(code(view), "export.codebook");
  std::vector<float> values = random.codebook;
  values[3] = 1.0f / 3;
  view.codebook = values;
  EXPECT_EQ(code(view), "export.codebook");
}

}  // namespace
}  // namespace subbyte
