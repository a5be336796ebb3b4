#include <utility>
#include <vector>

#include "backends/cpu_options.h"
#include "base/quote.h"
#include "device/host_product.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/linear.h"
#include "matrix/given_matrix.h"
#include "subbyte/products.h"

namespace subbyte {
namespace {

cpu::Precision precision_of(Activations activations) {
  if (activations == Activations::kBF16) return cpu::Precision::kBF16;
  if (activations == Activations::kInt8) return cpu::Precision::kInt8;
  return cpu::Precision::kF32;
}

}  // namespace

Result<ExecutionOptions> cpu_options(const DeviceOptions& options) {
  if (options.activations == Activations::kFp8) {
    return Error{"device.unsupported",
                 "activations in fp8 need a GPU of compute capability 9.0, found the CPU; it takes "
                 "f32, bf16, int8 and mxfp8"};
  }
  return ExecutionOptions{.num_threads = options.num_threads,
                          .isa = options.isa,
                          .pin_threads = options.pin_threads,
                          .executor = options.threads.get(),
                          .precision = precision_of(options.activations),
                          .mxfp8_experts = options.activations == Activations::kMxfp8,
                          .batch_invariant = options.batch_invariant};
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

namespace {

Error refuse(const std::string& what, const std::string& expected, const std::string& found) {
  return {"linear.argument", "linear: " + what + ": expected " + expected + ", found " + found};
}

Status check_size(const char* what, int64_t found, int64_t expected) {
  if (found == expected) return {};
  return refuse(what, std::to_string(expected) + " numbers", std::to_string(found));
}

Status check_product(const Product& given) {
  constexpr int64_t kMaxM = int64_t{1} << 24;
  if (given.weights == nullptr) return refuse("weights", "those of Cpu::prepare()", "none");
  if (given.m < 1 || given.m > kMaxM) return refuse("m", "1 to 2^24", std::to_string(given.m));
  const MatrixView& weights = given.weights->main;
  SUBBYTE_CHECK(check_size("x", std::ssize(given.x), given.m * weights.cols));
  SUBBYTE_CHECK(check_size("y", std::ssize(given.y), given.m * weights.rows));
  if (given.bias.empty()) return {};
  return check_size("bias", std::ssize(given.bias), weights.rows);
}

/// A product with weights whose offsets are multiplied apart.
Status multiply_apart(Execution& execution, const Product& given) {
  device::Product product;
  product.number = Format::kF32;
  product.m = given.m;
  product.x = given.x.data();
  product.y = given.y.data();
  product.bias = given.bias.empty() ? nullptr : given.bias.data();
  product.x_stride = given.weights->main.cols;
  product.y_stride = given.weights->main.rows;
  return device::multiply(execution, *given.weights, product);
}

Status check_blocks_buffer(const char* what, std::size_t found, int64_t expected) {
  if (static_cast<int64_t>(found) == expected) return {};
  return Error{"blocks.buffer", std::string("blocks: ") + what + ": expected " +
                                    std::to_string(expected) + " bytes, found " +
                                    std::to_string(found)};
}

}  // namespace

Cpu::Cpu(std::shared_ptr<Executor> threads, std::unique_ptr<Execution> execution)
    : threads_(std::move(threads)), execution_(std::move(execution)) {}
Cpu::Cpu(Cpu&&) noexcept = default;
Cpu& Cpu::operator=(Cpu&&) noexcept = default;
Cpu::~Cpu() = default;

Result<Cpu> Cpu::open(const DeviceOptions& options) {
  if (options.device != "cpu" && options.device != "auto") {
    return Error{"device.unsupported",
                 "expected device cpu or auto, found " + quote(options.device)};
  }
  SUBBYTE_TRY(const ExecutionOptions own, cpu_options(options));
  SUBBYTE_TRY(auto execution, Execution::create(own));
  return Cpu(options.threads, std::move(execution));
}

std::string Cpu::isa() const {
  return std::string(execution_->kernels().name);
}

Status Cpu::check(const MatrixView& weights) const {
  SUBBYTE_CHECK(check_matrix(weights));
  return check_linear(*execution_, weights);
}

Result<PreparedWeights> Cpu::prepare(const Matrix& matrix) {
  SUBBYTE_CHECK(check_matrix(matrix.view));
  SUBBYTE_TRY(device::HostWeights made, device::HostWeights::create(*execution_, matrix));
  return std::make_shared<const device::HostWeights>(std::move(made));
}

Status Cpu::linear(const PreparedWeights& weights, std::span<const float> x, std::span<float> y,
                   int64_t m, std::span<const float> bias) {
  const Product product = {.weights = weights, .x = x, .y = y, .m = m, .bias = bias};
  return linear({&product, 1});
}

Status Cpu::linear(std::span<const Product> products) {
  std::vector<LinearProduct> group;
  for (const Product& product : products) {
    SUBBYTE_CHECK(check_product(product));
    SUBBYTE_CHECK(check_linear(*execution_, product.weights->main));
    if (product.weights->has_offsets()) continue;
    group.push_back({.y = product.y,
                     .x = product.x,
                     .m = product.m,
                     .weights = &product.weights->main,
                     .bias = product.bias});
  }
  if (!group.empty()) SUBBYTE_CHECK(linear_group(*execution_, group));
  for (const Product& product : products) {
    if (!product.weights->has_offsets()) continue;
    SUBBYTE_CHECK(multiply_apart(*execution_, product));
  }
  return {};
}

Status Cpu::dequantize(const MatrixView& matrix, Format number, std::span<std::byte> out) {
  if (number == Format::kNone || number > Format::kBF16) {
    return Error{"blocks.input",
                 "dequantize: expected f32, f16 or bf16, found " + std::string(name(number))};
  }
  SUBBYTE_CHECK(check_matrix(matrix));
  const std::size_t width = static_cast<std::size_t>(bits(number)) / 8;
  const std::size_t expected = static_cast<std::size_t>(matrix.rows * matrix.cols) * width;
  if (out.size() != expected || reinterpret_cast<uintptr_t>(out.data()) % width != 0) {
    return Error{"matrix.argument", "dequantize: expected " + std::to_string(expected) +
                                        " bytes at a multiple of " + std::to_string(width) +
                                        ", found " + std::to_string(out.size())};
  }
  return cpu::dequantize(matrix, number, out.data(), execution_->kernels(), execution_->pool());
}

Status Cpu::quantize_blocks(const BlockQuantization& blocks, std::span<const std::byte> x,
                            std::span<std::byte> codes, std::span<std::byte> scales) {
  SUBBYTE_CHECK(check_block_quantization(blocks));
  const int64_t width = bits(blocks.input) / 8;
  SUBBYTE_CHECK(check_blocks_buffer("x", x.size(), blocks.rows * blocks.cols * width));
  SUBBYTE_CHECK(check_blocks_buffer("codes", codes.size(), blocks.code_bytes()));
  SUBBYTE_CHECK(check_blocks_buffer("scales", scales.size(), blocks.scale_bytes()));
  if (reinterpret_cast<uintptr_t>(x.data()) % static_cast<uintptr_t>(width) != 0) {
    return Error{"blocks.buffer",
                 "blocks: x: expected an address at a multiple of a number's size"};
  }
  return cpu::quantize_blocks(blocks, x.data(), codes.data(), scales.data(), execution_->kernels(),
                              execution_->pool());
}

SUBBYTE_END_NAMESPACE
