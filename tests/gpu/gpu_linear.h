#pragma once
// Products on the GPU through the public interface, with everything around them watched.

#include <optional>
#include <string>
#include <vector>

#include "device_bytes.h"
#include "kernels/cuda/linear.h"
#include "support/random_matrix.h"
#include "support/value_of.h"

namespace subbyte::testing {

/// One of each line of weights.def, and each type of scale and zero point.
inline std::vector<WeightFormat> packed_formats() {
  return {
      {Format::kU4, Format::kF16, Zero::kU8, 128},
      {Format::kU4, Format::kBF16, Zero::kU8, 64},
      {Format::kI4, Format::kF16, Zero::kNone, 128},
      {Format::kU4, Format::kF16, Zero::kU8, 32},
      {Format::kI4, Format::kF32, Zero::kNone, 32},
      {Format::kU4, Format::kF16, Zero::kU8, 16},
      {Format::kU4, Format::kF16, Zero::kU8, 0},
      {Format::kU8, Format::kF16, Zero::kU16, 128},
      {Format::kI8, Format::kBF16, Zero::kNone, 32},
      {Format::kU8, Format::kF16, Zero::kU8, 16},
      {Format::kU2, Format::kF16, Zero::kU8, 64},
      {Format::kU2, Format::kF16, Zero::kU8, 32},
      {Format::kU2, Format::kBF16, Zero::kU8, 16},
      {Format::kU3, Format::kF16, Zero::kU8, 128},
      {Format::kI3, Format::kF16, Zero::kNone, 32},
      {Format::kI3, Format::kF16, Zero::kNone, 16},
      {Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
      {Format::kE2M1, Format::kE4M3, Zero::kNone, 16},
      {Format::kE4M3, Format::kF32, Zero::kNone, 128},
      {Format::kE4M3, Format::kBF16, Zero::kNone, 0},
      {Format::kNFL2, Format::kE4M4, Zero::kNone, 32},
      {Format::kNFL3, Format::kF16, Zero::kNone, 32},
      {Format::kNF4, Format::kF32, Zero::kNone, 64},
      {Format::kNFL4, Format::kE4M4, Zero::kNone, 32},
      {Format::kNFL5, Format::kF32, Zero::kNone, 32},
      {Format::kIQ4, Format::kF16, Zero::kNone, 32},
      {Format::kU5, Format::kF16, Zero::kU8, 32},
      {Format::kI5, Format::kF16, Zero::kNone, 32},
      {Format::kI6, Format::kF16, Zero::kNone, 16},
      // With scales of two levels, and offsets.
      {Format::kU2, Format::kU4, Zero::kOffsetU4, 16},
      {Format::kI3, Format::kI6, Zero::kNone, 16},
      {Format::kU4, Format::kU6, Zero::kOffsetU6, 32},
      {Format::kU5, Format::kU6, Zero::kOffsetU6, 32},
      {Format::kI6, Format::kI8, Zero::kNone, 16},
      {Format::kIQ4, Format::kI6, Zero::kNone, 32},
      {Format::kNFL4, Format::kU6, Zero::kNone, 32},
      {Format::kNFL3, Format::kU6, Zero::kNone, 32},
      {Format::kNFL3, Format::kU6, Zero::kNone, 16},
      // With offsets; scales of every size.
      {Format::kI4, Format::kBF16, Zero::kBF16, 128},
      {Format::kI4, Format::kF16, Zero::kF16, 32},
      {Format::kU5, Format::kF16, Zero::kF16, 32},
      {Format::kU6, Format::kF16, Zero::kBF16, 16},
      {Format::kU4, Format::kF16, Zero::kF16, 64},
      {Format::kU4, Format::kE8M0, Zero::kBF16, 16},
      {Format::kI8, Format::kF16, Zero::kF16, 0},
      {Format::kU8, Format::kF32, Zero::kBF16, 32},
      {Format::kU3, Format::kF32, Zero::kBF16, 64},
      {Format::kI2, Format::kF16, Zero::kF16, 16},
  };
}

inline bool has_table(const WeightFormat& format) {
  return format.element >= Format::kNF4;
}

inline constexpr cuda::Number kNumbers[] = {cuda::Number::kF16, cuda::Number::kBF16};

inline const FormatInfo& info_of(cuda::Number number) {
  return info(number == cuda::Number::kF16 ? Format::kF16 : Format::kBF16);
}

/// Unit roundoff.
inline double unit_of(cuda::Number number) {
  return number == cuda::Number::kF16 ? 0x1p-11 : 0x1p-8;
}

inline std::vector<uint16_t> to_numbers(const std::vector<float>& values, cuda::Number number) {
  std::vector<uint16_t> numbers(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    numbers[i] = static_cast<uint16_t>(info_of(number).encode(values[i], Rounding::kNearestEven));
  }
  return numbers;
}

inline std::vector<float> to_floats(std::span<const uint16_t> numbers, cuda::Number number) {
  std::vector<float> values(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    values[i] = static_cast<float>(info_of(number).decode(numbers[i]));
  }
  return values;
}

inline const cuda::Device& this_device() {
  static const cuda::Device device = value_of(cuda::query_device());
  return device;
}

/// A matrix packed in device memory.
class PackedOnDevice {
 public:
  explicit PackedOnDevice(const MatrixView& matrix, cuda::RowOrder order = cuda::RowOrder::kNatural)
      : format_(value_of(cuda::packed_format(matrix, order))),
        tensor_scale_(matrix.tensor_scale),
        bytes_(pack(matrix, format_)) {}

  const cuda::PackedFormat& format() const { return format_; }
  const DeviceBytes& bytes() const { return bytes_; }
  cuda::WeightArguments arguments(cuda::Number number) const {
    return cuda::weight_arguments(bytes_.data(), format_, tensor_scale_, number);
  }

 private:
  static std::vector<std::byte> pack(const MatrixView& matrix, const cuda::PackedFormat& format) {
    std::vector<std::byte> bytes(format.bytes);
    cuda::pack_on_host(bytes.data(), matrix, format);
    return bytes;
  }
  cuda::PackedFormat format_;
  double tensor_scale_;
  DeviceBytes bytes_;
};

struct GpuProduct {
  const PackedOnDevice* weights = nullptr;
  cuda::Number number = cuda::Number::kF16;
  std::vector<uint16_t> x;  // [m][cols]
  int64_t m = 1;
  std::vector<uint16_t> bias = {};      // [rows] or empty
  std::vector<uint16_t> residual = {};  // [m][outputs] or empty
  cuda::Activation activation = cuda::Activation::kNone;
  int64_t extra_stride = 0;  // numbers between rows of x
  int64_t offset = 0;        // numbers before x, which spoils its alignment

  int64_t outputs() const {
    const int64_t rows = weights->format().rows;
    return activation == cuda::Activation::kNone ? rows : rows / 2;
  }
  cuda::Problem problem() const {
    const bool aligned = (weights->format().cols + extra_stride) % 8 == 0 && offset % 8 == 0;
    return {weights->format(), number, m, aligned};
  }
};

inline std::span<const std::byte> bytes_of(const std::vector<uint16_t>& numbers) {
  return std::as_bytes(std::span(numbers));
}

/// [m][outputs]. Fails the test where a canary is broken.
inline std::vector<uint16_t> run(const GpuProduct& product, const cuda::Plan& plan) {
  const int64_t cols = product.weights->format().cols;
  const int64_t stride = cols + product.extra_stride;
  std::vector<uint16_t> spread(product.offset + product.m * stride, 0x7fff);  // NaN between rows
  for (int64_t i = 0; i < product.m; ++i) {
    std::copy_n(&product.x[i * cols], cols, &spread[product.offset + i * stride]);
  }
  const DeviceBytes x(bytes_of(spread));
  const DeviceBytes y(product.m * product.outputs() * 2);
  const DeviceBytes bias(bytes_of(product.bias));
  const DeviceBytes residual(bytes_of(product.residual));
  const DeviceBytes workspace(plan.workspace_bytes);
  cuda::LinearCall call;
  call.weights = product.weights->arguments(product.number);
  call.format = &product.weights->format();
  call.x = x.data() + 2 * product.offset;
  call.x_stride = stride;
  call.y = y.data();
  call.y_stride = product.outputs();
  call.m = product.m;
  call.activation = product.activation;
  if (!product.bias.empty()) call.bias = bias.data();
  if (!product.residual.empty()) {
    call.residual = residual.data();
    call.residual_stride = product.outputs();
  }
  const Status status = cuda::run_linear(plan, call, product.number, workspace.data(), nullptr);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  expect_ok(cudaDeviceSynchronize());
  for (const DeviceBytes* buffer : {&x, &y, &bias, &residual, &workspace}) {
    EXPECT_TRUE(buffer->canaries_are_whole());
  }
  EXPECT_TRUE(product.weights->bytes().canaries_are_whole());
  const std::vector<std::byte> bytes = y.read();
  std::vector<uint16_t> result(bytes.size() / 2);
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

}  // namespace subbyte::testing
