// Matrices of device memory through the C interface: looked at, recast and packed by kernels there,
// against the same matrices on the host.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "device_bytes.h"
#include "kernels/cuda/packed_facts.h"
#include "kernels/gpu/packed_weights.h"
#include "support/c_handles.h"
#include "support/random_matrix.h"

namespace subbyte::testing {
namespace {

const WeightFormat kInt4 = {Format::kU4, Format::kF16, Zero::kU8, 64};

/// Canonical bytes in device memory, with their description and their view.
struct OnDevice {
  explicit OnDevice(const MatrixView& host)
      : codes(host.codes),
        scales(host.scales),
        zeros(host.zeros),
        order(std::as_bytes(host.input_order)),
        view(host) {
    view.codes = {codes.data(), codes.size()};
    view.scales = {scales.data(), scales.size()};
    view.zeros = {zeros.data(), zeros.size()};
    view.input_order = {reinterpret_cast<const uint32_t*>(order.data()), host.input_order.size()};
    weights = c_weights(view);
    if (zeros.size() == 0) weights.zeros = nullptr;
  }
  DeviceBytes codes, scales, zeros, order;
  MatrixView view;
  subbyte_weights weights = {};
};

/// The weights of a matrix as float32, wherever it is.
std::vector<std::byte> weights_of(const subbyte_matrix* matrix, int32_t number) {
  auto w = c_struct<subbyte_weights>();
  EXPECT_EQ(subbyte_matrix_describe(matrix, &w), SUBBYTE_OK);
  const std::size_t size =
      static_cast<std::size_t>(w.rows * w.cols) * (number == SUBBYTE_F32 ? 4 : 2);
  if (w.device < 0) {
    std::vector<std::byte> numbers(size);
    EXPECT_EQ(subbyte_matrix_dequantize(matrix, number, numbers.data(), nullptr), SUBBYTE_OK);
    return numbers;
  }
  const DeviceBytes numbers(size);
  EXPECT_EQ(subbyte_matrix_dequantize(matrix, number, numbers.data(), nullptr), SUBBYTE_OK)
      << subbyte_last_error();
  expect_ok(cudaDeviceSynchronize());
  return numbers.read();
}

CMatrix packed_of_host(const subbyte_matrix* host) {
  subbyte_matrix* made = nullptr;
  EXPECT_EQ(subbyte_matrix_to_gpu(host, 0, SUBBYTE_ROWS_NATURAL, nullptr, &made), SUBBYTE_OK)
      << subbyte_last_error();
  return CMatrix(made);
}

/// Sets code `i` of scales or zero points of `width` bytes.
void set_code(GuardedBytes& bytes, int64_t i, int width, uint32_t code) {
  std::memcpy(bytes.data() + i * width, &code, static_cast<std::size_t>(width));
}

cuda::MatrixFacts facts_on_gpu(const MatrixView& host) {
  const OnDevice device(host);
  const DeviceBytes memory(static_cast<std::size_t>(cuda::facts_bytes(host.cols)));
  const auto facts = cuda::find_facts(device.view, memory.data(), nullptr);
  EXPECT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_TRUE(memory.canaries_are_whole());
  return facts.ok() ? *facts : cuda::MatrixFacts();
}

TEST(CMatricesGpu, facts_of_scales_are_those_that_the_host_finds) {
  for (const Format scale :
       {Format::kF32, Format::kF16, Format::kBF16, Format::kE8M0, Format::kE4M3, Format::kE4M4}) {
    for (const Zero zero : {Zero::kNone, Zero::kU8, Zero::kF16, Zero::kBF16}) {
      SCOPED_TRACE(std::string(info(scale).name) + " zero " +
                   std::to_string(static_cast<int>(zero)));
      const WeightFormat format = {Format::kU4, scale, zero, 64};
      const RandomMatrix random = random_matrix(format, 77, 640, Contents::kReal, 3);
      const int width = info(scale).bits / 8;
      const uint32_t last = width == 4 ? 0xffffffffu : (1u << 8 * width) - 1;
      // NaN, infinity and a negative one, which count as none, and by its magnitude.
      set_code(*random.scales, 5, width, last);
      set_code(*random.scales, 6, width, info(scale).encode(INFINITY, Rounding::kNearestEven));
      if (info(scale).min < 0) {
        set_code(*random.scales, 700, width, info(scale).encode(-3.0, Rounding::kNearestEven));
      }
      const auto expected = gpu::packed_format(random.view);
      ASSERT_TRUE(expected.ok()) << expected.error().message;
      const cuda::MatrixFacts facts = facts_on_gpu(random.view);
      EXPECT_EQ(facts.bad_input, -1);
      const auto found = gpu::packed_format(random.view, gpu::RowOrder::kNatural, facts.packed);
      ASSERT_TRUE(found.ok()) << found.error().message;
      EXPECT_EQ(found->largest_scale, expected->largest_scale);
      EXPECT_GT(found->largest_scale, 0);
    }
  }
}

TEST(CMatricesGpu, large_zero_points_are_refused_in_the_words_of_the_host) {
  const CContext context = c_context();
  for (const WeightFormat& format : {kInt4, WeightFormat{Format::kU3, Format::kF32, Zero::kU16, 16},
                                     WeightFormat{Format::kU8, Format::kF16, Zero::kU16, 0}}) {
    const RandomMatrix random = random_matrix(format, 48, 256, Contents::kReal, 3);
    const int width = zero_bytes(format.zero);
    const uint32_t most = 1u << info(format.element).bits;
    for (const int64_t i : {41, 44, 47}) set_code(*random.zeros, i, width, most + 1);
    const auto expected = gpu::packed_format(random.view);
    ASSERT_FALSE(expected.ok());
    EXPECT_NE(expected.error().message.find("zero point 41 "), std::string::npos);
    const OnDevice device(random.view);
    subbyte_matrix* made = nullptr;
    EXPECT_EQ(code_of(subbyte_matrix_create(context.get(), &device.weights, nullptr, &made)),
              "cuda.format");
    EXPECT_EQ(subbyte_last_error(), expected.error().message);
    // The largest that is allowed.
    for (const int64_t i : {41, 44, 47}) set_code(*random.zeros, i, width, most);
    c_matrix(context, OnDevice(random.view).weights);
  }
}

TEST(CMatricesGpu, an_order_with_an_input_twice_is_refused) {
  const CContext context = c_context();
  // The second becomes dense on the way: its weights would go where the order says.
  for (const WeightFormat& format :
       {kInt4, WeightFormat{Format::kE4M3, Format::kF16, Zero::kNone, 32}}) {
    RandomMatrix random = random_matrix(format, 32, 256, Contents::kReal, 3);
    std::vector<uint32_t> order(256);
    std::iota(order.begin(), order.end(), 0u);
    for (const uint32_t wrong : {7u, 256u, 0xffffffffu}) {
      order[200] = wrong;
      random.view.input_order = order;
      const OnDevice device(random.view);
      subbyte_matrix* made = nullptr;
      EXPECT_EQ(code_of(subbyte_matrix_create(context.get(), &device.weights, nullptr, &made)),
                "c.argument");
      EXPECT_EQ(std::string(subbyte_last_error()),
                "weights.input_order: expected every input once, found " + std::to_string(wrong));
    }
  }
}

TEST(CMatricesGpu, what_the_kernels_lack_is_recast_to_what_the_host_recasts_it_to) {
  const CContext context = c_context();
  const WeightFormat formats[] = {{Format::kU5, Format::kF16, Zero::kU8, 32},
                                  {Format::kU6, Format::kF16, Zero::kU16, 64},
                                  {Format::kU7, Format::kF32, Zero::kNone, 16},
                                  {Format::kI5, Format::kBF16, Zero::kNone, 128},
                                  {Format::kI6, Format::kF16, Zero::kF16, 32},
                                  {Format::kI7, Format::kF16, Zero::kNone, 0},
                                  {Format::kE2M1, Format::kF16, Zero::kNone, 0},
                                  {Format::kE2M1, Format::kE8M0, Zero::kNone, 64},
                                  {Format::kNFL3, Format::kF16, Zero::kNone, 128},
                                  {Format::kNF4, Format::kF32, Zero::kNone, 256},
                                  {Format::kE4M3, Format::kF16, Zero::kNone, 32},
                                  {Format::kU4, Format::kF16, Zero::kU8, 24},
                                  {Format::kU4, Format::kF16, Zero::kU8, 40},
                                  {Format::kU4, Format::kF16, Zero::kU8, 96},
                                  {Format::kU4, Format::kF16, Zero::kU8, 20}};
  for (const WeightFormat& format : formats) {
    for (const bool act_order : {false, true}) {
      SCOPED_TRACE(to_string(format) + (act_order ? " act-order" : ""));
      const int64_t cols = format.group_size == 24 ? 240 : format.group_size == 40 ? 280 : 1280;
      RandomMatrix random = random_matrix(format, 37, cols, Contents::kReal, 5);
      std::vector<uint32_t> order(cols);
      for (int64_t k = 0; k < cols; ++k) order[k] = static_cast<uint32_t>(cols - 1 - k);
      if (act_order) random.view.input_order = order;
      const CMatrix host = c_matrix(context, c_weights(random.view));
      const CMatrix expected = packed_of_host(host.get());
      const OnDevice device(random.view);
      const CMatrix made = c_matrix(context, device.weights);
      ASSERT_NE(made, nullptr);
      int64_t bytes = 0, expected_bytes = 0;
      ASSERT_EQ(subbyte_matrix_bytes(made.get(), &bytes), SUBBYTE_OK);
      ASSERT_EQ(subbyte_matrix_bytes(expected.get(), &expected_bytes), SUBBYTE_OK);
      EXPECT_EQ(bytes, expected_bytes);
      EXPECT_EQ(weights_of(made.get(), SUBBYTE_F32), weights_of(expected.get(), SUBBYTE_F32));
    }
  }
}

TEST(CMatricesGpu, scales_of_two_levels_become_those_that_the_host_makes) {
  const CContext context = c_context();
  for (const WeightFormat& format : {WeightFormat{Format::kU4, Format::kU6, Zero::kOffsetU6, 32},
                                     WeightFormat{Format::kI6, Format::kI8, Zero::kNone, 16},
                                     WeightFormat{Format::kIQ4, Format::kI6, Zero::kNone, 32},
                                     WeightFormat{Format::kU4, Format::kU6, Zero::kNone, 32}}) {
    SCOPED_TRACE(to_string(format));
    const RandomMatrix random = random_matrix(format, 37, 1280, Contents::kReal, 5);
    const CMatrix host = c_matrix(context, c_weights(random.view));
    const CMatrix expected = packed_of_host(host.get());
    const OnDevice device(random.view);
    const CMatrix made = c_matrix(context, device.weights);
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(weights_of(made.get(), SUBBYTE_F32), weights_of(expected.get(), SUBBYTE_F32));
  }
}

/// Weights of a description on the device, and of the same one on the host.
void expect_weights_of_host(const CContext& context, const subbyte_weights& device,
                            const subbyte_weights& host) {
  const CMatrix made = c_matrix(context, device);
  ASSERT_NE(made, nullptr);
  const CMatrix expected = c_matrix(context, host);
  EXPECT_EQ(weights_of(made.get(), SUBBYTE_F32), weights_of(expected.get(), SUBBYTE_F32));
}

TEST(CMatricesGpu, group_indices_are_sorted) {
  const CContext context = c_context();
  for (const WeightFormat& format : {kInt4, WeightFormat{Format::kU3, Format::kF16, Zero::kU8, 32},
                                     WeightFormat{Format::kI8, Format::kF32, Zero::kNone, 128},
                                     WeightFormat{Format::kU2, Format::kF16, Zero::kU8, 0},
                                     WeightFormat{Format::kU6, Format::kF16, Zero::kU8, 64}}) {
    const RandomMatrix random = random_matrix(format, 24, 416, Contents::kReal, 5);
    const int64_t size = random.view.group_size();
    std::vector<int32_t> groups(416);
    for (int64_t k = 0; k < 416; ++k) groups[k] = static_cast<int32_t>((k * 7 + 2) % 416 / size);
    subbyte_weights host = c_weights(random.view);
    const OnDevice device(random.view);
    subbyte_weights there = device.weights;
    const auto expect_same = [&] {
      SCOPED_TRACE(to_string(format));
      const DeviceBytes indices(std::as_bytes(std::span(groups)));
      host.group_indices = groups.data();
      there.group_indices = reinterpret_cast<const int32_t*>(indices.data());
      expect_weights_of_host(context, there, host);
    };
    expect_same();
    std::ranges::sort(groups);
    expect_same();
  }
}

TEST(CMatricesGpu, group_indices_are_refused_in_the_words_of_the_host) {
  const CContext context = c_context();
  const RandomMatrix random = random_matrix(kInt4, 24, 256, Contents::kReal, 5);
  const OnDevice device(random.view);
  for (const int32_t wrong : {4, -1, 0}) {  // neither is there; one more of group 0
    std::vector<int32_t> groups(256);
    for (int k = 0; k < 256; ++k) groups[k] = k % 4;
    groups[9] = wrong;
    subbyte_weights host = c_weights(random.view);
    host.group_indices = groups.data();
    subbyte_matrix* made = nullptr;
    EXPECT_EQ(code_of(subbyte_matrix_create(context.get(), &host, nullptr, &made)), "c.argument");
    const std::string expected = subbyte_last_error();
    const DeviceBytes indices(std::as_bytes(std::span(groups)));
    subbyte_weights there = device.weights;
    there.group_indices = reinterpret_cast<const int32_t*>(indices.data());
    EXPECT_EQ(code_of(subbyte_matrix_create(context.get(), &there, nullptr, &made)), "c.argument");
    EXPECT_EQ(subbyte_last_error(), expected);
  }
}

TEST(CMatricesGpu, rows_that_are_apart_are_brought_together) {
  const CContext context = c_context();
  const RandomMatrix random = random_matrix(kInt4, 24, 256, Contents::kReal, 5);
  const auto spread = [](std::span<const std::byte> part, int64_t rows, std::size_t more) {
    const std::size_t width = part.size() / static_cast<std::size_t>(rows);
    std::vector<std::byte> apart(part.size() + rows * more, std::byte{0xEE});
    for (int64_t row = 0; row < rows; ++row) {
      std::ranges::copy(part.subspan(row * width, width), apart.begin() + row * (width + more));
    }
    return apart;
  };
  const DeviceBytes codes(spread(random.view.codes, 24, 13));
  const DeviceBytes scales(spread(random.view.scales, 24, 6));
  const DeviceBytes zeros(spread(random.view.zeros, 24, 3));
  subbyte_weights there = c_weights(random.view);
  there.codes = codes.data();
  there.scales = scales.data();
  there.zeros = zeros.data();
  there.codes_stride = 128 + 13;
  there.scales_stride = 8 + 6;
  there.zeros_stride = 4 + 3;
  expect_weights_of_host(context, there, c_weights(random.view));
}

}  // namespace
}  // namespace subbyte::testing
