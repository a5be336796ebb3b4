// Quantizers of weights on a GPU against those of the CPU, bit by bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "device_bytes.h"
#include "kernels/cuda/quantize/quantize_weights.h"
#include "matrix/codebook.h"
#include "quantize/codebook_encoder.h"
#include "quantize/fp8.h"
#include "quantize/kbit.h"
#include "quantize/mxfp4.h"
#include "quantize/nf4.h"
#include "quantize/nvfp4.h"
#include "quantize/quantize_rows.h"
#include "quantize/round_to_nearest.h"

namespace subbyte {
namespace {

using testing::DeviceBytes;

/// Weights of bf16, and the same as floats.
struct Given {
  Given(int64_t rows_, int64_t cols_) : rows(rows_), cols(cols_) {
    Random random(rows * cols);
    for (int64_t i = 0; i < rows * cols; ++i) {
      const int64_t kind = i / 32 % 9;
      double weight = random.normal();
      if (kind == 2) weight = i % 2 == 0 ? 0.0 : -0.0;
      if (kind == 4) weight = static_cast<double>(random.below(49)) - 24;
      const uint32_t code = info(Format::kBF16).encode(weight, Rounding::kNearestEven);
      codes.push_back(static_cast<uint16_t>(code));
      floats.push_back(static_cast<float>(info(Format::kBF16).decode(code)));
    }
  }
  RowReader reader() const {
    return [this](int64_t row, float* out) { std::copy_n(&floats[row * cols], cols, out); };
  }

  int64_t rows;
  int64_t cols;
  std::vector<uint16_t> codes;
  std::vector<float> floats;
};

Result<Matrix> quantize_on_cpu(const WeightRounding& how, const Given& given) {
  ThreadPool pool(4);
  const RowReader reader = given.reader();
  const int bits = info(how.format.element).bits;
  const int64_t group = how.format.group_size;
  switch (how.rule) {
    case WeightRule::kMinMax:
      return quantize_min_max(given.rows, given.cols, group, bits, reader, pool);
    case WeightRule::kSymmetric:
      return quantize_symmetric(given.rows, given.cols, group, bits, reader, pool);
    case WeightRule::kMxfp4:
      if (how.searches) return quantize_mxfp4(given.rows, given.cols, reader, pool);
      return quantize_mxfp4(given.rows, given.cols, how.scale_rule, Rounding::kNearestEven, reader,
                            pool);
    case WeightRule::kNvfp4:
      return quantize_nvfp4(given.rows, given.cols, {.four_over_six = how.searches}, reader, pool);
    case WeightRule::kNf4:
      return quantize_nf4(given.rows, given.cols, group, reader, pool);
    case WeightRule::kNfl: {
      KbitOptions options;
      options.bits = bits;
      options.scales.factor = kbit_factor(largest_magnitude(given.rows, given.cols, reader, pool));
      return quantize_kbit(given.rows, given.cols, options, reader, pool);
    }
    case WeightRule::kFp8:
      break;
  }
  return quantize_fp8(given.rows, given.cols, reader, pool);
}

void expect_same(const WeightRounding& how, int64_t rows, int64_t cols) {
  SCOPED_TRACE(to_string(how.format) + " " + std::to_string(rows) + " " + std::to_string(cols));
  Given given(rows, cols);
  const auto expected = quantize_on_cpu(how, given);
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  const MatrixView& view = expected->view;
  const DeviceBytes weights(std::as_bytes(std::span(given.codes)));
  const DeviceBytes codes(view.codes.size());
  const DeviceBytes scales(view.scales.size());
  const DeviceBytes zeros(view.zeros.size());
  const DeviceBytes factor(sizeof(double));
  const DeviceBytes bytes(static_cast<std::size_t>(rows * cols));
  const DeviceBytes state(2 * sizeof(uint32_t));
  cuda::WeightBuffers buffers;
  buffers.weights = weights.data();
  buffers.element = Element::kBF16;
  buffers.rows = rows;
  buffers.cols = cols;
  buffers.codes = reinterpret_cast<uint8_t*>(codes.data());
  buffers.scales = reinterpret_cast<uint8_t*>(scales.data());
  buffers.zeros = reinterpret_cast<uint8_t*>(zeros.data());
  buffers.factor = reinterpret_cast<double*>(factor.data());
  buffers.byte_codes = reinterpret_cast<uint8_t*>(bytes.data());
  buffers.state = reinterpret_cast<uint32_t*>(state.data());
  const Status status = cuda::quantize_weights(how, buffers, nullptr);
  ASSERT_TRUE(status.ok()) << status.error().message;
  testing::expect_ok(cudaDeviceSynchronize());
  EXPECT_TRUE(std::ranges::equal(codes.read(), view.codes));
  EXPECT_TRUE(std::ranges::equal(scales.read(), view.scales));
  EXPECT_TRUE(std::ranges::equal(zeros.read(), view.zeros));
  if (how.rule == WeightRule::kNvfp4 || how.rule == WeightRule::kNfl) {
    EXPECT_TRUE(std::ranges::equal(factor.read(), std::as_bytes(std::span(&view.tensor_scale, 1))));
  }
  for (const DeviceBytes* part : {&weights, &codes, &scales, &zeros, &factor, &bytes, &state}) {
    EXPECT_TRUE(part->canaries_are_whole());
  }
  uint32_t fault = 1;
  std::memcpy(&fault, state.read().data() + 4, 4);
  EXPECT_EQ(fault, 0u);
}

TEST(GpuQuantizeWeights, integers) {
  for (int bits = 2; bits <= 8; ++bits) {
    const Format u = find_format("u" + std::to_string(bits)).value();
    const Format i = find_format("i" + std::to_string(bits)).value();
    const Zero zero = bits == 8 ? Zero::kU16 : Zero::kU8;
    for (const int64_t group : {0, 1, 5, 24, 64, 512}) {
      const int64_t cols = group == 0 ? 37 : group * 3;
      expect_same({WeightRule::kMinMax, {u, Format::kF16, zero, group}}, 131, cols);
      expect_same({WeightRule::kSymmetric, {i, Format::kF16, Zero::kNone, group}}, 131, cols);
    }
  }
}

TEST(GpuQuantizeWeights, floats_of_4_bits) {
  WeightRounding how = {WeightRule::kMxfp4, {Format::kE2M1, Format::kE8M0, Zero::kNone, 32}};
  for (const ScaleRule rule : {ScaleRule::kFloor, ScaleRule::kCeil, ScaleRule::kBump175}) {
    how.scale_rule = rule;
    expect_same(how, 300, 480);
  }
  how.scale_rule = ScaleRule::kCeil;
  how.searches = true;
  expect_same(how, 300, 480);
  for (const bool searches : {false, true}) {
    expect_same({WeightRule::kNvfp4, {Format::kE2M1, Format::kE4M3, Zero::kNone, 16}, searches},
                300, 80);
  }
}

TEST(GpuQuantizeWeights, codebooks) {
  for (const int64_t block : {0, 12, 64}) {
    expect_same({WeightRule::kNf4, {Format::kNF4, Format::kF32, Zero::kNone, block}}, 99,
                block == 0 ? 77 : block * 5);
  }
  for (int bits = 2; bits <= 5; ++bits) {
    const Format element = kbit_element(bits);
    WeightRounding how = {WeightRule::kNfl, {element, Format::kE4M4, Zero::kNone, 32}};
    std::ranges::copy(CodebookEncoder(default_codebook(element)).thresholds(),
                      how.thresholds.begin());
    expect_same(how, 200, 160);
  }
}

TEST(GpuQuantizeWeights, blocks_of_fp8) {
  const WeightRounding how = {WeightRule::kFp8,
                              {Format::kE4M3, Format::kF32, Zero::kNone, kFp8Block}};
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 7}, {130, 260}, {256, 1024}}) {
    expect_same(how, rows, cols);
  }
}

}  // namespace
}  // namespace subbyte
