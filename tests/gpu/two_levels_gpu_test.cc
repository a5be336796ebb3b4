// Scales of two levels on a GPU: what packs, unpacks, dequantizes and looks up rows, bit by bit.
// (linear_gpu_test.cc has their products, experts_gpu_test.cc those of experts.)

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "gpu_linear.h"
#include "kernels/cuda/elementwise/embed.h"
#include "kernels/cuda/packed_facts.h"
#include "kernels/cuda/quantize/dequantize.h"
#include "matrix/matrix.h"
#include "ops_gpu.h"

namespace subbyte::testing {
namespace {

using cuda::RowOrder;

std::vector<WeightFormat> two_level_formats() {
  std::vector<WeightFormat> formats = packed_formats();
  std::erase_if(formats, [](const WeightFormat& format) { return !has_two_levels(format); });
  return formats;
}

/// A canonical matrix in device memory.
struct OnDevice {
  explicit OnDevice(const MatrixView& matrix)
      : codes(matrix.codes), scales(matrix.scales), zeros(matrix.zeros), view(matrix) {
    view.codes = {codes.data(), codes.size()};
    view.scales = {scales.data(), scales.size()};
    view.zeros = {zeros.data(), zeros.size()};
  }
  DeviceBytes codes, scales, zeros;
  MatrixView view;
};

std::vector<std::byte> bytes_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

template <class Visit>
void for_each_matrix(const Visit& visit) {
  uint64_t seed = 20;
  for (const WeightFormat& format : two_level_formats()) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{2, 16}, {34, 600}, {48, 1792}}) {
      for (const RowOrder order :
           {RowOrder::kNatural, RowOrder::kGateAboveUp, RowOrder::kGateUpPairs}) {
        SCOPED_TRACE(to_string(format) + " " + std::to_string(rows) + " x " + std::to_string(cols) +
                     " order " + std::to_string(static_cast<int>(order)));
        visit(random_matrix(format, rows, cols, Contents::kReal, ++seed).view, order);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(GpuTwoLevels, are_packed_there_as_on_the_host) {
  for_each_matrix([](const MatrixView& matrix, RowOrder order) {
    const auto expected_format = gpu::packed_format(matrix, order);
    ASSERT_TRUE(expected_format.ok()) << expected_format.error().message;
    std::vector<std::byte> expected(static_cast<std::size_t>(expected_format->bytes));
    gpu::pack_on_host(expected.data(), matrix, *expected_format);
    const OnDevice there(matrix);
    const DeviceBytes memory(static_cast<std::size_t>(cuda::facts_bytes(matrix.cols)));
    const auto facts = cuda::find_facts(there.view, memory.data(), nullptr);
    ASSERT_TRUE(facts.ok()) << facts.error().message;
    const auto format = gpu::packed_format(there.view, order, facts->packed);
    ASSERT_TRUE(format.ok()) << format.error().message;
    EXPECT_TRUE(*format == *expected_format)
        << format->largest_scale << ' ' << expected_format->largest_scale;
    const DeviceBytes packed(expected.size());
    ASSERT_TRUE(cuda::pack_on_device(packed.data(), there.view, *format, nullptr).ok());
    expect_ok(cudaDeviceSynchronize());
    ASSERT_EQ(packed.read(), expected);
    EXPECT_TRUE(packed.canaries_are_whole());
  });
}

TEST(GpuTwoLevels, are_unpacked_to_the_bytes_that_were_packed) {
  for_each_matrix([](const MatrixView& matrix, RowOrder order) {
    const PackedOnDevice packed(matrix, order);
    const DeviceBytes codes(matrix.codes.size());
    const DeviceBytes scales(matrix.scales.size());
    const DeviceBytes zeros(matrix.zeros.size());
    ASSERT_TRUE(cuda::unpack_on_device(codes.data(), scales.data(), zeros.data(),
                                       packed.bytes().data(), packed.format(), nullptr)
                    .ok());
    expect_ok(cudaDeviceSynchronize());
    EXPECT_EQ(scales.read(), bytes_of(matrix.scales));
    EXPECT_EQ(zeros.read(), bytes_of(matrix.zeros));
    const std::vector<std::byte> bytes = codes.read();
    MatrixView found = matrix;
    found.codes = bytes;
    for (int64_t row = 0; row < matrix.rows; row += 13) {
      for (int64_t col = 0; col < matrix.cols; ++col) {
        ASSERT_EQ(code_at(found, row, col), code_at(matrix, row, col)) << row << ' ' << col;
      }
    }
    EXPECT_TRUE(scales.canaries_are_whole());
    EXPECT_TRUE(zeros.canaries_are_whole());
  });
}

TEST(GpuTwoLevels, are_dequantized_to_the_floats_next_to_the_weights) {
  for_each_matrix([](const MatrixView& matrix, RowOrder order) {
    const PackedOnDevice packed(matrix, order);
    const std::size_t size = static_cast<std::size_t>(matrix.rows * matrix.cols);
    std::vector<float> expected(size);
    for (std::size_t i = 0; i < size; ++i) {
      const auto at = static_cast<int64_t>(i);
      expected[i] = static_cast<float>(weight_at(matrix, at / matrix.cols, at % matrix.cols));
    }
    const DeviceBytes out(4 * size);
    const Status status = cuda::dequantize(packed.bytes().data(), packed.format(), 1, Element::kF32,
                                           out.data(), nullptr);
    ASSERT_TRUE(status.ok()) << status.error().message;
    expect_ok(cudaDeviceSynchronize());
    const std::vector<float> found = decode(out.read(), Element::kF32);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(found[i], expected[i]) << i;
  });
}

TEST(GpuTwoLevels, are_looked_up_as_the_floats_next_to_the_weights) {
  for (const WeightFormat& format : two_level_formats()) {
    const RandomMatrix table = random_matrix(format, 41, 600, Contents::kReal, 3);
    const PackedOnDevice packed(table.view);
    const std::vector<int32_t> tokens = {40, 0, 7, 15, 16, 33};
    const DeviceBytes token_bytes(std::as_bytes(std::span(tokens)));
    const DeviceBytes y(tokens.size() * 600 * 4);
    cuda::run_embed({.y = reinterpret_cast<float*>(y.data()),
                     .tokens = reinterpret_cast<const int32_t*>(token_bytes.data()),
                     .num_tokens = std::ssize(tokens),
                     .cols = 600},
                    packed.arguments(cuda::Number::kF16), packed.format(), nullptr);
    expect_ok(cudaDeviceSynchronize());
    const std::vector<float> found = decode(y.read(), Element::kF32);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto at = static_cast<int64_t>(i % 600);
      ASSERT_EQ(found[i], static_cast<float>(weight_at(table.view, tokens[i / 600], at)))
          << to_string(format) << " element " << i;
    }
  }
}

}  // namespace
}  // namespace subbyte::testing
