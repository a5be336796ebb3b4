#include "kernels/cpu/check_linear.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/checked.h"
#include "formats/rotation.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/linear.h"
#include "matrix/codebook.h"

namespace subbyte {
namespace {

/// "u4 scale f16 zero u8, e2m1 scale e8m0, bf16, ..."
std::string supported_formats(const cpu::Kernels& kernels) {
  std::string list;
  for (const cpu::MatmulKernel& kernel : kernels.matmuls) {
    if (!list.empty()) list += ", ";
    list += info(kernel.element).name;
    if (has_two_levels(kernel.scale)) {
      list += " scale of two levels";
    } else if (kernel.scale != Format::kNone) {
      list += " scale " + std::string(info(kernel.scale).name);
    }
    if (is_offset(kernel.zero)) {
      list += " offset";
    } else if (kernel.zero != Zero::kNone) {
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
  return refuse_weights(weights, "expected " +
                                     (expected ? std::to_string(*expected) : "more than 2^64") +
                                     " bytes of " + what + ", found " + std::to_string(found));
}

Status check_shape(const MatrixView& weights) {
  if (weights.rows < 1 || weights.cols < 1) {
    return refuse_weights(weights, "expected at least one row and one column");
  }
  if (!is_dense(weights.format)) {
    if (weights.cols % 8 != 0) {
      return refuse_weights(weights, "expected columns in multiples of 8");
    }
    if (weights.format.group_size < 0 || weights.format.group_size % 8 != 0) {
      return refuse_weights(weights, "expected groups of a multiple of 8, or 0");
    }
  }
  const int64_t rotation = weights.format.rotation;
  if (!is_rotation(rotation) || (rotation != 0 && weights.cols % rotation != 0) ||
      (rotation != 0 && !weights.input_order.empty())) {
    return refuse_weights(
        weights,
        "expected a rotation of 16, 64 or 256 inputs that divides the columns, and "
        "no input order beside it");
  }
  return {};
}

Status check_sizes(const MatrixView& weights) {
  const uint64_t bits = info(weights.format.element).bits;
  const auto row_bits = checked_mul(weights.cols, bits);
  SUBBYTE_CHECK(
      check_size(weights, "codes", weights.codes.size(),
                 row_bits ? std::optional<uint64_t>(ceil_div(*row_bits, 8)) : std::nullopt));
  SUBBYTE_CHECK(check_size(weights, "scales", weights.scales.size(), weights.scale_row_bytes()));
  return check_size(weights, "zero points", weights.zeros.size(), weights.zero_row_bytes());
}

Status check_input_order(const MatrixView& weights) {
  if (weights.input_order.empty()) return {};
  if (weights.input_order.size() != static_cast<uint64_t>(weights.cols)) {
    return refuse_weights(weights, "expected an input order of as many entries, found " +
                                       std::to_string(weights.input_order.size()));
  }
  for (const uint32_t input : weights.input_order) {
    if (input >= static_cast<uint64_t>(weights.cols)) {
      return refuse_weights(weights, "input order: expected inputs below " +
                                         std::to_string(weights.cols) + ", found " +
                                         std::to_string(input));
    }
  }
  return {};
}

}  // namespace

bool is_decoded(const MatrixView& weights) {
  return needs_codebook(weights.format.element) && weights.format.group_size % 32 != 0;
}

WeightFormat kernel_format(const MatrixView& weights) {
  return is_decoded(weights) ? WeightFormat{} : weights.format;
}

Error refuse_weights(const MatrixView& weights, std::string_view what) {
  std::string message = "matrix " + std::to_string(weights.rows) + " x " +
                        std::to_string(weights.cols) + ", " + to_string(weights.format) + ": ";
  message += what;
  return {"linear.unsupported", message};
}

Error refuse_format(const cpu::Kernels& kernels, const MatrixView& weights) {
  return refuse_weights(weights, "no kernel; expected one of " + supported_formats(kernels));
}

Status check_linear(const Execution& execution, const MatrixView& weights) {
  SUBBYTE_CHECK(check_shape(weights));
  if (!weights.codebook.empty() && !may_have_codebook(weights.format.element)) {
    return refuse_weights(weights, "no kernel for such codes with a codebook");
  }
  if (cpu::find_matmul(execution.kernels(), kernel_format(weights)) == nullptr) {
    return refuse_format(execution.kernels(), weights);
  }
  if (!weights.codebook.empty() || needs_codebook(weights.format.element)) {
    const std::string fault = codebook_fault(weights.codebook, weights.format.element);
    if (!fault.empty()) return refuse_weights(weights, "codebook: expected " + fault);
  }
  SUBBYTE_CHECK(check_sizes(weights));
  return check_input_order(weights);
}

}  // namespace subbyte
