#include "subbyte/quantize.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/quote.h"
#include "cpp_interface/cpu_state.h"
#include "cpp_interface/matrix_data.h"
#include "cpp_interface/threads.h"
#include "kernels/cpu/blocks.h"
#include "transform/quantize_plan.h"

namespace subbyte::wrapped {
namespace {

Result<subbyte::Matrix> quantize(std::span<const float> weights, int64_t rows, int64_t cols,
                                 const WeightQuantization& given, Executor& pool) {
  SUBBYTE_TRY(const QuantizeFormat* const format, choose_quantize_format(given.format, given.bits));
  constexpr int64_t kMaxSize = int64_t{1} << 24;
  const bool is_size = rows >= 1 && rows <= kMaxSize && cols >= 1 && cols <= kMaxSize;
  if (!is_size || std::ssize(weights) != rows * cols) {
    return Error{"quantize.shape", "expected weights [rows][cols], sizes up to 2^24, found " +
                                       std::to_string(weights.size()) + " for " +
                                       std::to_string(rows) + " and " + std::to_string(cols)};
  }
  const QuantizeForm form = {
      .bits = given.bits.value_or(format->default_bits),
      .group_size = group_size_of(*format, given.group_size),
      .symmetric = given.symmetric.value_or(format->symmetry != Symmetry::kNever)};
  SUBBYTE_CHECK(check_form(*format, form));
  if (form.group_size != 0 && !format->short_groups && cols % form.group_size != 0) {
    return Error{"quantize.group_size", "expected a group size that divides " +
                                            std::to_string(cols) + " inputs, found " +
                                            std::to_string(form.group_size)};
  }
  const RowReader read_row = [&](int64_t row, float* out) {
    std::ranges::copy(weights.subspan(row * cols, cols), out);
  };
  return quantize_one(*format, rows, cols, read_row, form, pool);
}

Status check_buffer(const char* what, std::size_t found, int64_t expected) {
  if (static_cast<int64_t>(found) == expected) return {};
  return Error{"blocks.buffer", std::string("blocks: ") + what + ": expected " +
                                    std::to_string(expected) + " bytes, found " +
                                    std::to_string(found)};
}

Status quantize_checked(Execution& execution, const BlockQuantization& blocks,
                        std::span<const std::byte> x, std::span<std::byte> codes,
                        std::span<std::byte> scales) {
  SUBBYTE_CHECK(check_block_quantization(blocks));
  const int64_t width = info(blocks.input).bits / 8;
  SUBBYTE_CHECK(check_buffer("x", x.size(), blocks.rows * blocks.cols * width));
  SUBBYTE_CHECK(check_buffer("codes", codes.size(), blocks.code_bytes()));
  SUBBYTE_CHECK(check_buffer("scales", scales.size(), blocks.scale_bytes()));
  if (reinterpret_cast<uintptr_t>(x.data()) % static_cast<uintptr_t>(width) != 0) {
    return Error{"blocks.buffer",
                 "blocks: x: expected an address at a multiple of a number's size"};
  }
  return cpu::quantize_blocks(blocks, x.data(), codes.data(), scales.data(), execution.kernels(),
                              execution.pool());
}

}  // namespace

std::vector<std::string> weight_quantizations() {
  return quantize_format_names();
}

Result<Matrix> quantize_weights(std::span<const float> weights, int64_t rows, int64_t cols,
                                const WeightQuantization& quantization,
                                std::shared_ptr<Executor> threads) {
  const auto own = threads_or_own(std::move(threads));
  auto matrix = quantize(weights, rows, cols, quantization, *own);
  if (!matrix.ok()) return std::move(matrix).error();
  return to_public(std::move(matrix).value());
}

Status quantize_blocks(Cpu& cpu, const BlockQuantization& blocks, std::span<const std::byte> x,
                       std::span<std::byte> codes, std::span<std::byte> scales) {
  return quantize_checked(*cpu.state().execution, blocks, x, codes, scales);
}

}  // namespace subbyte::wrapped
