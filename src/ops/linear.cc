#include "ops/linear.h"

#include <algorithm>
#include <string>

#include "base/checked.h"

namespace subbyte {
namespace {

// Rows of weights that a thread takes at a time: a multiple of every kernel's strip.
constexpr int64_t kRowGrain = 32;
// Bytes between packed rows of activations, so that their length is no power of two and the rows
// of a tile do not meet in one set of the cache; between tiles, of which a mainloop reads 8 KB
// each, enough that these do not meet either (half the speed of prompts on AMX).
constexpr int64_t kRowPadding = 64;
constexpr int64_t kTilePadding = (8 << 10) + 64;

Error unsupported(const std::string& message) {
  return {"linear.unsupported", message};
}

std::string shape_of(const MatrixView& weights) {
  return "matrix " + std::to_string(weights.rows) + " x " + std::to_string(weights.cols) + ", " +
         to_string(weights.format) + ": ";
}

/// "u4 scale f16 zero u8, e2m1 scale e8m0, bf16, ..."
std::string supported_formats(const cpu::Kernels& kernels) {
  std::string list;
  for (const cpu::MatmulKernel& kernel : kernels.matmuls) {
    if (!list.empty()) list += ", ";
    list += info(kernel.element).name;
    if (kernel.scale != Format::kNone) list += " scale " + std::string(info(kernel.scale).name);
    if (kernel.zero != Zero::kNone) {
      list += " zero u" + std::to_string(8 * zero_bytes(kernel.zero));
    }
  }
  return list;
}

/// `found` must be the product of `rows` and `bytes_per_row`.
Status check_size(const MatrixView& weights, const char* what, std::size_t found,
                  std::optional<uint64_t> bytes_per_row) {
  const auto expected = bytes_per_row ? checked_mul(weights.rows, *bytes_per_row) : std::nullopt;
  if (expected && *expected == found) return {};
  return unsupported(shape_of(weights) + "expected " +
                     (expected ? std::to_string(*expected) : "more than 2^64") + " bytes of " +
                     what + ", found " + std::to_string(found));
}

Status check_shape(const MatrixView& weights) {
  if (weights.rows < 1 || weights.cols < 1) {
    return unsupported(shape_of(weights) + "expected at least one row and one column");
  }
  if (!is_dense(weights.format)) {
    if (weights.cols % 8 != 0) {
      return unsupported(shape_of(weights) + "expected columns in multiples of 8");
    }
    if (weights.format.group_size < 0 || weights.format.group_size % 8 != 0) {
      return unsupported(shape_of(weights) + "expected groups of a multiple of 8, or 0");
    }
  }
  return {};
}

Status check_sizes(const MatrixView& weights) {
  const uint64_t bits = info(weights.format.element).bits;
  const auto row_bits = checked_mul(weights.cols, bits);
  SUBBYTE_CHECK(
      check_size(weights, "codes", weights.codes.size(),
                 row_bits ? std::optional<uint64_t>(ceil_div(*row_bits, 8)) : std::nullopt));
  const bool dense = is_dense(weights.format);
  const uint64_t groups = dense ? 0 : ceil_div(weights.cols, weights.group_size());
  const uint64_t scale_bytes = dense ? 0 : info(weights.format.scale).bits / 8;
  SUBBYTE_CHECK(
      check_size(weights, "scales", weights.scales.size(), checked_mul(groups, scale_bytes)));
  return check_size(weights, "zero points", weights.zeros.size(),
                    checked_mul(groups, zero_bytes(weights.format.zero)));
}

Status check_input_order(const MatrixView& weights) {
  if (weights.input_order.empty()) return {};
  if (weights.input_order.size() != static_cast<uint64_t>(weights.cols)) {
    return unsupported(shape_of(weights) + "expected an input order of as many entries, found " +
                       std::to_string(weights.input_order.size()));
  }
  for (const uint32_t input : weights.input_order) {
    if (input >= static_cast<uint64_t>(weights.cols)) {
      return unsupported(shape_of(weights) + "input order: expected inputs below " +
                         std::to_string(weights.cols) + ", found " + std::to_string(input));
    }
  }
  return {};
}

/// Packs m rows of x into the execution's buffer.
cpu::Activations pack_activations(Execution& execution, const float* x, int64_t m,
                                  const MatrixView& weights, cpu::ActivationOrder order) {
  const cpu::Kernels& kernels = execution.kernels();
  const int64_t k = weights.cols;
  const int64_t rows_per_pack = cpu::rows_per_pack(order);
  const int64_t packs = ceil_div(m, rows_per_pack);
  const int64_t padding = rows_per_pack > 1 ? kTilePadding : kRowPadding;
  const int64_t stride = kernels.packed_bytes(k, order) + padding;
  uint8_t* packed = execution.buffer(Execution::Slot::kActivations, packs * stride);
  const uint32_t* gather = weights.input_order.empty() ? nullptr : weights.input_order.data();
  execution.pool().parallel_for(packs, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * rows_per_pack;
      const int64_t rows = std::min(rows_per_pack, m - first);
      kernels.pack(packed + i * stride, x + first * k, rows, gather, k, order);
    }
  });
  return {.data = packed, .rows = m, .stride = stride};
}

void multiply(Execution& execution, cpu::Precision precision, std::span<float> y,
              std::span<const float> x, int64_t m, const MatrixView& weights,
              std::span<const float> bias) {
  const cpu::Kernels& kernels = execution.kernels();
  const cpu::MatmulKernel* kernel = cpu::find_matmul(kernels, weights.format);
  if (kernel == nullptr || m < 1) return;  // check_linear has said so
  const cpu::Weights plain = cpu::weights_of(weights);
  const cpu::Method& method =
      cpu::choose_method(kernels, *kernel, plain, m, precision, execution.batch_invariant());
  const int64_t scratch_bytes = round_up(kernels.scratch_bytes(weights.cols), 64);
  uint8_t* scratch =
      execution.buffer(Execution::Slot::kScratch, scratch_bytes * execution.pool().size());
  cpu::MatmulTask task;
  task.weights = plain;
  task.x = pack_activations(execution, x.data(), m, weights, method.order);
  task.y = y.data();
  task.y_stride = weights.rows;
  task.bias = bias.empty() ? nullptr : bias.data();
  execution.pool().parallel_for(weights.rows, kRowGrain,
                                [&](int64_t begin, int64_t end, int thread) {
                                  cpu::MatmulTask part = task;
                                  part.row_begin = begin;
                                  part.row_end = end;
                                  part.scratch = scratch + thread * scratch_bytes;
                                  method.multiply(part);
                                });
}

}  // namespace

Status check_linear(const Execution& execution, const MatrixView& weights) {
  SUBBYTE_CHECK(check_shape(weights));
  if (cpu::find_matmul(execution.kernels(), weights.format) == nullptr) {
    return unsupported(shape_of(weights) + "no kernel; expected one of " +
                       supported_formats(execution.kernels()));
  }
  SUBBYTE_CHECK(check_sizes(weights));
  return check_input_order(weights);
}

void linear(Execution& execution, std::span<float> y, std::span<const float> x, int64_t m,
            const MatrixView& weights, std::span<const float> bias) {
  multiply(execution, execution.precision(), y, x, m, weights, bias);
}

void exact_linear(Execution& execution, std::span<float> y, std::span<const float> x, int64_t m,
                  const MatrixView& weights, std::span<const float> bias) {
  multiply(execution, cpu::Precision::kF32, y, x, m, weights, bias);
}

}  // namespace subbyte
