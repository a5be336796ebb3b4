#include "subbyte/products.h"

#include <utility>
#include <vector>

#include "base/quote.h"
#include "cpp_interface/cpu_state.h"
#include "cpp_interface/matrix_data.h"
#include "cpu_backend/linear.h"
#include "device/host_product.h"
#include "kernels/cpu/blocks.h"

namespace subbyte::wrapped {
namespace {

Error refuse(const std::string& what, const std::string& expected, const std::string& found) {
  return {"linear.argument", "linear: " + what + ": expected " + expected + ", found " + found};
}

cpu::Precision precision_of(Activations activations) {
  if (activations == Activations::kBF16) return cpu::Precision::kBF16;
  if (activations == Activations::kInt8) return cpu::Precision::kInt8;
  return cpu::Precision::kF32;
}

Status check_size(const char* what, int64_t found, int64_t expected) {
  if (found == expected) return {};
  return refuse(what, std::to_string(expected) + " numbers", std::to_string(found));
}

Status check_sizes(const Product& given) {
  constexpr int64_t kMaxM = int64_t{1} << 24;
  if (given.m < 1 || given.m > kMaxM) return refuse("m", "1 to 2^24", std::to_string(given.m));
  SUBBYTE_CHECK(check_size("x", std::ssize(given.x), given.m * given.weights.cols()));
  SUBBYTE_CHECK(check_size("y", std::ssize(given.y), given.m * given.weights.rows()));
  if (given.bias.empty()) return {};
  return check_size("bias", std::ssize(given.bias), given.weights.rows());
}

Status run(Execution& execution, std::span<const Product> given) {
  std::vector<LinearProduct> products;
  std::vector<std::pair<const Product*, const device::HostWeights*>> without_kernel;
  for (const Product& product : given) {
    SUBBYTE_CHECK(check_sizes(product));
    const MatrixView& weights = product.weights.data().for_kernels();
    if (check_linear(execution, weights).ok()) {
      products.push_back({.y = product.y,
                          .x = product.x,
                          .m = product.m,
                          .weights = &weights,
                          .bias = product.bias});
    } else {
      SUBBYTE_TRY(const auto* made, product.weights.data().without_kernel(execution));
      without_kernel.emplace_back(&product, made);
    }
  }
  if (!products.empty()) SUBBYTE_CHECK(linear_group(execution, products));
  for (const auto& [product, weights] : without_kernel) {
    device::Product on_host;
    on_host.number = Format::kF32;
    on_host.m = product->m;
    on_host.x = product->x.data();
    on_host.y = product->y.data();
    on_host.bias = product->bias.empty() ? nullptr : product->bias.data();
    on_host.x_stride = product->weights.cols();
    on_host.y_stride = product->weights.rows();
    SUBBYTE_CHECK(device::multiply(execution, *weights, on_host));
  }
  return {};
}

Status dequantize_all(Execution& execution, const MatrixView& view, Format number,
                      std::span<std::byte> out) {
  const std::size_t width = static_cast<std::size_t>(info(number).bits) / 8;
  const std::size_t expected = static_cast<std::size_t>(view.rows * view.cols) * width;
  if (out.size() != expected || reinterpret_cast<uintptr_t>(out.data()) % width != 0) {
    return Error{"matrix.argument", "dequantize: expected " + std::to_string(expected) +
                                        " bytes at a multiple of " + std::to_string(width) +
                                        ", found " + std::to_string(out.size())};
  }
  return cpu::dequantize(view, number, out.data(), execution.kernels(), execution.pool());
}

}  // namespace

Cpu::Cpu(std::unique_ptr<State> state) : state_(std::move(state)) {}
Cpu::Cpu(Cpu&&) noexcept = default;
Cpu& Cpu::operator=(Cpu&&) noexcept = default;
Cpu::~Cpu() = default;

Result<Cpu> Cpu::open(const DeviceOptions& options) {
  if (options.device != "cpu" && options.device != "auto") {
    return Error{"device.unsupported",
                 "expected device cpu or auto, found " + quote(options.device)};
  }
  auto state = std::make_unique<State>();
  state->threads = options.threads;
  auto execution = Execution::create({.num_threads = options.num_threads,
                                      .isa = options.isa,
                                      .pin_threads = options.pin_threads,
                                      .executor = state->threads.get(),
                                      .precision = precision_of(options.activations),
                                      .mxfp8_experts = false,
                                      .batch_invariant = options.batch_invariant});
  if (!execution.ok()) return std::move(execution).error();
  state->execution = std::move(execution).value();
  return Cpu(std::move(state));
}

std::string Cpu::isa() const {
  return std::string(state_->execution->kernels().name);
}

Status Cpu::check(const Matrix& weights) const {
  return check_linear(*state_->execution, weights.data().for_kernels());
}

Status Cpu::linear(const Matrix& weights, std::span<const float> x, std::span<float> y, int64_t m,
                   std::span<const float> bias) {
  const Product product = {.weights = weights, .x = x, .y = y, .m = m, .bias = bias};
  return linear({&product, 1});
}

Status Cpu::linear(std::span<const Product> products) {
  return run(*state_->execution, products);
}

Status Cpu::dequantize(const Matrix& matrix, Format number, std::span<std::byte> out) {
  if (number == Format::kNone || number > Format::kBF16) {
    return Error{"blocks.input",
                 "dequantize: expected f32, f16 or bf16, found " + std::string(name(number))};
  }
  return dequantize_all(*state_->execution, matrix.data().matrix.view, number, out);
}

}  // namespace subbyte::wrapped
